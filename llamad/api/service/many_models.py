"""The models of a router: the catalogue, the engines that serve it, and which model a request is for.

Used on the event loop; files are read in threads. served_models.py makes the models from the entries of the catalogue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import msgspec

from llamad.api.request.errors import ApiError, bad
from llamad.api.service.adapters import JOINT
from llamad.api.service.auth import Keys
from llamad.api.service.model_name import with_name
from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.api.service.served_models import ServedModels
from llamad.api.service.service import Service
from llamad.flags.parse import Parsed
from llamad.http.exchange import Exchange
from llamad.http.request import Request
from llamad.models.catalogue.catalogue import Catalogue, difference, download_settings
from llamad.models.catalogue.catalogue import read as read_catalogue
from llamad.models.catalogue.entry import Entry
from llamad.models.catalogue.errors import CatalogueError
from llamad.models.catalogue.heads import Heads, ModelHead
from llamad.models.fleet.downloads import Downloads
from llamad.models.fleet.fleet import Fleet
from llamad.models.fleet.model_events import ModelEvents
from llamad.models.host_state import State
from llamad.models.hub.cache import HubCache, hub_folder
from llamad.models.hub.errors import HubError
from llamad.models.hub.names import split_name
from llamad.models.spare_engine import SpareEngine

log = logging.getLogger("llamad.models")

PROGRESS_SECONDS = 0.2  # the progress of a load is told this often
_STATUS = {
    State.READY: "loaded",
    State.SLEEPING: "sleeping",
    State.LOADING: "loading",
    State.RESTARTING: "loading",
}


class ManyModels(ModelTable):
    """`parsed` is the command line that the catalogue comes from. Raises CatalogueError."""

    is_router = True

    def __init__(self, service: Service, parsed: Parsed, fleet: Fleet, spare: SpareEngine) -> None:
        super().__init__(service, [])
        self.fleet = fleet
        self.events = ModelEvents()
        self.downloads = Downloads(self.events)
        self._heads = Heads()
        self._modalities: dict[str, tuple[str, ...]] = {}  # by the id of the entry
        self._head_of: dict[str, ModelHead | None] = {}
        self.catalogue = self._read(parsed)
        self._parsed = parsed
        self._served = ServedModels(service, fleet, spare, self._again)
        self._told: dict[str, str] = {}  # the status that readers of events know
        self._t_progress: dict[str, float] = {}  # when they were told the progress of a load, by engine
        self.info: Callable[[Entry], dict[str, Any]] | None = None  # describes a model for them
        self._reloading = asyncio.Lock()
        self._leaving: set[str] = set()  # the ids of models whose files are about to be removed
        self._tasks: set[asyncio.Task[None]] = set()
        self.downloads.ended = self._reload_quietly
        fleet.changed = self._on_changed
        fleet.progressed = self._on_progress
        fleet.n_models = len(self.catalogue.entries)
        spare.has_more = lambda: len(self._served) < len(self.catalogue.entries)

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    def _read(self, parsed: Parsed) -> Catalogue:
        """Read the catalogue, and what projectors say of its models. Any thread. Raises CatalogueError."""
        catalogue = read_catalogue(parsed, os.environ)
        for warning in catalogue.warnings:
            log.warning("%s", warning)
        for entry in catalogue.entries.values():
            self._modalities[entry.id] = self._heads.modalities(entry.settings)
            for warning in entry.warnings:
                log.warning("%s: %s", entry.id, warning)
            if entry.reason:
                log.error("%s is disabled: %s", entry.id, entry.reason)
        return catalogue

    # Which model a request is for.

    def of(self, request: Request) -> ServedModel:
        """Return the model that the query of a request names, or the default. Raises ApiError."""
        return self.served(self.entry(request.query.get("model")))

    def with_model(self, exchange: Exchange, then: Callable[[ServedModel, Exchange], None]) -> None:
        with_name(self.service, exchange, lambda name: then(self._served_for(exchange, name), exchange))

    def _served_for(self, exchange: Exchange, name: str | None) -> ServedModel:
        """Return the model that a request names. Its line in the access log has the model, also if it is refused.
        Raises ApiError; without a key it names no file."""
        entry = self.entry(name)
        exchange.details = lambda: (("model", entry.id),)
        try:
            return self.served(entry)
        except ApiError as error:
            if self.service.has_key(exchange.request):
                raise
            reason = f"The model '{entry.id}' cannot be served; see the server's log"
            raise ApiError(error.status, reason) from None

    def entry(self, name: str | None) -> Entry:
        """Return the entry of a model by its name or alias, or by that of one of its adapters. Raises ApiError."""
        name = name or self.catalogue.default_model
        if not name:
            raise bad(
                "model name is missing from the request; GET /models lists the models, and default-model in the [*]"
                " section of --models-preset chooses one"
            )
        entry = self.catalogue.find(name)
        if entry is None and JOINT in name:
            entry = self.catalogue.find(name.rpartition(JOINT)[0])
        if entry is None:
            raise ApiError(404, f"model '{name[:256]}' not found; GET /models lists the models")
        return entry

    def known(self, entry: Entry) -> ServedModel | None:
        """Return the model of an entry if it was needed before."""
        return self._served.get(entry.id)

    def served(self, entry: Entry) -> ServedModel:
        """Return the model of an entry. Raises ApiError if the entry is wrong."""
        served = self._served.get(entry.id)
        if served is None:
            reason = entry.reason or self._served.make(self.catalogue, entry)
            if reason:
                raise ApiError(500, f"The model '{entry.id}' cannot be served: {reason}")
            served = self._served[entry.id]
        return served

    def _again(self, name: str) -> ServedModel | None:
        """Return the model that has this name now, or None if there is none any more."""
        entry = self.catalogue.find(name)
        return self.served(entry) if entry is not None else None

    # Status.

    def modalities(self, entry: Entry) -> tuple[str, ...]:
        """Return what a model reads, loaded or not."""
        return self._modalities.get(entry.id, ("text",))

    def head(self, entry: Entry) -> ModelHead | None:
        """Return what the file of a model says, or None if it is not known (yet)."""
        return self._head_of.get(entry.id)

    def status(self, entry: Entry) -> str:
        served = self.known(entry)
        return "unloaded" if served is None else _STATUS.get(served.host.state, "unloaded")

    def is_running(self, entry: Entry) -> bool:
        """Whether the model is loaded or about to be."""
        served = self.known(entry)
        return served is not None and served.gate is not None and served.gate.is_running

    def engine_id(self, entry: Entry) -> str:
        """Return the id of the engine that serves an entry. Raises ApiError if the entry is wrong."""
        gate = self.served(entry).gate
        assert gate is not None
        return gate.engine_id

    def failure(self, entry: Entry) -> tuple[str, int]:
        """Return why the model cannot be loaded, and the exit status of its engine; an empty text if it can."""
        reason = entry.reason or self._served.why_not(entry.id)
        served = self.known(entry)
        if not reason and served is not None and served.gate is not None:
            failure = self.fleet.failure(served.gate.engine_id)
            reason = served.host.error if served.host.state is State.FAILED else failure
        return reason, 1 if reason else 0

    def _on_changed(self, engine_id: str) -> None:
        """Tell the readers of events about an engine whose state has changed."""
        for entry in self._of_engine(engine_id):
            status = self.status(entry)
            if self._told.get(entry.id, "unloaded") == status:
                continue
            self._told[entry.id] = status
            data: dict[str, object] = {"status": status}
            if status == "unloaded":
                data["exit_code"] = self.failure(entry)[1]
            elif status == "loaded" and self.info is not None:
                data["info"] = self.info(entry)
            self.events.tell(entry.id, "status_change", data)

    def _on_progress(self, engine_id: str) -> None:
        """Tell the readers of events how far a load is."""
        now = time.monotonic()
        if not self.events.has_readers or now - self._t_progress.get(engine_id, 0.0) < PROGRESS_SECONDS:
            return
        self._t_progress[engine_id] = now
        value = (self.fleet[engine_id].host.progress.percent or 0) / 100
        progress = {"stages": ["text_model"], "current": "text_model", "value": value}
        for entry in self._of_engine(engine_id):
            self.events.tell(entry.id, "status_change", {"status": "loading", "progress": progress})

    def _of_engine(self, engine_id: str) -> list[Entry]:
        """Return the models that an engine serves."""
        engine_of = self._served.engine_of()
        return [one for id, one in self.catalogue.entries.items() if engine_of.get(id) == engine_id]

    # Changes of the catalogue.

    async def reload(self, parsed: Parsed | None = None) -> None:
        """Read the catalogue again, with another command line if it is given. Models that it has no longer finish their
        requests and leave; so do those that need another engine, which is started when they are needed. Raises
        ApiError if the catalogue cannot be read; then the old one stays."""
        # A client that leaves must not cancel it halfway.
        await asyncio.shield(self._spawn(self._reload(parsed)))

    async def _reload(self, parsed: Parsed | None) -> None:
        async with self._reloading:
            self._parsed = parsed or self._parsed
            try:
                new = await asyncio.get_running_loop().run_in_executor(None, self._read, self._parsed)
            except CatalogueError as error:
                raise ApiError(500, f"The old list of models is kept: {error}") from None
            await self._change(_without(new, self._leaving))
        self.events.tell("*", "models_reload")
        self._spawn(self._read_heads())

    async def _reload_quietly(self) -> None:
        try:
            await self.reload()
        except ApiError as error:
            log.error("%s", error.message)

    async def _change(self, new: Catalogue) -> list[asyncio.Task[None]]:
        """Replace the catalogue. Return the tasks that remove engines which are not needed any more."""
        old, changes = self.catalogue, difference(self.catalogue, new)
        await self._served.prepare(old, new, changes)
        # Nothing is awaited from here on, so that no request meets half of the change.
        tasks = self._served.change(old, new, changes)
        self.catalogue = new
        self._told = {id: status for id, status in self._told.items() if id in self._served}
        for id in changes.removed:
            self.events.tell(id, "model_remove")
        self.fleet.n_models = len(new.entries)
        return tasks

    async def begin_download(self, name: str) -> None:
        """Begin to download a model of a hub. Raises ApiError if the hub has no such model."""
        settings = download_settings(self._parsed, name)
        if name in self._leaving:
            raise bad(f"{name} is being removed; download it when GET /models does not list it any more")
        try:
            await self.downloads.check(settings)
        except HubError as error:
            raise bad(str(error)) from None
        if name not in self.downloads:
            self.downloads.start(name, settings)

    async def remove_files(self, name: str) -> None:
        """Remove the files of a model in the cache, after its requests have ended, or those of a download that did not
        end. Raises ApiError. A client that leaves does not cancel it."""
        await asyncio.shield(self._spawn(self._remove_files(name)))

    async def _remove_files(self, name: str) -> None:
        is_partial = name in self.downloads
        if is_partial:
            await self.downloads.cancel(name)
        entry = self.catalogue.entries.get(name)
        if (entry is None and not is_partial) or (entry is not None and entry.source != "cache"):
            raise ApiError(500, f"model '{name[:256]}' is not in the cache, so it cannot be removed")
        repo, quant = split_name(name)
        if entry is None and not quant and any(id.startswith(f"{repo}:") for id in self.catalogue.entries):
            return  # the folder holds other models, too; what has arrived is used by the next download
        remove = partial(HubCache(hub_folder(os.environ)).remove, repo, quant)
        group = {one.id for one in self.catalogue.entries.values() if entry and one.engine == entry.engine}
        self._leaving |= group
        try:
            async with self._reloading:
                tasks = await self._change(_without(self.catalogue, group))
            if tasks:  # requests may take long, and reloads must not wait for them
                await asyncio.wait(tasks)
            await asyncio.get_running_loop().run_in_executor(None, remove)
        except (HubError, OSError) as error:
            raise ApiError(500, str(error)) from None
        finally:
            self._leaving -= group
            await self.reload()

    # The life of the engines.

    @property
    def is_ready(self) -> bool:
        return True

    def expect_load(self) -> None:
        """Nothing is loaded before it is needed."""

    async def load(self) -> None:
        if not self.catalogue.entries:
            log.warning(
                "there are no models yet: `llamad pull USER/MODEL` downloads one, --models-dir FOLDER serves those of a"
                " folder"
            )
        self.load_on_startup()
        self._spawn(self._read_heads())

    async def _read_heads(self) -> None:
        """Read what the files say of models that are not loaded."""
        loop = asyncio.get_running_loop()
        for entry in list(self.catalogue.entries.values()):
            if entry.settings is not None:
                read = partial(self._heads.of_model, entry.settings)
                self._head_of[entry.id] = await loop.run_in_executor(None, read)

    def leave(self) -> None:
        for engine in self.fleet:
            engine.host.is_leaving = True

    def drain(self) -> None:
        self.fleet.drain()

    async def end_engines(self) -> None:
        await self.fleet.close()

    def set_keys(self, keys: Keys) -> None:
        self._served.keys = keys
        super().set_keys(keys)

    def load_on_startup(self) -> None:
        """Load the models whose presets ask for it."""
        for entry in self.catalogue.entries.values():
            if entry.loads_on_startup:
                try:
                    self.fleet.load(self.engine_id(entry))
                except ApiError as error:
                    log.error("%s", error.message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        self.downloads.close()
        super().close()


def _without(catalogue: Catalogue, ids: set[str]) -> Catalogue:
    """Return a catalogue without some of its models."""
    entries = {id: one for id, one in catalogue.entries.items() if id not in ids}
    return msgspec.structs.replace(catalogue, entries=entries)
