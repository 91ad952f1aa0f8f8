"""Handles SIGHUP: reads keys, certificate and --env-file again, and reopens the log file.

Runs on the event loop; files are read in a thread. Each item is applied as a whole or kept as it was; neither ends a
connection or a stream. It must not change what an engine holds, and must not log a key.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from llamad.api.request.errors import ApiError
from llamad.api.service.auth import check_sharing, read_keys
from llamad.api.service.many_models import ManyModels
from llamad.api.service.model_table import ModelTable
from llamad.flags.settings import Settings, divided
from llamad.flags.sources import Sources
from llamad.flags.table import TABLE
from llamad.flags.types.kinds import Switch
from llamad.http.server import HttpServer
from llamad.http.tls import DAY_SECONDS, Tls
from llamad.http_settings import ask_descriptors, cors_of, limits_of, tls_of
from llamad.logs import setup as logs
from llamad.systemd import notify

T = TypeVar("T")

log = logging.getLogger("llamad.reload")

# The time limit for reading one file, because a disk that hangs must not hang the reload.
READ_SECONDS = 10.0

KEYS = frozenset({"api_keys", "api_key_file"})
TLS = frozenset({"ssl_key_file", "ssl_cert_file"})
RELOADABLE = frozenset(flag.dest for flag in TABLE.settings if flag.reload)
# The name of each setting's flag; if it has both a switch and a flag with a value, the latter.
_TITLES = {
    flag.dest: flag.title
    for flag in sorted(TABLE.settings, key=lambda flag: not isinstance(flag.kind, Switch))
}


class Reload:
    """`settings` are the current ones, `sources` is where they came from, and `tls` is what the server started with."""

    def __init__(
        self,
        settings: Settings,
        sources: Sources | None,
        models: ModelTable,
        http: HttpServer,
        tls: Tls | None,
    ) -> None:
        self._sources = sources
        parsed = sources.parsed if sources is not None else None
        self._warned = parsed.warnings if parsed is not None else []
        # The settings as they were read and applied. A change that failed is not among them, so the next reload sees it
        # again.
        self._applied = parsed.settings if parsed is not None else settings
        self._models = models
        self._service = models.service
        self._http = http
        self._tls = tls
        self._counts = models.service.metrics.reloads
        self._failed: dict[str, str] = {}  # the items that failed in the current reload, with the reasons
        self._is_requested = False
        self._task: asyncio.Task[None] | None = None
        self._counts.items = self._items(self._applied)
        self._counts.certificate_expiry = tls.expiry if tls is not None else None

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def request(self) -> None:
        """Reload now, or once more after the current reload."""
        self._is_requested = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())

    async def watch_certificate(self) -> None:
        """Warn about the certificate at the start and once a day; run until cancelled."""
        while True:
            self._show_certificate()
            await asyncio.sleep(DAY_SECONDS)

    async def _run(self) -> None:
        try:
            while self._is_requested:
                self._is_requested = False
                if self._service.is_leaving:
                    log.warning("not reloaded: the server is shutting down")
                    return
                notify.reloading()
                try:
                    await self._reload()
                finally:
                    notify.reloaded(self._counts.status)
        except Exception:
            log.exception("a reload failed inside the server")
        finally:
            self._task = None

    async def _reload(self) -> None:
        self._failed = {}
        new = self._applied
        if "env-file" in self._items(new):
            new = await self._attempt("env-file", self._read_settings()) or new
        items = self._counts.items = self._items(new)
        if "api-keys" in items:
            await self._attempt("api-keys", self._reload_keys(new))
        if "certificate" in items:
            await self._attempt("certificate", self._reload_certificate(new))
        if "models" in items:
            await self._attempt("models", self._reload_models())
        self._apply_limits(new)
        self._warn_of_others(new)
        if "log-file" in items:
            await self._attempt("log-file", self._reopen_log())
        self._counts.add(self._failed)
        if self._failed:
            log.warning("reloaded, except for %s", ", ".join(self._failed))
        else:
            log.info("reloaded")

    def _items(self, settings: Settings) -> list[str]:
        """Return the names of the items that can be reloaded."""
        items = {
            "env-file": settings.daemon.env_file is not None and self._sources is not None,
            "api-keys": bool(self._service.keys or settings.daemon.api_keys or settings.daemon.api_key_file),
            "certificate": self._tls is not None,
            "models": self._models.is_router,
            "log-file": self._applied.daemon.log_file is not None and self._applied.daemon.log_enabled,
        }
        return [name for name, is_there in items.items() if is_there]

    async def _attempt(self, item: str, work: Any) -> Any:
        """Return what `work` returns. If it fails, log that, keep the old setting and return None."""
        try:
            return await work
        except (ValueError, OSError) as error:
            reason = str(error) or repr(error)
            log.error("%s: the old one is kept: %s", item, reason)
            self._failed[item] = reason
        return None

    async def _read(self, work: Callable[[], T]) -> T:
        """Run the work in a thread of its own, so that one that never returns blocks nothing else."""
        thread = ThreadPoolExecutor(1, "llamad-reload")
        try:
            loop = asyncio.get_running_loop()
            return await asyncio.wait_for(loop.run_in_executor(thread, work), READ_SECONDS)
        except TimeoutError:
            raise ValueError(f"it could not be read within {READ_SECONDS:g} s") from None
        finally:
            thread.shutdown(wait=False)

    async def _read_settings(self) -> Settings:
        assert self._sources is not None
        parsed = await self._read(self._sources.read)
        for warning in parsed.warnings:
            if warning not in self._warned:
                log.warning("%s", warning)
        self._warned = parsed.warnings
        return parsed.settings

    async def _reload_keys(self, new: Settings) -> None:
        settings = msgspec.structs.replace(self._applied.daemon, **_picked(new, KEYS))
        keys, old = await self._read(partial(read_keys, settings)), self._service.keys
        if old and not keys:
            raise ValueError(
                "no key would be left, and the server would be open to all; restart it if that is intended"
            )
        for model in self._models:
            check_sharing(keys, model.host.settings)
        if keys and not old:
            self._http.set_cors(cors_of(self._service.settings, has_keys=True))
        self._models.set_keys(keys)
        self._apply(_picked(new, KEYS))
        added, removed = len(keys.names - old.names), len(old.names - keys.names)
        if added or removed:
            log.info("API keys: %d added, %d removed, %d in all", added, removed, len(keys.names))

    async def _reload_models(self) -> None:
        """Read the list of models again."""
        assert isinstance(self._models, ManyModels)
        try:
            await self._models.reload(self._sources.parsed if self._sources is not None else None)
        except ApiError as error:
            raise ValueError(error.message) from None

    async def _reload_certificate(self, new: Settings) -> None:
        settings = msgspec.structs.replace(self._applied.daemon, **_picked(new, TLS))
        tls = await self._read(partial(tls_of, settings))
        if tls is None:
            raise ValueError("TLS cannot be turned off; restart the server if that is intended")
        self._apply(_picked(new, TLS))
        assert self._tls is not None
        # An unchanged context stays, because clients can resume its sessions.
        if tls.digest != self._tls.digest:
            self._tls = tls
            self._counts.certificate_expiry = tls.expiry
            self._http.set_tls(tls.context)
            log.info("new certificate, valid until %s", tls.last_day)
        self._show_certificate()

    def _apply_limits(self, new: Settings) -> None:
        changes = self._apply(_picked(new, RELOADABLE - KEYS - TLS))
        if not changes:
            return
        settings = self._service.settings
        self._http.set_limits(limits_of(settings))
        if "connections_max" in changes:
            ask_descriptors(settings)
        if "verbosity" in changes:
            logging.getLogger().setLevel(logs.level_of(settings.verbosity))
            self._http.log_to(logs.access_writer(), logs.ACCESS.isEnabledFor(logging.DEBUG))
        log.info("now %s", ", ".join(f"{_TITLES[name]} {value}" for name, value in sorted(changes.items())))

    def _apply(self, values: dict[str, Any]) -> dict[str, Any]:
        """Apply the values that differ from the current ones, and return them."""
        changes = {name: value for name, value in values.items() if value != self._applied.get(name)}
        if changes:
            self._applied = self._applied.replaced(changes)
            daemon, model = divided(changes)
            self._service.settings = msgspec.structs.replace(self._service.settings, **daemon)
            if not self._models.is_router:  # a router's models get them from the catalogue
                for one in self._models:
                    one.apply(model)
        return changes

    def _warn_of_others(self, new: Settings) -> None:
        fixed = [flag.dest for flag in TABLE.settings if flag.dest not in RELOADABLE]
        if self._tls is None:
            fixed += TLS
        changed = {_TITLES[name] for name in fixed if new.get(name) != self._applied.get(name)}
        if changed:
            log.warning("changes of %s need a restart", ", ".join(sorted(changed)))

    async def _reopen_log(self) -> None:
        logs.reopen()

    def complaint(self) -> tuple[bool, str] | None:
        """Return whether clients refuse the certificate, and a sentence about it; None if all is well."""
        return self._tls.complaint(time.time()) if self._tls is not None else None

    def _show_certificate(self) -> None:
        complaint = self.complaint()
        if complaint is not None:
            is_refused, text = complaint
            log.log(logging.ERROR if is_refused else logging.WARNING, "TLS: %s", text)


def _picked(settings: Settings, dests: Iterable[str]) -> dict[str, Any]:
    return {name: settings.get(name) for name in dests}
