"""Runs one media process: starts it, sends it one request at a time, reads its log, ends it.

Runs on the event loop. A process that does not reply in time is killed, and the caller gets ChildError. The next
request starts a new process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import llamad
from llamad.media.messages import PACKET_MAX, SOCKET_FD, WARNING

log = logging.getLogger("llamad.media")

ENDED = "it ended"
# The environment variables that a media process gets: none that may hold keys.
ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "TMPDIR",
)
# Otherwise OpenBLAS, which numpy uses, would start a thread for each core.
OWN_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}


# Warnings that were already logged: every process of a kind has the same ones.
_warned: set[str] = set()
WARNINGS_MAX = 8
REAP_SECONDS = 0.005  # between two looks at a process that was killed


class ChildError(Exception):
    """The process ended, or had to be killed."""


class Child:
    """A process of `python -m module`. It is started by the first request, and gets `hello` before any other."""

    def __init__(
        self, module: str, hello: bytes = b"", on_hello: Callable[[bytes], None] | None = None
    ) -> None:
        self._command = (sys.executable, "-P", "-m", module)
        self._hello = hello
        self._on_hello = on_hello
        self._lock = asyncio.Lock()
        self._socket: socket.socket | None = None
        self._pid = 0
        self._log_fd = -1
        self._last_line = ""

    async def start(self, timeout_s: float) -> None:
        """Start the process if there is none. Raises ChildError."""
        await self.ask(b"", [], timeout_s)

    async def ask(self, request: bytes, fds: list[int], timeout_s: float) -> tuple[bytes, list[int]]:
        """Send a request; return the reply and its descriptors, which the caller must close. Raises ChildError."""
        async with self._lock:
            try:
                async with asyncio.timeout(timeout_s):
                    peer = await self._started()
                    return await self._talk(peer, request, fds) if request else (b"", [])
            except TimeoutError:
                self.close()
                raise ChildError(f"it took more than {timeout_s:g} s") from None
            except asyncio.CancelledError:
                self.close()  # otherwise its reply would be taken for that of the next request
                raise
            except OSError as error:
                has_reason = self._socket is not None and error.errno is None and str(error) != ENDED
                try:
                    reason = str(error) if has_reason else await self._ending() or str(error)
                finally:
                    self.close()
                raise ChildError(reason) from None

    async def _started(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        peer = self._start()
        if self._hello:
            reply, received = await self._talk(peer, self._hello, [])
            for fd in received:
                os.close(fd)
            if self._on_hello is not None:
                self._on_hello(reply)
        return peer

    async def _talk(self, peer: socket.socket, request: bytes, fds: list[int]) -> tuple[bytes, list[int]]:
        socket.send_fds(peer, [request], fds)
        await self._readable(peer)
        reply, received, _, _ = socket.recv_fds(peer, PACKET_MAX, 4, socket.MSG_CMSG_CLOEXEC)
        if not reply:
            for fd in received:
                os.close(fd)
            raise OSError(ENDED)
        return reply, received

    async def _readable(self, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def on_readable() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(peer.fileno(), on_readable)
        try:
            await ready
        finally:
            loop.remove_reader(peer.fileno())

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log_fd, their_log = os.pipe()
        try:
            self._pid = self._spawn(theirs.fileno(), their_log)
        except OSError:
            ours.close()
            os.close(log_fd)
            raise
        finally:
            theirs.close()
            os.close(their_log)
        ours.setblocking(False)
        os.set_blocking(log_fd, False)
        self._socket, self._log_fd, self._last_line = ours, log_fd, ""
        asyncio.get_running_loop().add_reader(log_fd, self._on_log)
        return ours

    def _spawn(self, peer: int, log_fd: int) -> int:
        folder = os.path.dirname(os.path.dirname(llamad.__file__))
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        known: dict[str, Any] = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log_fd, 1),
            (os.POSIX_SPAWN_DUP2, log_fd, 2),
            (os.POSIX_SPAWN_DUP2, peer, SOCKET_FD),
        ]
        return os.posix_spawn(
            sys.executable,
            self._command,
            {**known, **OWN_ENVIRONMENT, "PYTHONPATH": path},
            file_actions=actions,
            setpgroup=0,
        )

    def _on_log(self) -> None:
        try:
            data = os.read(self._log_fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._close_log()
            return
        for line in data.decode("utf-8", "replace").splitlines():
            if line.strip():
                self._last_line = line.strip()
                self._say(line.strip())

    def _say(self, line: str) -> None:
        if line.startswith(WARNING) and line not in _warned and len(_warned) < WARNINGS_MAX:
            _warned.add(line)
            log.warning("%s", line.removeprefix(WARNING))
        else:
            log.debug("%s: %s", self._command[3], line)

    def _close_log(self) -> None:
        if self._log_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._log_fd)
            os.close(self._log_fd)
            self._log_fd = -1

    async def _ending(self) -> str:
        """Return why the process ended, or "" if there is none."""
        if self._log_fd >= 0:
            self._on_log()
        if not self._pid:
            return ""
        status = await self._kill()  # it has closed its socket, so it ends anyway
        if os.WIFSIGNALED(status):
            return f"it crashed ({signal.Signals(os.WTERMSIG(status)).name})"
        return f"it exited with status {os.WEXITSTATUS(status)}: {self._last_line or 'it said nothing'}"

    async def stop(self) -> None:
        """Kill the process if there is one, and return when it has ended."""
        self._close_pipes()
        if self._pid:
            await self._kill()

    def close(self) -> None:
        """Kill the process if there is one."""
        self._close_pipes()
        if self._pid:
            self._kill()

    def _close_pipes(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._close_log()

    def _kill(self) -> asyncio.Future[int]:
        """Kill the process and return its status once it has ended. A process with a large image takes long to end,
        and the event loop must not wait for it."""
        pid, self._pid = self._pid, 0
        os.kill(pid, signal.SIGKILL)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()

        def reap() -> None:
            n, status = os.waitpid(pid, os.WNOHANG)
            if not n:
                loop.call_later(REAP_SECONDS, reap)
            elif not ended.done():
                ended.set_result(status)

        reap()
        return ended
