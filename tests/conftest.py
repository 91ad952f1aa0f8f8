"""For all tests: hypothesis must not judge by time. A busy machine is slow, not wrong."""

from hypothesis import settings

settings.register_profile("llamad", deadline=None)
settings.load_profile("llamad")
