"""For all tests: the servers they share, and hypothesis, which must not judge by time. A busy machine is slow, not
wrong."""

from hypothesis import settings

pytest_plugins = ["support.servers"]

settings.register_profile("llamad", deadline=None)
settings.load_profile("llamad")
