"""The models of a router that are served: makes them from entries of the catalogue, and changes them at a reload.

Used on the event loop. A model's host is made when it is first needed, and stays until the catalogue has no model any
more that it can serve. Variants of a model share one host.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from llamad.api.service.auth import Keys, check_sharing
from llamad.api.service.gate import Gate
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.models.catalogue import variants
from llamad.models.catalogue.catalogue import Catalogue, Difference
from llamad.models.catalogue.entry import Entry
from llamad.models.catalogue.leaving import leaving
from llamad.models.fleet.effects import StopReason
from llamad.models.fleet.fleet import Engine, Fleet
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.models.spare_engine import SpareEngine
from llamad.protocol.errors import LoadError

log = logging.getLogger("llamad.models")

POLL_SECONDS = 0.05


class ServedModels:
    """Models by the id of their entry. `again` finds the model of a name after a reload."""

    def __init__(
        self, service: Service, fleet: Fleet, spare: SpareEngine, again: Callable[[str], object | None]
    ) -> None:
        self.keys = Keys([])
        self._service = service
        self._fleet = fleet
        self._spare = spare
        self._again = again
        self._by_id: dict[str, ServedModel] = {}
        self._prepared: dict[str, ServedModel] = {}  # for the next catalogue
        self._broken: dict[str, str] = {}  # why a model cannot be made from its entry
        self._n_engines = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    def __getitem__(self, id: str) -> ServedModel:
        return self._by_id[id]

    def get(self, id: str) -> ServedModel | None:
        return self._by_id.get(id)

    def why_not(self, id: str) -> str:
        """Return why a model could not be made from its entry, or an empty text."""
        return self._broken.get(id, "")

    def engine_of(self) -> dict[str, str]:
        """Return the id of the engine of each model."""
        return {id: one.gate.engine_id for id, one in self._by_id.items() if one.gate is not None}

    # Models are made.

    def make(self, catalogue: Catalogue, entry: Entry) -> str:
        """Make the host of an entry and of all that share its engine. Return why that is not possible, or ""."""
        if entry.id in self._broken:
            return self._broken[entry.id]
        group = _group(catalogue, entry)
        leader = catalogue.entries[entry.engine]
        assert leader.settings is not None
        try:
            check_sharing(self.keys, leader.settings)
            host = Host(leader.settings)
        except ValueError as error:
            self._broken[entry.id] = reason = str(error)
            return reason
        except OSError as error:
            self._broken[entry.id] = reason = f"{error.filename or leader.id}: {error.strerror}"
            return reason
        self._n_engines += 1
        engine_id = leader.id if leader.id not in self._fleet else f"{leader.id} ({self._n_engines})"
        engine = self._fleet.add(
            engine_id,
            leader.id,
            host,
            is_pinned=any(one.is_pinned for one in group),
            sleep_seconds=leader.settings.sleep_idle_seconds,
            stop_seconds=leader.stop_timeout,
        )
        self._spare.add(host)
        gate = Gate(self._fleet, engine.id, self._service.settings.models_queue_max, self._again)
        for one in group:
            self._add(one, engine, gate)
        if not any(one.id in self._by_id for one in group):
            self._spawn(self._remove(engine.id, [], "failed"))
        return self._broken.get(entry.id, "")

    def _add(self, entry: Entry, engine: Engine, gate: Gate) -> None:
        assert entry.settings is not None
        own = variants.own_settings(entry.settings) if entry.id != entry.engine else None
        try:
            served = ServedModel(self._service, engine.host, own, gate)
        except ValueError as error:
            self._broken[entry.id] = str(error)
            return
        served.key_states.set_keys(self.keys.names)
        self._by_id[entry.id] = served

    # A reload.

    async def prepare(self, old: Catalogue, new: Catalogue, changes: Difference) -> None:
        """Make the models that take the place of others whose engines stay, and those that these engines serve in
        addition. change() must follow at once."""
        self._broken.clear()
        self._prepared.clear()
        while (one := self._unprepared(old, new, changes)) is not None:  # requests make models meanwhile
            entry, served, is_new = one
            renewed = await self._renewed(new, entry, served, is_new=is_new)
            if is_new and renewed is served:
                self._broken[entry.id] = "its settings cannot be applied; see the server's log"
            else:
                self._prepared[entry.id] = renewed

    def _unprepared(
        self, old: Catalogue, new: Catalogue, changes: Difference
    ) -> tuple[Entry, ServedModel, bool] | None:
        """Return an entry for which a model must be made, the model that it replaces or whose engine it shares, and
        whether it is the latter; or None if all are made."""
        engine_of = self.engine_of()
        gone = leaving(old, new, changes, engine_of)
        stay = {
            id: self._by_id[id]
            for id, engine in engine_of.items()
            if id not in gone.models and engine not in gone.engines
        }
        mates = {new.entries[id].engine: one for id, one in stay.items()}
        for id, entry in new.entries.items():
            if id in self._prepared or id in self._broken or entry.settings is None:
                continue
            if id in stay:
                if id in changes.changed:
                    return entry, stay[id], False
            elif entry.engine in mates:
                return entry, mates[entry.engine], True
        return None

    async def _renewed(
        self, catalogue: Catalogue, entry: Entry, served: ServedModel, *, is_new: bool
    ) -> ServedModel:
        """Return a model for changed settings that its engine need not know, or the old one if they cannot be applied.
        Requests that run keep the old ones. With `is_new` it stands beside the old one."""
        assert entry.settings is not None
        assert served.gate is not None
        host, leader = served.host, catalogue.entries[entry.engine]
        while host.is_changing:
            await asyncio.sleep(POLL_SECONDS)  # the old one is being prepared for an engine
        if leader.settings is not None:
            host.apply(variants.changed_limits(host.settings, leader.settings))
        self._name_engine(catalogue, served.gate, entry)
        try:
            new = ServedModel(self._service, host, variants.own_settings(entry.settings), served.gate)
        except ValueError as error:
            log.error("%s: its settings cannot be applied: %s", entry.id, error)
            return served
        try:
            if not is_new:
                new.take_over(served)
            new.key_states.set_keys(self.keys.names)
            if host.model is not None:
                await asyncio.get_running_loop().run_in_executor(None, new.prepare, host.model)
            if host.engine is not None and host.state is State.READY:
                await new.engine_ready(host.engine)
        except LoadError as error:
            log.error("%s: its settings cannot be applied: %s", entry.id, error)
            new.retire()
            return served
        return new

    def change(self, old: Catalogue, new: Catalogue, changes: Difference) -> list[asyncio.Task[None]]:
        """Replace the models of one catalogue by those of another. Return the tasks that remove engines which serve
        none of them any more."""
        engine_of = self.engine_of()
        gone = leaving(old, new, changes, engine_of)
        left: dict[str, list[ServedModel]] = {engine_id: [] for engine_id in engine_of.values()}
        for id, engine_id in engine_of.items():
            if id in gone.models or engine_id in gone.engines:
                left[engine_id].append(self._by_id.pop(id))
        for id, served in self._prepared.items():
            before = self._by_id.get(id)
            if before is not None and before is not served:
                before.retire()
            self._by_id[id] = served
        self._prepared.clear()
        tasks = []
        for engine_id, models in left.items():
            if engine_id in gone.engines:
                is_there = any(one.name in new.entries for one in models)
                tasks.append(
                    self._spawn(self._remove(engine_id, models, "reloaded" if is_there else "removed"))
                )
            elif models:
                self._let_go(new, engine_id, models)
        return tasks

    def _let_go(self, catalogue: Catalogue, engine_id: str, models: list[ServedModel]) -> None:
        """Take models away from an engine that goes on with others."""
        for id, one in self._by_id.items():
            if one.gate is not None and one.gate.engine_id == engine_id:
                self._name_engine(catalogue, one.gate, catalogue.entries[id])
                break
        for one in models:
            one.retire()
        self._spawn(self._close_idle(engine_id, models))

    def _name_engine(self, catalogue: Catalogue, gate: Gate, entry: Entry) -> None:
        """Let an engine have the name and the settings of the models that it serves; `entry` is one of them."""
        leader = catalogue.entries[entry.engine]
        if leader.settings is not None:
            self._fleet.change(
                gate.engine_id,
                title=leader.id,
                is_pinned=any(one.is_pinned for one in _group(catalogue, entry)),
                sleep_seconds=leader.settings.sleep_idle_seconds,
            )

    async def _close_idle(self, engine_id: str, models: list[ServedModel]) -> None:
        """Close models that have left an engine, once none of its requests runs."""
        while engine_id in self._fleet and self._fleet[engine_id].n_active:
            await asyncio.sleep(POLL_SECONDS)
        for one in models:
            one.close()

    async def _remove(self, engine_id: str, models: list[ServedModel], reason: StopReason) -> None:
        """Remove an engine and the models that it served, once their requests have ended."""
        self._spare.remove(self._fleet[engine_id].host)
        await self._fleet.remove(engine_id, reason)
        for one in models:
            one.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _group(catalogue: Catalogue, entry: Entry) -> list[Entry]:
    """Return the entries that share the engine of an entry."""
    return [one for one in catalogue.entries.values() if one.engine == entry.engine]
