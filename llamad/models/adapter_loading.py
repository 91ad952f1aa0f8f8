"""Owns the adapters that are loaded at run time: where they may come from, how many there are, and their end.

Event loop only, but for a look at the file system. Outlives engines: a new one is given them again. Numbers are never
used twice, so that no request meets another adapter than the one it asked for.
"""

from __future__ import annotations

import asyncio
import logging
import os

from llamad.base.folder import below
from llamad.client.adapters import Adapters, Held, UnknownAdapter
from llamad.client.control import Asking
from llamad.client.engine_client import EngineClient
from llamad.flags.settings import ModelSettings
from llamad.flags.types.values import AdapterFile
from llamad.protocol.errors import EngineEnded, EngineFault, FileRefused

log = logging.getLogger("llamad.engine")


class NoFile(Exception):
    """There is none of this path."""


class AdapterLoading:
    """Nothing can be loaded unless the flags name a folder."""

    def __init__(self, settings: ModelSettings, adapters: Adapters) -> None:
        self._folder = settings.lora_load_path
        self._n_max = settings.lora_load_max
        self._adapters = adapters
        self._next = len(settings.lora)
        self._open: set[int] = set()  # some may have no name any more, but requests that use them
        self._asking: Asking | None = None  # while an engine is connected
        self._engine: EngineClient | None = None  # if it generates
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()
        self._loads: set[asyncio.Task[None]] = set()

    @property
    def is_on(self) -> bool:
        return self._folder is not None

    async def reopen(self, asking: Asking) -> None:
        """Open in a new engine what was loaded before. What it cannot have is dropped. Tasks must not reach the engine
        before this returns: they might use an adapter that it does not have yet."""
        self._loop = asyncio.get_running_loop()
        # Requests to load an adapter wait meanwhile. The list below keeps all adapters in use until connect() has run,
        # so that none is to be closed while the engine cannot be told.
        async with self._turn:
            self._open.clear()
            for one in [one for one in self._adapters.list() if one.held is not None]:
                number, file = one.info.id, one.file
                try:
                    one.info = await asking.open_adapter(number, await self._found(file.path))
                    self._open.add(number)
                except (FileRefused, NoFile, EngineFault) as error:
                    log.error("the adapter %s is not loaded again: %s", file.name, error)
                    self._adapters.remove(number)

    def connect(self, asking: Asking, engine: EngineClient | None) -> None:
        """The engine serves: adapters can be loaded and closed. `engine` is None if it does not generate."""
        self._loop = asyncio.get_running_loop()
        self._asking, self._engine = asking, engine

    def disconnect(self) -> None:
        self._asking = self._engine = None

    async def load(self, name: str, path: str, in_place: bool) -> None:
        """From now on the adapter serves requests; with `in_place` it may take the place of one that was loaded at run
        time. Goes on if the caller is cancelled. Raises FileRefused, NoFile, EngineEnded."""
        task = asyncio.ensure_future(self._load(name, path, in_place))
        self._loads.add(task)
        task.add_done_callback(self._loaded)
        await asyncio.shield(task)

    def unload(self, name: str, number: int | None = None) -> None:
        """New requests do not find it; the engine closes it when the last that uses it has ended. Raises
        UnknownAdapter, FileRefused."""
        found, is_loaded = self._known(name)
        if number not in (None, found):
            raise UnknownAdapter(name)
        if not is_loaded:
            raise FileRefused(f"the adapter {name} belongs to the command line and stays")
        self._adapters.remove(found)
        log.info("the adapter %s is unloaded", name)

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._loads.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone

    async def _load(self, name: str, path: str, in_place: bool) -> None:
        async with self._turn:
            before = self._before(name, in_place)
            found = await self._found(path)
            asking, number = self._asking, self._next
            if asking is None:
                raise EngineEnded
            self._next += 1
            info = await asking.open_adapter(number, found)
            if self._asking is not asking:
                raise EngineEnded
            self._open.add(number)
            if before is not None:
                self._adapters.remove(before)
            self._adapters.add(AdapterFile(found, 1.0, name), info, Held(number, self._on_unused))
        log.info("the adapter %s is loaded: %s", name, found)

    def _known(self, name: str) -> tuple[int, bool]:
        """Its number, and whether it was loaded at run time; not the adapter itself, which an error's traceback would
        keep open. Raises UnknownAdapter."""
        one = self._adapters.named(name)
        return one.info.id, one.held is not None

    def _before(self, name: str, in_place: bool) -> int | None:
        """The number of the adapter of this name. Raises FileRefused if there can be no other."""
        number: int | None = None
        is_loaded = True
        try:
            number, is_loaded = self._known(name)
        except UnknownAdapter:
            pass
        if not is_loaded:
            raise FileRefused(f"the adapter {name} belongs to the command line; choose another name")
        if number is not None and not in_place:
            raise FileRefused(f'there is an adapter {name} already; "load_inplace" replaces it')
        if len(self._open) - (number is not None) >= self._n_max:
            raise FileRefused(
                f"{len(self._open)} adapters are loaded, which is the limit; unload one, or raise --lora-load-max"
            )
        return number

    async def _found(self, path: str) -> str:
        """The real path, again whenever an engine opens it: a link may lead elsewhere by now."""
        folder = self._folder
        assert folder is not None
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, below, folder, path)
        if found is None:
            raise FileRefused(f"{path} is not below the folder of --lora-load-path")
        if not await loop.run_in_executor(None, os.path.exists, found):
            raise NoFile(f"there is no file {path} in the folder of --lora-load-path")
        return found

    def _on_unused(self, number: int) -> None:
        """Any thread."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._close, number)
        except RuntimeError:
            pass  # the event loop has ended

    def _close(self, number: int) -> None:
        if number not in self._open:
            return  # the engine that had it has ended
        self._open.discard(number)
        if self._engine is not None:
            self._engine.forget(number)
        elif self._asking is not None:
            self._asking.close_adapter(number)
