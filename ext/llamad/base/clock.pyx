# Owns: the engine's clock as Python sees it, and the event loop's wish for short time slices.
from llamad.base.system cimport be_brief, now_us


def clock_us() -> int:
    """The engine's clock, for deadlines and waits."""
    return now_us()


def be_brief_here() -> None:
    """The calling thread works for a moment each time it is woken, and asks Linux for its turn at once."""
    be_brief()
