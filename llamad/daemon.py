"""The daemon's life cycle: listen, load, serve, drain, exit. This is the only file that knows every layer.

Runs on the main thread. The first signal starts the drain; the second exits at once.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import time
from pathlib import Path

from llamad.api.app import Api
from llamad.api.service.auth import check_sharing, read_keys
from llamad.api.service.idle_sleep import sleep_when_idle
from llamad.api.service.many_models import ManyModels
from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.base.memory_trim import Trimmer, keep_large_blocks_apart
from llamad.flags.parse import Parsed
from llamad.flags.settings import DaemonSettings, Settings
from llamad.flags.sources import Sources
from llamad.http.binding import Bound, refusal
from llamad.http.server import HttpServer
from llamad.http_settings import ask_descriptors, cors_of, limits_of, proxies_of, tls_of
from llamad.logs.setup import ACCESS, access_writer, on_reopen_signal
from llamad.models.cache_disk.disk_cache import DiskCache
from llamad.models.cache_disk.folder import FolderError
from llamad.models.engine_process import EngineProcess
from llamad.models.fleet.effects import Limits as SchedulerLimits
from llamad.models.fleet.fleet import Fleet
from llamad.models.fleet.scheduler import Scheduler
from llamad.models.fleet.shares import Shares
from llamad.models.host import Host
from llamad.models.spare_engine import SpareEngine
from llamad.reload import Reload
from llamad.systemd import exit_codes, notify
from llamad.systemd.heartbeat import Heartbeat

log = logging.getLogger("llamad")

DRAIN_POLL_SECONDS = 0.02
# After this time without requests, connections are considered idle: a client that has just connected, or that was about
# to use an idle connection, has sent its request by then.
QUIET_SECONDS = 1.0
# How long prompts that are not on disk yet may delay the exit.
DISK_SECONDS = 10.0


class StartError(Exception):
    """One line that says why the daemon cannot start and what to do, with the exit status."""

    def __init__(self, reason: str, exit_code: int = exit_codes.FAILED) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def build_info() -> str:
    """Return the `b<build number>-<short hash>` of llama.cpp that was recorded at build time."""
    path = Path(__file__).parent / "_build_info.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["llama_cpp"]["build_info"])
    except (OSError, ValueError, KeyError):
        return "b0-unknown"


def _disk_cache(settings: DaemonSettings) -> DiskCache | None:
    """Return the prompt cache on disk, or None without one. Raises ValueError if its folder cannot be used."""
    if settings.cache_disk is None:
        return None
    try:
        return DiskCache(settings.cache_disk, settings.cache_disk_bytes)
    except FolderError as error:
        raise ValueError(f"--cache-disk: {error}") from None


class Daemon:
    """The front process. Tests with their own model pass `host`. `engine` is an engine process that was already
    started, `bound` has the listening sockets, and a reload reads `sources` again."""

    def __init__(
        self,
        settings: Settings,
        host: Host | None = None,
        engine: EngineProcess | None = None,
        bound: Bound | None = None,
        sources: Sources | None = None,
    ) -> None:
        self._bound = bound
        self._is_inherited = bound is not None and bound.is_inherited
        self.spare = SpareEngine()
        try:
            self.service = Service(settings.daemon, build_info(), _disk_cache(settings.daemon))
            self.models: ModelTable
            if sources is not None and sources.parsed is not None and sources.is_router:
                self.models = self._many_models(sources.parsed, engine)
            else:
                self.models = self._one_model(settings, host, engine)
            keys, tls = read_keys(settings.daemon), tls_of(settings.daemon)
            check_sharing(keys, settings.model)
            self.api = Api(self.models, keys)
            self.http = HttpServer(
                self.api,
                limits_of(settings.daemon),
                cors_of(settings.daemon, bool(keys)),
                access_writer(),
                tls.context if tls is not None else None,
                log_quiet=ACCESS.isEnabledFor(logging.DEBUG),
                proxies=proxies_of(settings.daemon),
                budget=self.service.budget,
            )
        except ValueError as error:
            raise StartError(str(error)) from None
        self.heartbeat = Heartbeat(self.models, self.http)
        self.reload = Reload(settings, sources, self.models, self.http, tls)
        self.address = ""
        self._stop = asyncio.Event()
        self._exit_code = exit_codes.OK
        self._had_terminal = os.isatty(2)

    def _one_model(self, settings: Settings, host: Host | None, engine: EngineProcess | None) -> ModelTable:
        """Return the table of the only model. Raises StartError, ValueError."""
        try:
            host = host or Host(settings.model, engine)
        except OSError as error:
            raise StartError(f"--step-trace {settings.model.step_trace}: {error.strerror}") from None
        host.failed = lambda: self._on_failed(host)
        self.spare.add(host)
        return ModelTable(self.service, [ServedModel(self.service, host)])

    def _many_models(self, parsed: Parsed, engine: EngineProcess | None) -> ModelTable:
        """Return the table of a router, whose first model gets the engine process that was started. Raises
        CatalogueError."""
        flags = parsed.settings.daemon
        memory_max = flags.models_memory_max << 20
        limits = SchedulerLimits(
            models_max=flags.models_max,
            wait_seconds=flags.models_wait_seconds,
            queue_max=flags.models_queue_max,
        )
        if engine is not None:
            self.spare.give(engine)
        shares = Shares(parsed.settings.model.cache_ram)
        fleet = Fleet(Scheduler(limits, memory_max), shares, memory_max)
        return ManyModels(self.service, parsed, fleet, self.spare)

    @property
    def host(self) -> Host:
        """Return the host of the only model."""
        return next(iter(self.models)).host

    @property
    def settings(self) -> DaemonSettings:
        """Return the current settings, some of which a reload may have changed."""
        return self.service.settings

    async def start(self) -> None:
        """Listen first, so that /health responds at once; the model loads in the background. On inherited sockets,
        clients wait until the model serves, as they would for the next daemon, because a 503 would turn them away."""
        ask_descriptors(self.settings)
        self.models.expect_load()
        if self._is_inherited:
            log.info("connections wait in the inherited sockets until the model serves")
        else:
            await self._listen()

    async def _listen(self) -> None:
        try:
            self.address = await self.http.listen(self.settings.hosts, self.settings.port, self._bound)
        except OSError as error:
            raise StartError(refusal(error), exit_codes.LISTEN_FAILED) from None
        log.info("listening on %s", self.address)

    def stop(self) -> None:
        """Start draining; if called again, exit at once."""
        if self._stop.is_set():
            log.warning("second signal: exiting now")
            os._exit(exit_codes.FAILED)
        log.info("draining: grace period of %g s for running requests", self.settings.drain_seconds)
        self.service.is_leaving = True
        self.models.leave()
        notify.stopping(self.heartbeat.status())
        self.http.end_keep_alive()
        if not self._serves_on:
            self.refuse()
        self._stop.set()

    def refuse(self) -> None:
        """Admit no request from now on."""
        self.service.is_leaving = self.service.is_draining = True
        self.models.drain()

    def _on_hangup(self) -> None:
        """Reload. If the terminal was closed, stop instead, as any program does."""
        if self._had_terminal and not os.isatty(2):
            self.stop()
        else:
            self.reload.request()

    @property
    def _serves_on(self) -> bool:
        """Return whether new requests are still served for a while: until load balancers have seen /health, or on
        connections that were accepted from an inherited socket, whose clients know of no other daemon."""
        is_ready = self.models.is_ready or any(one.accepts for one in self.models)
        has_reason = self.settings.drain_delay_seconds > 0 or self._is_inherited
        return is_ready and self.service.is_leaving and has_reason

    def _on_failed(self, host: Host) -> None:
        """The only model failed: exit if a supervisor waits for the status; otherwise /health shows it."""
        if host.is_refused:
            reason = "what the command line names cannot be served"
        elif self.settings.exit_on_load_failure:
            reason = "--exit-on-load-failure"
        elif notify.is_supervised():
            reason = "systemd waits"
        else:
            return
        if host.has_served:
            self._give_up(exit_codes.ENGINE_GIVEN_UP, reason)
        else:
            self._give_up(exit_codes.FAILED if host.is_refused else exit_codes.LOAD_FAILED, reason)

    def _give_up(self, exit_code: int, reason: str) -> None:
        self._exit_code = exit_code
        log.error("exiting with status %d: %s", exit_code, reason)
        notify.stopping(self.heartbeat.status())
        self._stop.set()

    async def run(self) -> int:
        """Serve until stopped. Returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGUSR1, on_reopen_signal)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        if self.service.disk is not None:
            self.service.disk.start()
        await self.start()
        background = [
            asyncio.ensure_future(self._load()),
            asyncio.ensure_future(self.service.watch_streams()),
            asyncio.ensure_future(self.heartbeat.run()),
            asyncio.ensure_future(self.reload.watch_certificate()),
            *(asyncio.ensure_future(sleep_when_idle(one)) for one in self.models if one.gate is None),
        ]
        trimmer = Trimmer(self.service.is_quiet, self.service.free_garbage)
        keep_large_blocks_apart()
        trimmer.start()
        await self._stop.wait()
        trimmer.stop()
        await self.drain()
        await self.close()
        for task in background:
            task.cancel()
        return self._exit_code

    async def _load(self) -> None:
        await self.models.load()
        if self._is_inherited and not self._stop.is_set():
            try:
                await self._listen()
            except StartError as error:
                self._give_up(error.exit_code, str(error))
                return
        if self.models.is_ready:
            notify.ready(self.heartbeat.status())
        self.spare.begin()
        # Objects that exist now live until the end, so scanning them for garbage would only stall every stream.
        gc.freeze()

    async def drain(self) -> None:
        """Let running requests finish. The daemon's own sockets stay open meanwhile, so that /health shows the state.
        New clients of an inherited socket are left to the next daemon."""
        if self._serves_on:
            await asyncio.sleep(self.settings.drain_delay_seconds)
            if not self._is_inherited:
                self.refuse()
        if self._is_inherited:
            self.http.stop_accepting()
        t_begin = time.monotonic()
        t_quiet = t_begin + QUIET_SECONDS if self._serves_on else t_begin
        t_end = t_begin + self.settings.drain_seconds
        while (now := time.monotonic()) < t_end:
            if not self.http.n_active and (not self.http.n_connections or now >= t_quiet):
                break
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def close(self) -> None:
        self.http.stop_listening()
        if not self.service.is_draining:
            self.refuse()
        self.spare.close()
        await self.models.end_engines()  # requests that still run get an error
        if self.service.disk is not None:
            await self.service.disk.finish(DISK_SECONDS)
        await self.http.close(0.2)
        self.models.close()
        self.api.close()
