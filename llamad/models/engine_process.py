"""One engine process: its start, its control socket, its log, its end.

The program starts it before it imports its other modules, even the flags, so this module must import little. attach()
and the methods after it run on the event loop.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import llamad
from llamad.protocol import process
from llamad.protocol.blobs import Arena
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.channel import Descriptors

if TYPE_CHECKING:
    import asyncio

    from llamad.client.control import Control
    from llamad.flags.settings import ModelSettings
    from llamad.protocol.control_messages import Budget, FromEngine

log = logging.getLogger("llamad.engine")

FIRST_SAFE_FD = 64  # above the numbers of the descriptors in the engine
LAST_LINES = 20
LOG_READS = 4  # maximum reads at a time, of 64 KB each, which is the size of a pipe
STOP_SECONDS = 1.0  # an engine that was asked to end has so much time
WRITE_SECONDS = 10.0  # one that has a file to write
# An engine that was killed has ended after this time, unless the kernel waits for a device that does not answer.
END_SECONDS = 10.0
LAST_WORDS_SECONDS = 1.0


def environment() -> dict[str, str]:
    """Return the environment for a child process that must import this same package."""
    folder = os.path.dirname(os.path.dirname(llamad.__file__))
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


class EngineProcess:
    """A process that loads no model until begin(). Raises OSError if the system has no more processes, descriptors or
    shared memory."""

    def __init__(self) -> None:
        # Its engine can map the blobs of this arena, which outlives it. Set by begin().
        self.arena: Arena | None = None
        self.cache_memory: CacheMemory | None = (
            None  # with the prompts of the model; it outlives the engine, too
        )
        self._socket, theirs = socket.socketpair()
        opened = [self._socket.detach(), theirs.detach()]
        try:
            opened += os.pipe()
            self.descriptors = Descriptors.create()
            try:
                self.pid = self._spawn(opened[1], opened[3])
            except OSError:
                self.descriptors.close()
                raise
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        control, theirs_fd, self._log_fd, their_log = opened
        self._socket = socket.socket(fileno=control)
        os.close(theirs_fd)
        os.close(their_log)
        self.control: Control | None = None
        self.ended: asyncio.Future[str] | None = None  # its result is the reason; set by attach()
        self.has_begun = False
        self.prefix = ""  # of the engine's log lines: the model's name, if there are several models
        self._why = ""  # the reason, if this process ends the engine
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self._partial = ""
        self._pid_fd = -1
        self._status: int | None = None  # the exit status, once the process has ended
        self._is_lost = False  # its end of the control socket is closed
        self._is_dumping = False  # the rest of the log is a stack dump of Python

    def begin(
        self,
        settings: ModelSettings,
        kept: bytes = b"",
        arena: Arena | None = None,
        budget: Budget | None = None,
        cache_memory: CacheMemory | None = None,
    ) -> None:
        """Let the engine load the model while this process imports its other modules. `kept` is from the last engine's
        Planned message. The engine can map the blobs of `arena`, or of a new one, and finds the prompts of the last
        engine in `cache_memory`. With a budget it opens no weights before the message Proceed. Raises OSError if there
        is no shared memory for new ones."""
        from llamad.flags import engine_settings
        from llamad.protocol.control_messages import Start, packed

        self.has_begun = True
        self.arena = arena or Arena()
        self.cache_memory = cache_memory or CacheMemory()
        is_verbose = logging.getLogger().isEnabledFor(logging.DEBUG)
        message = packed(Start(engine_settings.pack(settings), is_verbose, kept, budget))
        try:
            descriptors = [self.arena.fd, self.cache_memory.fd]
            n_sent = socket.send_fds(self._socket, [message], descriptors)
            self._socket.sendall(message[n_sent:])
        except OSError:
            pass  # the engine has ended; the future of attach() will have the reason

    @property
    def is_alive(self) -> bool:
        """Whether the process, which was never attached, has not ended."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def is_stopped(self) -> bool:
        """Whether a signal (SIGSTOP) has stopped the process, and it has not been continued."""
        if self._status is not None:
            return False
        try:
            return os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # it has ended
            return False

    def abandon(self) -> None:
        """End a process that is not needed and was never attached."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._socket.close()
        os.close(self._log_fd)
        self.descriptors.close()

    def _spawn(self, control: int, log_fd: int) -> int:
        channel = self.descriptors
        copies: list[int] = []
        try:
            for fd in (control, channel.memory, channel.command, channel.event, log_fd):
                copies.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_SAFE_FD))
            return self._posix_spawn(copies[:-1], copies[-1])
        finally:
            for fd in copies:
                os.close(fd)

    def _posix_spawn(self, own: list[int], log_fd: int) -> int:
        actions: list[tuple[int, ...]] = [
            (os.POSIX_SPAWN_DUP2, log_fd, 1),
            (os.POSIX_SPAWN_DUP2, log_fd, 2),
            *((os.POSIX_SPAWN_DUP2, fd, process.CONTROL_FD + i) for i, fd in enumerate(own)),
        ]
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "llamad.engine"],
            environment(),
            file_actions=actions,
            setpgroup=0,  # so that ^C in a terminal reaches only the front
            setsigmask=[signal.SIGTERM],  # a thread of the engine waits for it
        )

    # On the event loop.

    async def attach(self, on_message: Callable[[FromEngine], None]) -> asyncio.Future[str]:
        """Read the engine's messages and log. The result of the future is the reason why it ended. Raises OSError."""
        import asyncio

        from llamad.client.control import Control

        loop = asyncio.get_running_loop()
        self.ended = ended = loop.create_future()
        self._pid_fd = os.pidfd_open(self.pid)
        loop.add_reader(self._pid_fd, self._on_end)
        os.set_blocking(self._log_fd, False)
        loop.add_reader(self._log_fd, self._on_log)
        self._socket.setblocking(False)
        self.control = control = Control(on_message, self.kill, self._on_lost)
        await loop.create_unix_connection(lambda: control, sock=self._socket)
        return ended

    def end(self) -> None:
        """End an engine that the daemon does not need any more."""
        self._end("the daemon does not need it any more", logging.DEBUG)

    def kill(self, reason: str) -> None:
        """End the engine now; `reason` completes "the model's engine ended: ..."."""
        self._end(reason, logging.ERROR)

    def _end(self, reason: str, level: int) -> None:
        if not self._why and (self.ended is None or not self.ended.done()):
            self._why = reason
            log.log(level, "%sending the engine: %s", self.prefix, reason)
            self._kill()

    def _kill(self) -> None:
        if self._status is None:  # after its end, another process may have its number
            os.kill(self.pid, signal.SIGKILL)

    async def stop(self, *, is_asked: bool, writes: bool = False, seconds: float | None = None) -> None:
        """End the engine, and return when it has ended. If it was asked to end, it gets so many seconds to do so (None:
        STOP_SECONDS), or WRITE_SECONDS if it `writes` a file."""
        import asyncio

        if self.ended is None:
            self.abandon()
            return
        if seconds is None:
            seconds = STOP_SECONDS
        if writes:
            seconds = max(seconds, WRITE_SECONDS)
        done, _ = await asyncio.wait([self.ended], timeout=seconds if is_asked else 0)
        if not done:
            self._why = self._why or "the daemon is stopping"
            self._kill()
            done, _ = await asyncio.wait([self.ended], timeout=END_SECONDS)
        if not done:
            log.error("the engine (process %d) was killed %g s ago and has not ended", self.pid, END_SECONDS)

    def _on_end(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pid_fd)
        os.close(self._pid_fd)
        _, self._status = os.waitpid(self.pid, 0)
        # Its last message may still be in the socket.
        if self._is_lost:
            self._finish()
        else:
            loop.call_later(LAST_WORDS_SECONDS, self._finish)

    def _on_lost(self) -> None:
        self._is_lost = True
        if self._status is not None:
            self._finish()

    def _finish(self) -> None:
        assert self.ended is not None
        assert self._status is not None
        if self.ended.done():
            return
        self._on_log()
        self._remove_log_reader()
        if self.control is not None:
            self.control.close()
        self.descriptors.close()
        self.ended.set_result(self._why or self._reason(self._status))

    def _reason(self, status: int) -> str:
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            if code == process.EXIT_LOST:
                return "llama.cpp's context was lost and could not be created again"
            if code == process.EXIT_CONTROL:
                return "a thread that answers this process's messages failed"
            if code == process.EXIT_WORKER:  # llama.cpp may have logged other lines after it
                lines = [line for line in self._last_lines if line.startswith(process.LOST_WORKER)]
                return lines[-1] if lines else "an RPC worker is gone"
            return f"it exited with status {code}{self._last_words()}"
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name
        if number == signal.SIGKILL:
            return f"it was killed ({name}), as Linux does when memory runs out"
        return f"it crashed ({name}){self._last_words()}"

    def _last_words(self) -> str:
        """Return the last line that llama.cpp wrote, or "" if there is none."""
        return f": {self._last_lines[-1].strip()}" if self._last_lines else ""

    def _remove_log_reader(self) -> None:
        import asyncio

        if self._log_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._log_fd)
            os.close(self._log_fd)
            self._log_fd = -1

    def _on_log(self) -> None:
        """Log the lines that the engine wrote. The size is limited, so that an engine that writes without end does not
        block the event loop."""
        for _ in range(LOG_READS):
            if self._log_fd < 0:
                return
            try:
                data = os.read(self._log_fd, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._remove_log_reader()
                return
            *lines, self._partial = (self._partial + data.decode("utf-8", "replace")).split("\n")
            for line in lines:
                self._log_line(line)

    def _log_line(self, line: str) -> None:
        record = process.read_log_line(line)
        if record is not None:
            level, name, message = record
            logging.getLogger(name).log(level, "%s%s", self.prefix, message)
        elif line.strip():
            self._is_dumping = self._is_dumping or line.startswith("Fatal Python error:")
            if not self._is_dumping:
                self._last_lines.append(line)
            log.warning("%s%s", self.prefix, line)
