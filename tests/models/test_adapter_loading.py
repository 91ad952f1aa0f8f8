"""The life of an adapter that is loaded at run time: the engine is told once nobody uses it, and only then."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from llamad.client.adapters import Adapters, UnknownAdapter
from llamad.flags.parse import parse
from llamad.models.adapter_loading import AdapterLoading, NoFile
from llamad.protocol.errors import EngineEnded, FileRefused
from llamad.protocol.model_info import AdapterInfo


class Opening:
    """An engine's control socket: opens what is no text, as soon as it may."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.may_open = asyncio.Event()
        self.may_open.set()

    async def open_adapter(self, number: int, path: str) -> AdapterInfo:
        await self.may_open.wait()
        data = Path(path).read_bytes()
        if data.startswith(b"text"):
            raise FileRefused("it is a text")
        self.opened.append(number)
        return AdapterInfo(number, data.ljust(32), 4, "", "", ())

    def close_adapter(self, number: int) -> None:
        self.closed.append(number)


class Generating:
    """An engine that generates: it closes adapters by itself."""

    def __init__(self) -> None:
        self.forgotten: list[int] = []

    def forget(self, number: int) -> None:
        self.forgotten.append(number)


class Scene:
    def __init__(self, folder: Path, *flags: str) -> None:
        for name in ("one", "two"):
            (folder / name).write_text(name)
        (folder / "text").write_text("text")
        model = folder / "model.gguf"
        model.write_bytes(b"GGUF")
        settings = parse(["-m", str(model), "--lora-load-path", str(folder), *flags], {}).settings.model
        self.adapters = Adapters(settings.lora, apply=True)
        self.loading = AdapterLoading(settings, self.adapters)
        self.opening, self.generating = Opening(), Generating()

    async def connect(self, generates: bool = True) -> None:
        engine: Any = self.generating if generates else None
        asking: Any = self.opening
        await self.loading.reopen(asking)
        self.loading.connect(asking, engine)

    def used(self, name: str) -> Any:
        """What a task holds."""
        return self.adapters.chosen(self.adapters.uses(None, self.adapters.named(name)), b"")


async def settled() -> None:
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("generates", [True, False])
def test_an_adapter_is_closed_when_its_last_task_ends(tmp_path: Path, generates: bool) -> None:
    async def run() -> None:
        scene = Scene(tmp_path)
        await scene.connect(generates)
        closed = scene.generating.forgotten if generates else scene.opening.closed
        await scene.loading.load("style", "one", in_place=False)
        first, second = scene.used("style"), scene.used("style")
        assert first.uses == ((0, 1.0),)
        scene.loading.unload("style")
        with pytest.raises(UnknownAdapter):
            scene.adapters.named("style")
        del first
        await settled()
        assert closed == []
        del second
        await settled()
        assert closed == [0]
        await scene.loading.load("style", "one", in_place=False)
        assert scene.used("style").uses == ((1, 1.0),)

    asyncio.run(run())


def test_an_adapter_in_anothers_place_has_its_own_number_and_set(tmp_path: Path) -> None:
    async def run() -> None:
        scene = Scene(tmp_path, "--lora-load-max", "1")
        await scene.connect()
        await scene.loading.load("style", "one", in_place=False)
        before = scene.used("style")
        await scene.loading.load("style", "two", in_place=True)
        assert (scene.used("style").uses, scene.generating.forgotten) == (((1, 1.0),), [])
        assert scene.used("style").number != before.number
        # Two are open while a task uses the first.
        with pytest.raises(FileRefused, match="--lora-load-max"):
            await scene.loading.load("more", "one", in_place=False)
        del before
        await settled()
        assert scene.generating.forgotten == [0]

    asyncio.run(run())


def test_a_client_that_leaves_does_not_stop_a_load(tmp_path: Path) -> None:
    async def run() -> None:
        scene = Scene(tmp_path)
        await scene.connect()
        scene.opening.may_open.clear()
        waiting = asyncio.ensure_future(scene.loading.load("style", "one", in_place=False))
        await asyncio.sleep(0.01)
        waiting.cancel()
        scene.opening.may_open.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for _ in range(200):
            if scene.adapters.list():
                break
            await asyncio.sleep(0.01)
        assert [one.file.name for one in scene.adapters.list()] == ["style"]

    asyncio.run(run())


def test_a_new_engine_has_them_under_their_numbers(tmp_path: Path) -> None:
    """So has an unloaded one that a request still uses, which goes on there; a load that the end cut off is not there,
    nor what became unused between two engines."""

    async def run() -> None:
        scene = Scene(tmp_path)
        await scene.connect()
        await scene.loading.load("gone", "two", in_place=False)
        await scene.loading.load("style", "one", in_place=False)
        await scene.loading.load("left", "one", in_place=False)
        task, other = scene.used("gone"), scene.used("left")
        scene.loading.unload("gone")
        scene.loading.unload("left")
        scene.opening.may_open.clear()
        loading = asyncio.ensure_future(scene.loading.load("late", "two", in_place=False))
        await asyncio.sleep(0.05)
        scene.loading.disconnect()
        scene.opening.may_open.set()
        with pytest.raises(EngineEnded):
            await loading
        with pytest.raises(EngineEnded):
            await scene.loading.load("none", "two", in_place=False)
        del other
        await settled()
        scene.opening, scene.generating = Opening(), Generating()
        await scene.connect()
        assert scene.opening.opened == [0, 1]
        del task
        await settled()
        assert scene.generating.forgotten == [0]
        await scene.loading.load("next", "two", in_place=False)
        assert scene.used("next").uses == ((4, 1.0),)
        (tmp_path / "one").write_text("text")
        await scene.connect()
        assert [one.file.name for one in scene.adapters.list()] == ["next"]

    asyncio.run(run())


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        scene = Scene(tmp_path)
        await scene.connect()
        for path, error in (("text", FileRefused), ("../none", FileRefused), ("none", NoFile)):
            with pytest.raises(error):
                await scene.loading.load("style", path, in_place=False)
        assert scene.adapters.list() == []
        with pytest.raises(UnknownAdapter):
            scene.loading.unload("style")

    asyncio.run(run())
