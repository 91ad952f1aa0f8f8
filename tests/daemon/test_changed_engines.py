"""Requests that are being prepared while another engine takes the place of the one they were meant for: nothing that
belongs to the old one reaches the new one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_daemon import WAIT_SECONDS, Faked
from support.live_daemon import Live, engines, until
from support.models.tiny_kv_models import write_model

from llamad.api.vectors import vector_job
from llamad.client.adapters import Held
from llamad.engine.testing.fake import Fake
from llamad.flags.types.values import AdapterFile
from llamad.protocol.model_info import AdapterInfo, VectorInfo


class Vectors:
    """Remembers the adapters that it has computed with."""

    n_pack, n_seq_max = 64, 4

    def __init__(self) -> None:
        self.info = VectorInfo("mean", 2, (), False, 64, False)
        self.used: list[list[tuple[int, float]]] = []

    def use(self, adapters: list[tuple[int, float]]) -> int:
        self.used.append(adapters)
        return 0

    def compute(self, memory: memoryview, lengths: list[int]) -> int:
        memory[4 * sum(lengths) :] = np.ones((len(lengths), 2), np.float32).tobytes()
        return 0


class Scene:
    """A server whose requests stop after their texts are tokenized, until they may go on."""

    def __init__(self, server: Faked, vectors: Vectors) -> None:
        self.server, self.vectors = server, vectors
        self.tokenized, self._may_go_on = threading.Event(), threading.Event()
        texts: Any = server.daemon.service.texts
        run = texts.run

        async def held(*arguments: Any) -> Any:
            result = await run(*arguments)
            self.tokenized.set()
            assert await asyncio.to_thread(self._may_go_on.wait, WAIT_SECONDS)
            return result

        texts.run = held

    def on_loop(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            result = work()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self.server.loop).result(WAIT_SECONDS)

    def ask(self, path: str, body: dict[str, Any], meanwhile: Callable[[], Any]) -> Any:
        """The answer to a request, while whose texts are tokenized something else happens on the event loop."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.server.client.post, path, body)
            try:
                assert self.tokenized.wait(WAIT_SECONDS)
                self.on_loop(meanwhile)
            finally:
                self._may_go_on.set()
            return answer.result(WAIT_SECONDS)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(vector_job, "CHARS_INLINE_MAX", 0)  # every text is long
    vectors = Vectors()
    with Faked(Fake(), "--embedding", "--alias", "base", vectors=vectors) as server:
        yield Scene(server, vectors)


def test_vectors_are_computed_with_adapters_that_the_engine_has(scene: Scene) -> None:
    """They were chosen before the texts were tokenized, so that an engine could be asked for an adapter that it had
    not opened."""
    adapters = scene.server.host.adapters
    info = AdapterInfo(0, b"style".ljust(32), 4, "", "", ())
    scene.on_loop(
        lambda: adapters.add(AdapterFile("style.gguf", 1.0, "style"), info, Held(0, lambda _: None))
    )
    body = {"input": "a text", "model": "base:style"}
    answer = scene.ask("/v1/embeddings", body, lambda: adapters.remove(0))
    assert answer.status == 404
    assert "style" in answer.error["message"]
    assert scene.vectors.used == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": "a", "n_predict": 2, "dry_multiplier": 1, "penalty_prompt": "a text"}),
        ("/v1/embeddings", {"input": "a text"}),
    ],
)
def test_tokens_of_another_vocabulary_reach_no_engine(scene: Scene, path: str, body: dict[str, Any]) -> None:
    """The file of the model may be another one when its engine is started again: the ids of the tokens then mean
    something else."""
    answer = scene.ask(path, body, scene.server.host.replace)
    assert answer.status == 503
    assert answer.headers["retry-after"] == "2"
    assert scene.vectors.used == []
    assert scene.server.client.post(path, body).status == 200


def test_a_replaced_file_brings_its_own_vocabulary(tiny: str, tmp_path: Path) -> None:
    """Short texts were still tokenized with the vocabulary of the first file."""
    path = tmp_path / "model.gguf"
    shutil.copyfile(tiny, path)
    with Live("-np", "1", "-c", "256", model=str(path)) as server:

        def tokens(content: str | list[str]) -> list[int]:
            tokens: list[int] = server.client.post("/tokenize", {"content": content}).json["tokens"]
            return tokens

        before = tokens("a text")
        write_model(tmp_path / "other.gguf", "llama", np.float32)
        os.replace(tmp_path / "other.gguf", path)
        (engine,) = engines(server.process.pid)
        os.kill(engine, signal.SIGKILL)
        until(lambda: engines(server.process.pid) not in ([], [engine]))
        server.wait_ready()
        assert tokens("a text") == tokens(["a text"]) != before
