"""The programs that a build has started: each ends with the code that waits for it, and all of them when one
part of a build fails while others run in threads of their own.
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
    """Another part of the build has failed, and this one was told to end."""


@contextlib.contextmanager
def running(command: list[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A child for the length of the block; a block that fails ends it. With `process_group=0` whatever the child
    has started ends with it."""
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
    """Ends a part that has been told to."""
    if _stopped:
        raise Stopped


def stop_all() -> None:
    """Ends every child and lets no other begin."""
    global _stopped
    with _lock:
        _stopped = True
        for process in _running:
            end(process)


def allow() -> None:
    """Undoes `stop_all`, for the next build in this process."""
    global _stopped
    with _lock:
        _stopped = False
