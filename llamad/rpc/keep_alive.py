"""Has an RPC worker notice clients whose machine is gone: a process of its own, which ends once it is done.

ggml-rpc-server serves one client at a time, and would wait for such a client's next word for ever. Its listening socket
is borrowed (pidfd_getfd) and told to keep connections alive, which those that it accepts inherit.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys

from llamad.base.keep_alive import keep_alive

POLL_SECONDS = 0.05
_PIDFD_GETFD = 438  # of every architecture
_PR_SET_PTRACER = 0x59616D61

_libc = ctypes.CDLL(None, use_errno=True)


def begin() -> None:
    """Watch what this process becomes by exec."""
    worker = os.getpid()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:  # an orphan, so that the worker need not reap it
            os.close(told)
            os.write(tell, os.getpid().to_bytes(4, "little"))
            os.close(tell)
            os._exit(_follow(worker))
        os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    helper = int.from_bytes(os.read(told, 4), "little")
    os.close(told)
    # Where only ancestors may look into a process (Yama), this one may, too. Elsewhere the call fails, which is fine.
    _libc.prctl(_PR_SET_PTRACER, helper, 0, 0, 0)


def _follow(worker: int) -> int:
    """Until the worker listens, or has ended."""
    try:
        process = os.pidfd_open(worker)
        while not select.select([process], [], [], POLL_SECONDS)[0]:
            if _has_set(worker, process):
                return 0
    except OSError as error:
        print(
            f"llamad: clients that vanish will not be noticed ({error.strerror}): restart this worker if its client"
            " loses power or network",
            file=sys.stderr,
            flush=True,
        )
    return 0


def _has_set(worker: int, process: int) -> bool:
    """Whether it listens, and its socket is set. Raises OSError where that is not permitted."""
    folder = f"/proc/{worker}/fd"
    for name in os.listdir(folder):
        try:
            if not os.readlink(f"{folder}/{name}").startswith("socket:"):
                continue
        except FileNotFoundError:
            continue  # closed meanwhile
        fd = _libc.syscall(_PIDFD_GETFD, process, int(name), 0)
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        with socket.socket(fileno=fd) as one:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                keep_alive(one)
                return True
    return False
