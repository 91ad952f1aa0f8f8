"""`python -m support.loops.watched_daemon FLAGS...` is `python -m llamad FLAGS...` with a watchdog on its event loop.

LLAMAD_WATCH_FILE gets a line of JSON for each stall; without it, the log gets a report. LLAMAD_WATCH_SECONDS is how
late the loop must be for one. The program itself knows nothing of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import uvloop

from llamad.__main__ import main
from support.loops.watchdog import Stall, Watchdog, to_stderr

T = TypeVar("T")
_run = uvloop.run


def _report(stall: Stall) -> None:
    if "LLAMAD_WATCH_FILE" not in os.environ:
        to_stderr(stall)
        return
    line = msgspec.json.encode(stall) + b"\n"
    file = os.open(os.environ["LLAMAD_WATCH_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _watched_run(program: Coroutine[Any, Any, T], **options: Any) -> T:
    async def watched() -> T:
        Watchdog(float(os.environ.get("LLAMAD_WATCH_SECONDS", "0.25")), _report)
        return await program

    return _run(watched(), **options)


if __name__ == "__main__":
    setattr(uvloop, "run", _watched_run)  # noqa: B010  (its type is narrower)
    sys.exit(main())
