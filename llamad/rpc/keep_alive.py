"""Makes an RPC worker notice clients whose machine is gone. A helper process does this, and ends once it is done.

ggml-rpc-server serves one client at a time, and would wait for ever for the next message of such a client. The helper
duplicates its listening socket (pidfd_getfd) and turns on TCP keep-alive, which accepted connections inherit.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys

from llamad.base.keep_alive import keep_alive

POLL_SECONDS = 0.05
_PIDFD_GETFD = 438  # the system call's number on every architecture
_PR_SET_PTRACER = 0x59616D61

_libc = ctypes.CDLL(None, use_errno=True)


def begin() -> None:
    """Start the helper for this process, which becomes the RPC worker by exec."""
    worker = os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:  # the helper is an orphan, so that the worker need not reap it
            os.close(reader)
            os.write(writer, os.getpid().to_bytes(4, "little"))
            os.close(writer)
            os._exit(_follow(worker))
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    helper = int.from_bytes(os.read(reader, 4), "little")
    os.close(reader)
    # With Yama, only ancestors may look into a process; this allows the helper, too. Without Yama the call fails, which
    # does not matter.
    _libc.prctl(_PR_SET_PTRACER, helper, 0, 0, 0)


def _follow(worker: int) -> int:
    """Wait until the worker listens, or has ended."""
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
    """If the worker listens, turn on keep-alive for its socket and return True. Raises OSError if that is not
    permitted."""
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
