# Owns: the engine's clock for Python, and a call that asks for short time slices on the event loop's thread.
from llamad.base.system cimport be_brief, now_us


def clock_us() -> int:
    """Return the engine's clock in microseconds, for deadlines and waits."""
    return now_us()


def be_brief_here() -> None:
    """Ask Linux to run the calling thread soon after each wake-up, for short time slices."""
    be_brief()
