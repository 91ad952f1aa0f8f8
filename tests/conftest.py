"""For all tests: the servers they share, and hypothesis, which must not judge by time. A busy machine is slow, not
wrong."""

import gc

from hypothesis import settings

pytest_plugins = ["support.servers"]

settings.register_profile("llamad", deadline=None)
settings.load_profile("llamad")


def pytest_collection_finish() -> None:
    """What was imported stays: the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()
