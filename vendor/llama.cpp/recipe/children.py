"""The processes that a build has started. Each ends with the code that waits for it, and all of them end when one part
of the build fails, because the other parts run in threads of their own.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.Lock()
_running: set["subprocess.Popen[str]"] = set()
_stopped = False


class Stopped(Exception):
    """Another part of the build has failed, so this one must end."""


@contextlib.contextmanager
def running(command: list[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Run a child process during the block; a block that fails ends it. With `process_group=0`, the processes that the
    child has started end with it."""
    with _lock:
        check()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, errors="replace", **options)
        _running.add(process)
    try:
        yield process
        process.wait()
    except BaseException:
        end(process)
        process.wait()
        raise
    finally:
        with _lock:
            _running.discard(process)
    check()


def end(process: "subprocess.Popen[str]") -> None:
    try:
        is_leader = os.getpgid(process.pid) == process.pid
    except ProcessLookupError:
        return
    if is_leader:
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()


def check() -> None:
    """Raise Stopped if this part of the build must end."""
    if _stopped:
        raise Stopped


def stop_all() -> None:
    """End every child, and do not start another one."""
    global _stopped
    with _lock:
        _stopped = True
        for process in _running:
            end(process)


def allow() -> None:
    """Undo `stop_all`, for the next build in this process."""
    global _stopped
    with _lock:
        _stopped = False
