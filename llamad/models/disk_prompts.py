"""One model's part of the prompt cache on disk: finds what the disk has of a prompt, and gives it to the engine.

Runs on the event loop. A request never fails because of it: without the disk the engine computes the prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from llamad.client.adapters import AdapterSet
from llamad.client.engine_client import EngineClient
from llamad.client.slot_states import States
from llamad.client.task import Action
from llamad.flags.settings import ModelSettings
from llamad.models.cache_disk.disk_cache import DiskCache, Wanted
from llamad.models.cache_disk.reader import Fetched, Target
from llamad.models.cache_disk.source import Source
from llamad.models.disk_turns import DiskTurns
from llamad.protocol.blobs import Arena
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.messages import ACTION_INSERT, RESULT_DONE
from llamad.protocol.model_info import Model

log = logging.getLogger("llamad.cache")

# The speed of the engine is measured over at least so many prompt tokens.
MEASURED_TOKENS_MIN = 512
# So many parts of a prompt are inserted at once. The engine has room for 16 that it copies, and others need some, too.
AT_ONCE = 4


class Hint(msgspec.Struct, frozen=True):
    """What the request says about its prompt, as RequestContext has it."""

    session: int = 0
    retention_s: int = 0


class ServedHost(Protocol):
    """What is used of a model's host."""

    settings: ModelSettings
    arena: Arena
    cache_memory: CacheMemory
    owners: dict[str, int]
    model: Model | None
    engine: EngineClient | None
    states: States | None

    @property
    def prefix(self) -> str: ...


class DiskPrompts:
    """`model` is the host whose cache memory is kept on disk from now on."""

    def __init__(self, model: ServedHost, cache: DiskCache, build: str) -> None:
        self._model = model
        self._cache = cache
        self.source = Source(
            model.cache_memory,
            build,
            lambda: model.settings.alias or model.settings.model.rpartition("/")[2],
            self._key_of,
            self._token_seconds,
            n_slots=model.settings.n_parallel,
        )
        self.turns = DiskTurns(cache, self.source)
        self._inserting: dict[str, asyncio.Future[bool]] = {}  # entries that are being read, by their names
        cache.writer.add(self.source)

    def close(self) -> None:
        """The model leaves: write what is left of its cache memory, and then forget it."""
        self._cache.writer.remove(self.source)

    def _key_of(self, owner: int) -> str | None:
        """Return the name of the key with this number. Called by the writer's thread."""
        if owner == 0:
            return ""
        return next((name for name, number in list(self._model.owners.items()) if number == owner), None)

    def find(self, owner: int, adapters: AdapterSet, prompt: bytes) -> Wanted | None:
        """Return what the disk has of a prompt that is about to be submitted, or None if that would not help."""
        engine, states, key_name = self._model.engine, self._model.states, self._key_of(owner)
        if engine is None or states is None or states.layout is None or key_name is None:
            return None
        if adapters.n_base or adapters.base:
            return None  # an activated adapter acts in a part of the prompt
        return self._cache.find(self.source, key_name, adapters.number, prompt)

    def _token_seconds(self) -> float:
        """Return the time that a prompt token takes to compute; 0: unknown. Any thread."""
        engine = self._model.engine
        stats = engine.stats() if engine is not None else {}
        n_tokens = stats.get("n_prompt_tokens", 0)
        return stats.get("prompt_us", 0) / 1e6 / n_tokens if n_tokens >= MEASURED_TOKENS_MIN else 0.0

    async def insert(self, wanted: Wanted, owner: int, hint: Hint, adapters: AdapterSet) -> bool:
        """Read an entry into the engine's cache. Return False if that was not possible in time. Requests that need the
        same entry at the same time read it once."""
        name = wanted.found.name
        inserting = self._inserting.get(name)
        if inserting is None:
            inserting = asyncio.ensure_future(self._try_insert(wanted, owner, hint, adapters))
            self._inserting[name] = inserting
            inserting.add_done_callback(lambda _: self._inserting.pop(name, None))
        try:
            is_there = await asyncio.wait_for(asyncio.shield(inserting), wanted.seconds)
        except TimeoutError:
            is_there = False
        self.source.note(wanted.chain)
        return is_there

    async def _try_insert(self, wanted: Wanted, owner: int, hint: Hint, adapters: AdapterSet) -> bool:
        try:
            is_there = await self._insert(wanted, owner, hint, adapters)
        except Exception:  # a bug costs the cache, not the requests that wait here
            log.exception("%sreading a prompt from disk failed", self._model.prefix)
            return False
        if is_there:
            self.source.note(wanted.chain)  # at once, so that a request that comes now does not read it again
        return is_there

    async def _insert(self, wanted: Wanted, owner: int, hint: Hint, adapters: AdapterSet) -> bool:
        model = self._model
        engine, states = model.engine, model.states
        if engine is None or states is None or states.layout is None or model.model is None:
            return False
        target = Target(states.layout, model.model.info.n_vocab, model.model.n_ctx_slot, model.arena)

        def action(fetched: Fetched) -> Action:
            return Action(
                ACTION_INSERT,
                0,
                fetched.blob,
                owner=owner,
                session=hint.session,
                retention_s=hint.retention_s,
                n_tokens=fetched.n_tokens,
                n_bytes=fetched.blob.size,
                n_begin=fetched.n_begin,
                adapters=(adapters.number, 0, 0),
            )

        inserts = Inserts(engine, model.prefix)
        try:
            if states.takes_parts and wanted.found.end is None:
                are_read = await self._cache.fetch_parts(
                    wanted, target, lambda one: inserts.add(action(one), one.release)
                )
            else:
                fetched = await self._cache.fetch(wanted, target)
                are_read = fetched is not None and await inserts.add(action(fetched))
        finally:
            are_there = await inserts.finish()
        return are_read and are_there


class Inserts:
    """The actions that insert a prompt, of which the engine has a few at a time: it copies a state while the next one
    is being read. They stay in order, because the engine maps one blob after the other."""

    def __init__(self, engine: EngineClient, prefix: str) -> None:
        self._engine = engine
        self._prefix = prefix
        self._running: deque[asyncio.Task[bool]] = deque()

    async def add(self, action: Action, release: Callable[[], None] = lambda: None) -> bool:
        """Send the action, and return whether another one may follow. `release` is called when the engine has the
        state."""
        is_good = True
        if len(self._running) >= AT_ONCE:
            # If nobody waits any more, the engine goes on: other parts come behind this one.
            is_good = await asyncio.shield(self._running[0])
            self._running.popleft()
        if is_good:
            self._running.append(asyncio.create_task(self._act(action, release)))
        return is_good

    async def finish(self) -> bool:
        """Return whether the engine has taken everything that was added. Raises what one of the actions has raised, but
        after all of them."""
        results = await asyncio.gather(*self._running, return_exceptions=True)
        for one in results:
            if isinstance(one, BaseException):
                raise one
        return all(results)

    async def _act(self, action: Action, release: Callable[[], None]) -> bool:
        try:
            acted = await self._engine.act(action)
        except MemoryError:
            log.warning("%sno memory to read a prompt of %d bytes from disk", self._prefix, action.n_bytes)
            return False
        is_done = acted.result == RESULT_DONE
        if is_done:
            release()
        return is_done
