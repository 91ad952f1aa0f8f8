"""A model in the daemon: starts, restarts and unloads its engine process, and shows its state to endpoints.

Runs on the event loop; reading the vocabulary runs in a thread. Endpoints check `state` and never wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from llamad.flags.settings import ModelSettings
from llamad.models import stalls
from llamad.models.connections import Connections
from llamad.models.engine_process import END_SECONDS, EngineProcess
from llamad.models.engine_watch import Activity, watch, watch_load
from llamad.models.host_state import State
from llamad.models.kept_vocab import KeptVocab
from llamad.models.load_progress import LoadProgress, Stage, progress_of
from llamad.models.model_download import ModelDownload
from llamad.models.projector import make_reader
from llamad.models.rpc_wait import reach
from llamad.protocol.control_messages import (
    Budget,
    FromEngine,
    Loaded,
    LoadFailed,
    Planned,
    Proceed,
    Progress,
    Ready,
    Run,
    Share,
    Terminated,
)
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.media.messages import Opened

log = logging.getLogger("llamad.engine")

# A signal to all processes of the daemon reaches its engine and this process within this time.
TERMINATED_SECONDS = 1.0


class Host(Connections):
    """`state` says whether an engine serves. `settings` have the paths of the model's files once they are there. The
    first load() may follow at any time; after unload(), or a load that failed, load() starts another engine. `model`
    and what prepare() made of it stay meanwhile."""

    def __init__(self, settings: ModelSettings, process: EngineProcess | None = None) -> None:
        arena, cache_memory = (process.arena, process.cache_memory) if process is not None else (None, None)
        super().__init__(settings, arena, cache_memory)
        if settings.model_url is not None:  # the model's name until its file is there
            name = settings.model_url.partition("?")[0].rpartition("/")[2]
            self.settings = msgspec.structs.replace(settings, model=name)
        self._named = settings  # the settings that a download begins with
        self._reloaded: dict[str, Any] = {}  # settings that changed since the start, by name
        self.state = State.UNLOADED
        self.is_waking = False  # it is being loaded again after it slept
        self.is_changing = False  # prepare() is running, because the model's file is another one
        self.on_state: list[Callable[[Host], None]] = []  # called after each change of `state`
        self.on_progress: Callable[[], None] | None = None  # called when a load has made progress
        self.error = ""  # why the load failed, or why the last engine ended
        self.is_leaving = False  # the daemon drains, or is about to (--drain-delay-seconds)
        self.has_served = False
        self.waits_for = ""  # why an RPC worker cannot be used yet; empty if none is waited for
        self.is_refused = False  # the load failed because of a file or a worker that the command line names
        # Returns what the next engine may take; None: this is the daemon's only model, and may take all that is free.
        self.budget: Callable[[], Budget] | None = None
        # Called with the bytes by device that an engine with a budget needs, and that all models together may take.
        # The engine opens the weights when it returns. May raise LoadError.
        self.on_planned: Callable[[Mapping[str, int], Mapping[str, int]], Awaitable[None]] | None = None
        # Bytes by device of an engine with a budget: what it needs, what all models together may take, what it holds.
        self.need: Mapping[str, int] = {}
        self.capacity: Mapping[str, int] = {}
        self.measured: Mapping[str, int] = {}
        self.has_device = False  # a GPU holds nearly all of the model
        self.is_memory = False  # the load failed because there was not enough memory
        self.failed: Callable[[], None] | None = None  # called when the engine is not started again
        # Called when the engine cannot be started yet: files are downloaded first, or an RPC worker is awaited.
        self.on_delayed: Callable[[], None] = lambda: None
        self.take_process: Callable[[], EngineProcess] = EngineProcess  # starts a process, or has a spare one
        # The first engine, if it was started already. It has begun to load, too, unless files are missing.
        self._process = process
        self._fetching = ModelDownload(settings) if settings.is_remote else None  # None: the files are there
        self._markers: list[str] = []
        self._vocab = KeptVocab()
        self._kept = b""  # from the last engine's Planned message
        self._shown = -1  # the last progress of the load in percent; -1: none
        self._load_failed = ""  # the reason in the engine's LoadFailed message
        self._t_heard = 0.0  # time of the engine's last message
        self._awaited: Stage | None = None  # the engine waits for this process, in this stage of the load
        self._inbox: asyncio.Queue[FromEngine] = asyncio.Queue()
        self._settled: asyncio.Future[None] | None = None
        self._supervising: asyncio.Task[None] | None = None
        self._unloading: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[Opened] | None = None  # opens the projector

    def expect_load(self) -> None:
        """Show the model as loading from now on, because load() follows soon."""
        if self.state is State.UNLOADED:
            self._set_state(State.LOADING)

    async def load(self) -> None:
        """Start an engine, and another whenever it ends. Return once it serves or has failed; nothing is raised. If it
        is loading or serves already, nothing more is started."""
        await asyncio.shield(self.begin_load())

    def begin_load(self) -> asyncio.Future[None]:
        """Begin what load() does. The future is done once the model serves or has failed, or is unloaded."""
        if self._settled is None or (not self._is_draining and not self._is_supervised):
            self._settled = settled = asyncio.get_running_loop().create_future()
            self.is_waking = self.state is State.SLEEPING
            self.error, self.waits_for, self.is_refused = "", "", False
            self.restarts.forgive()
            if not self._is_draining:
                self._set_state(State.LOADING)
            self._supervising = asyncio.ensure_future(self._supervise(self._unloading))
            self._supervising.add_done_callback(lambda _: self._settle(settled))
        return self._settled

    async def unload(self, state: State = State.UNLOADED, seconds: float | None = None) -> None:
        """End the engine and the processes that read media, and return when they have ended. The engine is asked to end
        first, and killed after `seconds` (None: the usual time). Requests in flight fail, and a load in progress is
        given up. `state` is shown from now on. load() may be called meanwhile: it waits for the end."""
        if self._is_draining:
            return  # close() ends the engine
        supervising, self._supervising = self._supervising, None
        self.is_waking = False
        self._set_state(state)
        self._unloading = asyncio.ensure_future(self._unload(self._unloading, supervising, seconds))
        await asyncio.shield(self._unloading)

    @property
    def progress(self) -> LoadProgress:
        """The progress of the load."""
        stage: Stage = "workers" if self.waits_for else self._awaited or "load"
        return progress_of(self._fetching, stage, self._shown)

    def fail(self, error: str) -> None:
        """Note that the model cannot be served. The daemon keeps running and answers requests with this reason."""
        self.error = error
        log.error("%s%s", self.prefix, error)
        self.is_waking = False
        self.fail_waiting()
        if self._is_draining:
            return
        self._set_state(State.FAILED)
        if self.failed is not None:
            self.failed()

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self.is_leaving = True
        is_loading = self.state is State.LOADING
        self._set_state(State.DRAINING)
        self.fail_waiting(is_stopped=True)
        if self._fetching is not None:
            self._fetching.cancel()
        if self._process is not None and is_loading:
            self._process.end()

    async def close(self) -> None:
        """End the engine, and return when it has ended. Requests in flight fail."""
        if not self._is_draining:
            self.drain()  # so that no other engine is started
        if self._unloading is not None:
            await asyncio.wait([self._unloading])
        await self._end_engine(self._supervising)
        self.close_connections()
        await asyncio.sleep(0)  # requests that wait for the embedder can still respond

    async def _unload(
        self,
        before: asyncio.Task[None] | None,
        supervising: asyncio.Task[None] | None,
        seconds: float | None,
    ) -> None:
        """Do what unload() says, after the last such call has ended (`before`)."""
        if before is not None:
            await asyncio.wait([before])
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = ModelDownload(self._named)
        await self._end_engine(supervising, seconds)
        self.fail_waiting(is_stopped=True)
        if self.media is not None:
            await self.media.stop()

    async def _end_engine(self, supervising: asyncio.Task[None] | None, seconds: float | None = None) -> None:
        """End the engine and the task that supervises it, and return when both have ended."""
        is_asked = self.engine is not None and self.engine.is_connected
        if self.engine is not None:
            self.engine.stop()
        if self._process is not None:
            writes = self.settings.lookup_cache_dynamic is not None
            await self._process.stop(is_asked=is_asked, writes=writes, seconds=seconds)
        # Not earlier, because this task waits for the engine's end.
        if supervising is not None:
            supervising.cancel()
            await asyncio.wait([supervising])
        self._process = None  # it is still set if its engine was never attached
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

    @property
    def _is_draining(self) -> bool:
        return self.state is State.DRAINING

    @property
    def _is_supervised(self) -> bool:
        return self._supervising is not None and not self._supervising.done()

    @property
    def _is_wanted(self) -> bool:
        """Whether the engines of the current task, which supervises them, are still wanted."""
        return self._supervising is asyncio.current_task() and not self._is_draining

    def _set_state(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            for call in self.on_state:
                call(self)

    def apply(self, changes: Mapping[str, Any]) -> None:
        """Apply limits that a reload has changed. None of them is used by the running engine; the next one gets them,
        too."""
        self._reloaded |= changes
        self.settings = msgspec.structs.replace(self.settings, **changes)
        self.apply_limits()

    # Start and end of engines.

    async def _fetch(self) -> bool:
        """Download the model's files if they are remote. Return False if that failed."""
        if self._fetching is not None:
            self.on_delayed()
            try:
                self.settings = msgspec.structs.replace(await self._fetching.run(), **self._reloaded)
            except LoadError as error:
                if self._is_wanted:
                    self.is_refused = True
                    self.fail(str(error))
                return False
            self._fetching = None
            self.media = make_reader(self.settings, self.arena)
        return True

    async def _reach_workers(self) -> bool:
        """Wait for the RPC workers, if the flags name any. Return False if something else listens there."""
        if self.settings.rpc:
            try:
                await reach(self.settings.rpc, self._on_waiting, is_patient=self.model is not None)
            except LoadError as error:
                self.is_refused = True
                self.fail(str(error))
                return False
            self.waits_for = ""
        return True

    def _on_waiting(self, reason: str) -> None:
        if not self.waits_for:
            self.restarts.forgive()  # the engines ended because a worker is gone
            self.fail_waiting()  # nobody knows when it comes back
        self.waits_for = reason
        self.on_delayed()

    async def _supervise(self, unloading: asyncio.Task[None] | None) -> None:
        if unloading is not None:
            await asyncio.wait([unloading])
        self._opening = None  # the last load may have failed to open the projector
        has_files = self._is_wanted and await self._fetch()
        while has_files and await self._reach_workers() and self._is_wanted:
            served = None
            try:
                served, reason = await self._run_engine()
            except LoadError as error:  # a new process would fail in the same way
                if self._supervising is asyncio.current_task():
                    self.fail(str(error))
                break
            except OSError as error:
                reason = f"it cannot be started: {error.strerror or error}"
            except Exception as error:  # a bug must not leave the daemon loading for ever
                log.exception("starting the engine failed")
                reason = f"{type(error).__name__}: {error}"
            if not self._is_wanted:
                break
            self.error = f"the model's engine ended: {reason}"
            delay = self.restarts.delay(served)
            if delay is None:
                self.fail(f"{self.error}; {self.restarts.reason()}, so it is not started again")
                break
            self._set_state(State.RESTARTING if self.model is not None else State.LOADING)
            pause = f" in {delay:g} s" if delay else ""
            log.error("%s%s; starting it again%s", self.prefix, self.error, pause)
            await asyncio.sleep(delay)

    def _settle(self, settled: asyncio.Future[None]) -> None:
        """Note that a load has ended, in whatever way."""
        if settled is self._settled:
            self.is_waking = False
        if not settled.done():
            settled.set_result(None)

    async def _run_engine(self) -> tuple[float | None, str]:
        """Run one engine from its start to its end. Return how long it served (None: it never did) and why it ended.
        Raises LoadError, OSError."""
        process = self._process
        if process is None:
            self._process = process = self.take_process()
        process.prefix = self.prefix
        if not process.has_begun:
            budget = self.budget() if self.budget is not None else None
            process.begin(self.settings, self._kept, self.arena, budget, self.cache_memory)
        self._inbox = asyncio.Queue()
        self._shown, self._load_failed, self.is_memory = -1, "", False
        self.need, self.measured = {}, {}
        self._t_heard = t_start = time.monotonic()
        t_ready = None
        ended = await process.attach(self._on_message)
        starting = asyncio.ensure_future(self._start(process))
        # llama.cpp waits for a silent worker for ever, but other engines may be silent while they read a slow disk.
        limit = max(stalls.STALL_SECONDS_MIN, self.settings.engine_stall_seconds)
        activity = None if self.settings.rpc else Activity(process.pid)
        watching = asyncio.ensure_future(watch_load(process, limit, self._heard, activity))
        try:
            both: list[asyncio.Future[Any]] = [starting, ended]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            # If the engine has ended, the start failed because of that, unless it failed with a LoadError.
            if not ended.done() or (starting.done() and isinstance(starting.exception(), LoadError)):
                starting.result()
                t_ready = time.monotonic()
                if self._supervising is asyncio.current_task():
                    self._serving(t_ready - t_start)
                watching.cancel()
                watching = asyncio.ensure_future(watch(process, self.silence))
            reason = await ended
            if self._load_failed:
                raise LoadError(self._load_failed)
        except BaseException:
            process.end()
            raise
        finally:
            starting.cancel()
            watching.cancel()
            self._process = None
            self._shown, self.need, self.measured = -1, {}, {}
            if self.state is State.READY and self._is_wanted:
                self._set_state(State.RESTARTING)
            self.disconnect(is_stopped=not self._is_wanted)
        return (time.monotonic() - t_ready if t_ready is not None else None), reason

    def _heard(self) -> float:
        """Return the time of the engine's last message; one that waits for this process is not silent."""
        return time.monotonic() if self._awaited is not None else self._t_heard

    async def _start(self, process: EngineProcess) -> None:
        """Exchange messages with the engine until it serves."""
        control = process.control
        assert control is not None
        numpy = self.import_numpy()
        while not isinstance(message := await self._inbox.get(), Loaded | LoadFailed):
            if isinstance(message, Planned) and message.need:
                await self._reserve(message)
                control.send(Proceed())
            if isinstance(message, Planned) and self.media is not None and self._opening is None:
                # Not earlier, because the engine measures the free memory of a GPU, and has counted the projector.
                self._opening = asyncio.ensure_future(self.media.open())
            if isinstance(message, Progress) and not self._vocab.is_there:
                await self._vocab.try_read(self.settings)  # while the engine opens the device and the weights
        if isinstance(message, LoadFailed):
            raise LoadError(message.reason)
        with self._waited_for():
            await self._vocab.read(self.settings)
            await self._describe(message)
            await self._open_projector()
        control.send(Run(self._markers))
        while isinstance(ready := await self._inbox.get(), Progress | Planned):
            pass  # these messages may still arrive
        if isinstance(ready, LoadFailed):
            raise LoadError(ready.reason)
        assert isinstance(ready, Ready)
        self.measured, self.has_device = ready.measured, ready.has_device
        await numpy
        await self.connect_all(process.descriptors, control, message, ready)
        await self.show_engine()

    async def _reserve(self, planned: Planned) -> None:
        """Return when the engine may open the weights. Raises LoadError."""
        self.need, self.capacity = planned.need, planned.capacity
        if self.on_planned is not None:
            with self._waited_for("memory"):
                await self.on_planned(planned.need, planned.capacity)

    @contextmanager
    def _waited_for(self, stage: Stage = "load") -> Iterator[None]:
        """Note that the engine waits for this process."""
        self._awaited = stage
        try:
            yield
        finally:
            self._awaited = None
            self._t_heard = time.monotonic()

    def share(self, n_threads: int = 0, n_threads_batch: int = 0, cache_ram_bytes: int = 0) -> None:
        """Set the part of the machine that the engine uses, if there is one; 0 changes nothing. Each new engine must be
        told again."""
        if self._process is not None and self._process.control is not None:
            self._process.control.send(Share(n_threads, n_threads_batch, cache_ram_bytes))

    @property
    def has_engine(self) -> bool:
        """Whether there is an engine process, which owns the entries of the cache memory then."""
        return self._process is not None

    def _on_message(self, message: FromEngine) -> None:
        self._t_heard = time.monotonic()
        if isinstance(message, Terminated):
            loop = asyncio.get_running_loop()
            loop.call_later(TERMINATED_SECONDS, self._end_terminated, self._process)
            return
        if isinstance(message, Progress):
            if message.permille // 10 != self._shown:
                self._shown = message.permille // 10
                log.info("%sloading model: %d %%", self.prefix, self._shown)
                if self.on_progress is not None:
                    self.on_progress()
            if self._vocab.is_there:
                return
        if isinstance(message, Planned):
            self._kept = message.kept
        if isinstance(message, LoadFailed):
            self._load_failed = message.reason
            self.is_refused, self.is_memory = message.is_refused, message.is_memory
        self._inbox.put_nowait(message)

    def _end_terminated(self, process: EngineProcess | None) -> None:
        """End an engine that got a SIGTERM, unless the daemon got one, too: then it ends the engine after its drain."""
        if process is not None and not self.is_leaving:
            process.kill("it got a SIGTERM")

    async def _open_projector(self) -> None:
        if self._opening is None:
            return
        from llamad.media.reader import ProjectorError  # only with a projector

        try:
            await asyncio.shield(self._opening)
        except ProjectorError as error:
            self.is_refused = True
            raise LoadError(f"--mmproj {self.settings.mmproj}: {error}") from None

    async def _describe(self, loaded: Loaded) -> None:
        """Make the model that the endpoints see, unless it has not changed."""
        self.adapters.opened(loaded.adapters)
        model = loaded.model(self._vocab.vocab)
        if model == self.model:
            return
        self.is_changing = True
        try:
            self._markers = await asyncio.get_running_loop().run_in_executor(None, self.prepare_users, model)
            self.model = model
        finally:
            self.is_changing = False

    def _serving(self, seconds: float) -> None:
        assert self.model is not None
        assert self._settled is not None
        self.has_served = True
        self.error = ""
        if not self._is_draining:
            self._set_state(State.READY)
        log.info(
            "%smodel ready in %.1f s: %s, %d slots of %d tokens%s",
            self.prefix,
            seconds,
            self.model.info.description,
            self.settings.n_parallel,
            self.model.n_ctx_slot,
            f", drafts: {self.spec_types}" if self.spec_types else "",
        )
        self._settle(self._settled)

    def kill(self, reason: str) -> None:
        if self._process is not None:
            self._process.kill(reason)

    @property
    def is_stuck(self) -> bool:
        """Whether an engine hangs and could not be ended."""
        silent, limit = self.silence()
        return silent > limit + END_SECONDS
