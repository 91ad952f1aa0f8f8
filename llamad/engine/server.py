"""Serves the front in the engine process: receives its messages and replies to them.

The main thread loads the model, then waits for the engine thread to end. The control thread reads the front's messages;
other threads that it passes them to reply themselves. When the front is gone, this process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from llamad.base import syscall_filter
from llamad.base.memory_trim import Trimmer
from llamad.engine import worker_watch
from llamad.engine.embedder import Embedder
from llamad.engine.instance import Instance
from llamad.engine.llama_log import LlamaLog
from llamad.engine.loading.opening import Loading
from llamad.engine.loading.thread_pools import bind_caller
from llamad.flags import engine_settings
from llamad.protocol import blobs, process
from llamad.protocol import control_messages as messages
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.channel import Descriptors
from llamad.protocol.errors import FileRefused, LoadError, MemoryShort

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

log = logging.getLogger("llamad.engine")

PR_SET_PDEATHSIG = 1
READ_BYTES = 1 << 18
# How often the progress of the load is checked; more often at first, because the front waits for the first message.
VOCAB_SECONDS = 0.005
PROGRESS_SECONDS = 0.25
PAGE_THREADS = 3  # threads that allocate pages for the prompt cache, if a GPU computes
N_COMPILING = 4  # grammars that are compiled at once; the front decides which ones

M = TypeVar("M", bound=messages.FromFront)


class FrontHandler(logging.Handler):
    """Sends log records to the front, which formats them, so that there is one log. The front reads standard error."""

    def __init__(self) -> None:
        super().__init__()
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = self._formatter.format(record)  # with its traceback, if it has one
            sys.stderr.write(process.log_line(record.levelno, record.name, message))
            sys.stderr.flush()
        except OSError:
            pass  # the front is gone


class Server:
    """Receives the front's messages and replies to them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._messages: list[messages.FromFront] = []
        self._compiling = ThreadPoolExecutor(N_COMPILING, thread_name_prefix="llamad-compile")
        self._opening = ThreadPoolExecutor(1, thread_name_prefix="llamad-adapters")
        self.arena = -1  # the descriptor of the file with the front's blobs
        self.cache_memory: CacheMemory | None = None  # the prompts of the model's last engine
        self.instance: Instance | None = None
        self.embedder: Embedder | None = None
        self.run: queue.SimpleQueue[messages.Run] = queue.SimpleQueue()
        self.may_proceed = threading.Event()
        self._share = messages.Share()
        self._serves = False

    def send(self, message: messages.Message) -> None:
        with self._sending:
            try:
                self._control.sendall(messages.packed(message))
            except OSError:
                end(0)  # the front is gone

    def receive_start(self) -> messages.Start:
        """Return the first message, which comes with the descriptors of the arena and of the cache memory. If the front
        is gone, the process ends."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, READ_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, descriptors = b"", []
        if not data:
            end(0)
        self._buffer += data
        self._messages = [messages.decode_front(one) for one in messages.unpack(self._buffer)]
        start = self.receive()
        assert isinstance(start, messages.Start)
        self.arena, cache_memory = descriptors
        self.cache_memory = CacheMemory(cache_memory)
        return start

    def receive(self) -> messages.FromFront:
        """Return the next message. If the front is gone, the process ends."""
        while not self._messages:
            try:
                data = self._control.recv(READ_BYTES)
            except OSError:
                data = b""
            if not data:
                end(0)
            self._buffer += data
            self._messages = [messages.decode_front(one) for one in messages.unpack(self._buffer)]
        return self._messages.pop(0)

    def start(self) -> None:
        threading.Thread(target=self._or_end, args=(self._serve,), name="llamad-control", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._attempt(self._handle, self.receive())

    def _or_end(self, work: Callable[[], None]) -> None:
        """Run a thread's work, and end the process if it fails. Without the thread the front would wait for ever; now
        it starts another engine."""
        try:
            work()
        except Exception:
            log.exception("a thread that replies to the front failed, so this engine ends")
            end(process.EXIT_CONTROL)

    def _attempt(self, work: Callable[[M], None], message: M) -> None:
        """Handle one message; an exception only costs this message."""
        try:
            work(message)
        except Exception as error:
            log.exception("a message of the front failed: %s", type(message).__name__)
            if isinstance(message, messages.Question):
                self.send(messages.Failed(message.id, f"{type(error).__name__}: {error}"))

    def _handle(self, message: messages.FromFront) -> None:
        if isinstance(message, messages.Run):
            self.run.put(message)
        elif isinstance(message, messages.Proceed):
            self.may_proceed.set()
        elif isinstance(message, messages.Share):
            self._share = _merged(self._share, message)
            if self._serves:
                self.apply_share()
        elif isinstance(message, messages.Compile):
            self._compiling.submit(self._or_end, partial(self._attempt, self._compile, message))
        elif isinstance(message, messages.Lend):
            is_mapped = blobs.borrow(self.arena, message.blob, message.capacity)
            self.send(messages.Lent(message.id, message.blob, is_mapped))
        elif isinstance(message, messages.GiveBack):
            blobs.give_back(message.blob)
        elif isinstance(message, messages.DropGrammar) and self.instance is not None:
            self.instance.drop_grammar(message.grammar)
        elif isinstance(message, messages.Embed) and self.embedder is not None:
            self.embedder.add(message)
        elif isinstance(message, messages.OpenAdapter):
            self._opening.submit(self._or_end, partial(self._attempt, self._open_adapter, message))
        elif isinstance(message, messages.CloseAdapter) and self.instance is not None:
            self.instance.close_adapter(message.adapter)
        else:
            raise RuntimeError("nothing handles this message")

    def apply_share(self) -> None:
        """Let the engine use its share from now on. Until this is called for the first time, shares are only noted."""
        self._serves = True
        share = self._share
        if self.instance is not None and self.instance.core is not None:
            self.instance.core.share(share.n_threads, share.n_threads_batch, share.cache_ram_bytes)
        if self.embedder is not None:
            self.embedder.add(share)

    def _compile(self, request: messages.Compile) -> None:
        assert self.instance is not None
        self.send(self.instance.compile(request))

    def _open_adapter(self, request: messages.OpenAdapter) -> None:
        assert self.instance is not None
        self.send(self.instance.open_adapter(request))


def _merged(last: messages.Share, new: messages.Share) -> messages.Share:
    """Return the last share with the changes of a new one."""
    return messages.Share(
        new.n_threads or last.n_threads,
        new.n_threads_batch or last.n_threads_batch,
        new.cache_ram_bytes or last.cache_ram_bytes,
    )


def end(status: int) -> NoReturn:
    """End the process at once: a thread inside llama.cpp must neither delay the end nor see its model freed."""
    logging.shutdown()
    os._exit(status)


def _tell_of_termination(server: Server) -> None:
    """Report every SIGTERM to the front. Runs in a separate thread; all threads block the signal."""
    while True:
        signal.sigwait({signal.SIGTERM})
        server.send(messages.Terminated())


def _lost_worker(address: str) -> None:
    print(f"{process.LOST_WORKER}{address} ended its connection", file=sys.stderr, flush=True)
    end(process.EXIT_WORKER)


def _show_progress(server: Server, loading: Loading, is_loaded: threading.Event) -> None:
    shown = -1
    while not is_loaded.wait(VOCAB_SECONDS if shown < 0 else PROGRESS_SECONDS):
        if loading.permille != shown:
            shown = loading.permille
            server.send(messages.Progress(shown))


def _load(server: Server, settings: ModelSettings, start: messages.Start) -> Instance:
    loading, is_loaded = Loading(), threading.Event()
    threading.Thread(target=_show_progress, args=(server, loading, is_loaded), daemon=True).start()
    descriptors = Descriptors(process.MEMORY_FD, process.COMMAND_FD, process.EVENT_FD)

    def tell(planned: messages.Planned) -> None:
        server.send(planned)
        if start.budget is not None:
            server.may_proceed.wait()  # the front may also end this process

    try:
        return Instance(settings, descriptors, loading, tell, start.kept, start.budget, server.cache_memory)
    finally:
        is_loaded.set()


def _serve(server: Server, settings: ModelSettings, start: messages.Start) -> int:
    server.instance = instance = _load(server, settings, start)
    # Not earlier, because opening a GPU may start the driver's own program, which loads a kernel module.
    with contextlib.suppress(syscall_filter.FilterError):
        syscall_filter.no_new_privileges()
    server.send(messages.Progress(1000))
    server.send(instance.description())
    ready = instance.prepare()
    if settings.rpc:
        worker_watch.start(_lost_worker)
    instance.loaded.vocab.show_markers(server.run.get().markers)
    pools = instance.loaded.pools
    if instance.loaded.vectors is not None:
        server.embedder = Embedder(
            instance.loaded.vectors,
            server.arena,
            server.send,
            lambda: bind_caller(pools.batch if pools else None),
        )
        server.embedder.start()
    server.apply_share()
    if instance.core is None:
        server.send(ready)
        threading.Event().wait()
        return 0
    outcome: list[bool] = []
    core = instance.core

    def run() -> None:
        bind_caller(pools.decode if pools else None)
        outcome.append(core.run())

    beside = [threading.Thread(target=instance.tend_cache, name="llamad-cache", daemon=True)]
    if ready.has_device:
        more = min(PAGE_THREADS, (os.cpu_count() or 1) // 4)
        beside += [
            threading.Thread(target=core.prepare_pages, name="llamad-pages", daemon=True) for _ in range(more)
        ]
    for one in beside:
        one.start()
    thread = threading.Thread(target=run, name="llamad-engine", daemon=True)
    thread.start()
    Trimmer(lambda: core.n_idle() == settings.n_parallel).start()
    server.send(ready)
    thread.join()
    core.end_tending()
    for one in beside:
        one.join()
    instance.save()
    if outcome == [True]:
        return 0
    log.error("the context is lost and could not be rebuilt")
    return process.EXIT_LOST


def main() -> int:
    # The front ends this process; a terminal's ^C and systemd's signals are meant for the front. SIGTERM is blocked in
    # all threads, so that only the thread that waits for it gets it.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    faulthandler.enable()
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    server = Server(socket.socket(fileno=process.CONTROL_FD))
    threading.Thread(target=_tell_of_termination, args=(server,), name="llamad-signals", daemon=True).start()
    start = server.receive_start()
    settings = engine_settings.unpack(start.settings)
    logging.basicConfig(handlers=[FrontHandler()], level=logging.DEBUG if start.is_verbose else logging.INFO)
    llama_log = LlamaLog()
    llama_log.start()
    server.start()
    try:
        return _serve(server, settings, start)
    except LoadError as error:
        reason, is_refused, is_memory = (
            str(error),
            isinstance(error, FileRefused),
            isinstance(error, MemoryShort),
        )
    except Exception as error:
        traceback.print_exc()
        reason, is_refused, is_memory = (
            f"{type(error).__name__}: {error}",
            False,
            isinstance(error, MemoryError),
        )
    reason = llama_log.explained(reason)
    is_memory = is_memory or bool(llama_log.memory_error)
    server.send(messages.LoadFailed(reason, is_refused, is_memory))
    return 1
