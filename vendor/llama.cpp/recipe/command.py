"""Runs a command of the build; turns a failure into an exit status and one line on stderr."""

import signal
from collections.abc import Callable
from types import FrameType

from . import cache, report


def run(make: Callable[[], object]) -> int:
    """Return 0, 1 after a failure, or 130 after SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        make()
    except report.SetupError as e:
        report.say(f"llamad: {e}")
        return 1
    except OSError as e:
        report.say(f"llamad: {cache.disk_full(cache.root()) if report.is_disk_full(e) else e}")
        return 1
    except KeyboardInterrupt:
        report.say("llamad: interrupted; run the same command again to go on")
        return 130
    return 0


def _stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
