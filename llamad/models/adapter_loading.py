"""Loads and unloads LoRA adapters at run time: checks their paths and their number, and closes them.

Event loop only; the file system is read in threads. Outlives engines: a new engine opens the adapters again. Numbers
are never used twice, so that a request never uses another adapter than the one that it names.
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
    """There is no file with this path."""


class AdapterLoading:
    """The adapters that were loaded at run time. Nothing can be loaded unless --lora-load-path names a folder."""

    def __init__(self, settings: ModelSettings, adapters: Adapters) -> None:
        self._folder = settings.lora_load_path
        self._n_max = settings.lora_load_max
        self._adapters = adapters
        self._next = len(settings.lora)
        self._open: dict[int, str] = {}  # paths by number; includes unloaded adapters that requests still use
        self._unused: set[int] = set()  # adapters that became unused while an engine opened them again
        self._asking: Asking | None = None  # the connected engine
        self._engine: EngineClient | None = None  # the same engine, if it generates
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()
        self._loads: set[asyncio.Task[None]] = set()

    @property
    def is_on(self) -> bool:
        return self._folder is not None

    @property
    def is_idle(self) -> bool:
        """Whether no adapter is being loaded."""
        return not self._loads

    async def reopen(self, asking: Asking) -> None:
        """Open the adapters that were loaded before in a new engine, also those that only requests in flight use. Those
        that cannot be opened are removed. Tasks must not reach the engine before this returns, because they might use
        an adapter that it does not have yet."""
        self._loop = asyncio.get_running_loop()
        # Requests to load an adapter wait meanwhile.
        async with self._turn:
            for number in self._unused:
                self._open.pop(number, None)
            self._unused.clear()
            for number, path in list(self._open.items()):
                if number in self._unused:
                    continue
                listed = [one for one in self._adapters.list() if one.info.id == number]
                try:
                    info = await asking.open_adapter(number, await self._real_path(path))
                    for one in listed:
                        one.info = info
                except (FileRefused, NoFile, EngineFault) as error:
                    name = listed[0].file.name if listed else path
                    log.error("the adapter %s is not loaded again: %s", name, error)
                    del self._open[number]
                    self._adapters.remove(number)

    def connect(self, asking: Asking, engine: EngineClient | None) -> None:
        """The engine serves, so adapters can be loaded and closed. `engine` is None if it does not generate."""
        self._loop = asyncio.get_running_loop()
        self._asking, self._engine = asking, engine
        unused, self._unused = self._unused, set()
        for number in unused:
            self._close(number)

    def disconnect(self) -> None:
        self._asking = self._engine = None

    async def load(self, name: str, path: str, in_place: bool) -> None:
        """Load an adapter for requests to come. With `in_place` it may replace an adapter that was loaded at run time.
        The load continues if the caller is cancelled. Raises FileRefused, NoFile, EngineEnded."""
        task = asyncio.ensure_future(self._load(name, path, in_place))
        self._loads.add(task)
        task.add_done_callback(self._loaded)
        await asyncio.shield(task)

    def unload(self, name: str, number: int | None = None) -> None:
        """Remove an adapter from the list. The engine closes it when the last request that uses it has ended. Raises
        UnknownAdapter, FileRefused."""
        known, is_loaded = self._known(name)
        if number not in (None, known):
            raise UnknownAdapter(name)
        if not is_loaded:
            raise FileRefused(f"the adapter {name} comes from the command line and cannot be unloaded")
        self._adapters.remove(known)
        log.info("the adapter %s is unloaded", name)

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._loads.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, because the caller may be gone

    async def _load(self, name: str, path: str, in_place: bool) -> None:
        async with self._turn:
            before = self._before(name, in_place)
            real_path = await self._real_path(path)
            asking, number = self._asking, self._next
            if asking is None:
                raise EngineEnded
            self._next += 1
            info = await asking.open_adapter(number, real_path)
            if self._asking is not asking:
                raise EngineEnded
            self._open[number] = real_path
            if before is not None:
                self._adapters.remove(before)
            self._adapters.add(AdapterFile(real_path, 1.0, name), info, Held(number, self._on_unused))
        log.info("the adapter %s is loaded: %s", name, real_path)

    def _known(self, name: str) -> tuple[int, bool]:
        """Return the number of an adapter and whether it was loaded at run time. The adapter itself is not returned,
        because the traceback of an error would keep it open. Raises UnknownAdapter."""
        one = self._adapters.named(name)
        return one.info.id, one.held is not None

    def _before(self, name: str, in_place: bool) -> int | None:
        """Return the number of the adapter that a load under this name replaces, or None if there is none. Raises
        FileRefused if an adapter of this name cannot be loaded."""
        number: int | None = None
        is_loaded = True
        try:
            number, is_loaded = self._known(name)
        except UnknownAdapter:
            pass
        if not is_loaded:
            raise FileRefused(f"the adapter {name} comes from the command line; choose another name")
        if number is not None and not in_place:
            raise FileRefused(f'there is an adapter {name} already; "load_inplace" replaces it')
        if len(self._open) - (number is not None) >= self._n_max:
            raise FileRefused(
                f"{len(self._open)} adapters are loaded, which is the limit; unload one, or raise --lora-load-max"
            )
        return number

    async def _real_path(self, path: str) -> str:
        """Return the real path of an adapter's file. It is resolved again for every engine, because links may have
        changed. Raises FileRefused, NoFile."""
        folder = self._folder
        assert folder is not None
        loop = asyncio.get_running_loop()
        real_path = await loop.run_in_executor(None, below, folder, path)
        if real_path is None:
            raise FileRefused(f"{path} is not below the folder of --lora-load-path")
        if not await loop.run_in_executor(None, os.path.exists, real_path):
            raise NoFile(f"there is no file {path} in the folder of --lora-load-path")
        return real_path

    def _on_unused(self, number: int) -> None:
        """Close an adapter that nothing uses any more. May be called on any thread."""
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._close, number)
        except RuntimeError:
            pass  # the event loop has ended

    def _close(self, number: int) -> None:
        if number not in self._open:
            return
        if self._asking is None:
            self._unused.add(number)  # the next engine may be opening it
            return
        del self._open[number]
        if self._engine is not None:
            self._engine.forget(number)
        else:
            self._asking.close_adapter(number)
