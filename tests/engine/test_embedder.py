"""The embedder's thread over a computer of its own making, and the real one's refusal of what would end the process."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from support.live_daemon import model_path
from support.models import bert_reference
from support.models.tiny_model import write_tiny

from llamad.engine.embedder import Embedder
from llamad.engine.loading import memory
from llamad.engine.loading import vectors as vectors_of
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.engine.loading.vectors import Vectors
from llamad.flags import parse
from llamad.protocol.errors import ComputeFailed, LoadError, Stopped
from llamad.protocol.model_info import Rows, VectorInfo


def text(n_tokens: int, token: int = 7) -> bytes:
    return np.full(n_tokens, token, np.int32).tobytes()


class Script:
    """A computer whose rows tell the text's length; it can be held, and fail."""

    def __init__(self, n_pack: int = 10, n_seq_max: int = 4) -> None:
        self.n_pack, self.n_seq_max = n_pack, n_seq_max
        self.info = VectorInfo("mean", 1, (), False, 100, False)
        self.batches: list[list[int]] = []
        self.free = threading.Event()
        self.free.set()
        self.fails_with: int | None = None

    def compute(self, texts: list[bytes]) -> list[Rows]:
        self.batches.append([len(one) // 4 for one in texts])
        assert self.free.wait(30)
        if self.fails_with is not None:
            raise ComputeFailed(self.fails_with)
        return [np.full((1, 1), len(one) // 4, np.float32) for one in texts]


def run(script: Script, work: Callable[[Embedder], Awaitable[Any]], jobs_max: int = 100) -> Any:
    async def main() -> Any:
        embedder = Embedder(script, jobs_max=jobs_max)
        embedder.start()
        try:
            return await work(embedder)
        finally:
            script.free.set()
            await embedder.stop()
            assert not embedder.is_alive

    return asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def lengths(rows: list[Rows]) -> list[float]:
    return [float(one[0, 0]) for one in rows]


def test_waiting_texts_are_packed_in_order_up_to_tokens_and_sequences() -> None:
    script = Script(n_pack=10, n_seq_max=4)

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        first = embedder.submit([text(1)])
        await until(lambda: len(script.batches) == 1)
        a = embedder.submit([text(4), text(5), text(2)])
        b = embedder.submit([text(n) for n in (1, 2, 1, 1, 1)])
        script.free.set()
        assert lengths(await first.future) == [1]
        assert lengths(await a.future) == [4, 5, 2]
        assert lengths(await b.future) == [1, 2, 1, 1, 1]

    run(script, work)
    assert script.batches == [[1], [4, 5], [2, 1, 2, 1], [1, 1]]


def test_clients_take_turns_and_leave_each_other_room() -> None:
    script = Script(n_pack=4)

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        first = embedder.submit([text(1)], client=1)
        await until(lambda: len(script.batches) == 1)
        many = [embedder.submit([text(3)] * 4, client=1), embedder.submit([text(3)], client=1)]
        assert not embedder.has_share(1)
        assert embedder.has_share(2)
        one = embedder.submit([text(4)] * 2, client=2)
        script.free.set()
        await asyncio.gather(first.future, one.future, *(job.future for job in many))

    run(script, work, jobs_max=4)
    assert script.batches == [[1], [4], [3], [4], [3], [3], [3], [3]]


def test_a_text_longer_than_a_pack_goes_alone() -> None:
    script = Script(n_pack=10)

    async def work(embedder: Embedder) -> None:
        assert lengths(await embedder.submit([text(3), text(50), text(3)]).future) == [3, 50, 3]

    run(script, work)
    assert script.batches == [[3], [50], [3]]


def test_texts_of_a_client_that_left_cost_nothing() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        running = embedder.submit([text(1), text(10)])
        await until(lambda: len(script.batches) == 1)
        gone, stays = embedder.submit([text(9)]), embedder.submit([text(2)])
        running.abort()
        gone.abort()
        assert embedder.n_texts_waiting == 1
        script.free.set()
        assert lengths(await stays.future) == [2]

    run(script, work)
    assert script.batches == [[1], [2]]


def test_a_failed_batch_fails_its_requests_only() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        script.fails_with = -3
        with pytest.raises(ComputeFailed, match="-3"):
            await embedder.submit([text(5), text(9)]).future
        script.fails_with = None
        assert lengths(await embedder.submit([text(1)]).future) == [1]
        assert embedder.counts.n_failures == 1
        assert embedder.counts.n_texts == 1
        assert embedder.n_jobs == 0

    run(script, work)
    assert script.batches == [[5], [1]]


def test_the_queue_is_bounded_and_what_left_makes_room() -> None:
    script = Script()

    async def work(embedder: Embedder) -> None:
        script.free.clear()
        jobs = [embedder.submit([text(1)]) for _ in range(3)]
        assert not embedder.can_accept()
        jobs[2].abort()
        assert embedder.can_accept()
        jobs[2] = embedder.submit([text(1)])
        assert not embedder.can_accept()
        script.free.set()
        await asyncio.gather(*(job.future for job in jobs))
        await until(embedder.can_accept)

    run(script, work, jobs_max=3)


def test_stopping_answers_what_waits() -> None:
    script = Script()

    async def main() -> None:
        embedder = Embedder(script, jobs_max=9)
        embedder.start()
        script.free.clear()
        running = embedder.submit([text(1), text(10)])
        await until(lambda: len(script.batches) == 1)
        stopping = asyncio.ensure_future(embedder.stop())
        await asyncio.sleep(0)
        script.free.set()
        await stopping
        with pytest.raises(Stopped):
            await running.future

    asyncio.run(main())
    assert script.batches == [[1]]


# The real context.


def opened(path: Any, *flags: str) -> Any:
    return load(parse(["-m", str(path), "-t", "1", *flags], {}).settings, 1, Loading())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bert_reference.write_gguf(tmp_path_factory.mktemp("bert") / "plain.gguf", bert_reference.seeded())


@pytest.fixture(scope="module")
def vectors(plain: str) -> Any:
    model = opened(plain, "--embedding")
    yield model.vectors
    model.close()


@pytest.mark.parametrize(
    "texts",
    [
        [text(513)],  # past the model's positions
        [text(300), text(300)],  # past the batch
        [text(1)] * 65,  # more sequences than the context has
        [text(3, 200)],  # no such token
        [text(3, -1)],
        [b""],
        [],
    ],
)
def test_what_llama_cpp_would_abort_on_is_refused(vectors: Vectors, texts: list[bytes]) -> None:
    with pytest.raises(ComputeFailed, match="-101"):
        vectors.compute(texts)
    assert vectors.compute([text(5)])[0].shape == (1, 32)


def test_a_text_may_fill_the_context(vectors: Vectors) -> None:
    assert np.isfinite(vectors.compute([text(512)])[0]).all()


@pytest.mark.parametrize("pooling", ["none", "mean", "cls", "last"])
def test_poolings_agree_with_numpy(plain: str, pooling: str) -> None:
    weights = bert_reference.seeded()
    tokens = [101, 5, 17, 9, 33, 102]
    expected = bert_reference.hidden(weights, tokens)
    if pooling != "none":
        row = {"mean": expected.mean(axis=0), "cls": expected[0], "last": expected[-1]}[pooling]
        expected = row[np.newaxis]
    model = opened(plain, "--embedding", "--pooling", pooling)
    try:
        batch = [text(3, 8), np.array(tokens, np.int32).tobytes(), text(2, 9)]
        found = model.vectors.compute(batch)[1]
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 0.02
    finally:
        model.close()


def test_an_encoder_without_the_flag_says_which_flag(plain: str) -> None:
    with pytest.raises(LoadError, match="cannot generate text; give --embedding"):
        opened(plain)


def test_a_head_is_noticed(plain: str, tmp_path: Any) -> None:
    model = opened(plain, "--reranking")
    assert not model.vectors.info.has_head
    assert not model.model.can_generate
    model.close()
    headed = bert_reference.write_gguf(tmp_path / "head.gguf", bert_reference.seeded(labels=("a", "b", "c")))
    model = opened(headed, "--embedding", "--pooling", "rank")
    assert model.vectors.info.has_head
    assert model.vectors.info.labels == ("a", "b", "c")
    model.close()


def test_an_unknown_pooling_does_not_end_the_process(plain: str, tmp_path: Any) -> None:
    """llama.cpp aborts on it when the context is made."""
    weights = dataclasses.replace(bert_reference.seeded(), pooling="unknown")
    odd = bert_reference.write_gguf(tmp_path / "odd.gguf", weights)
    for flags in (
        (odd, "--embedding"),
        (plain, "--embedding", "--override-kv", "bert.pooling_type=int:77"),
    ):
        with pytest.raises(LoadError, match=r"a pooling type that .* does not know; give one with --pooling"):
            opened(*flags)
    opened(odd, "--embedding", "--pooling", "cls").close()


def test_flags_that_contradict(plain: str) -> None:
    with pytest.raises(LoadError, match="--reranking needs --pooling rank, not mean"):
        opened(plain, "--reranking", "--pooling", "mean")


# A model that generates.


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", model_path(), n_ctx=512)


def mixed(n_tokens: int) -> bytes:
    return (np.arange(n_tokens, dtype=np.int32) * 37 % 4001).tobytes()


@pytest.mark.parametrize("pooling", ["none", "last"])
def test_a_causal_text_longer_than_the_batch_is_cut_without_a_trace(decoder: str, pooling: str) -> None:
    found = []
    for n_ubatch in ("32", "256"):
        model = opened(decoder, "--embedding", "--pooling", pooling, "-ub", n_ubatch)
        assert model.model.can_generate
        assert model.vectors.info.n_text_max == 512
        found.append(model.vectors.compute([mixed(150)])[0])
        model.close()
    cut, whole = found
    assert cut.shape == whole.shape == (150 if pooling == "none" else 1, 64)
    norms = np.linalg.norm(cut, axis=1) * np.linalg.norm(whole, axis=1)
    assert ((cut * whole).sum(axis=1) / norms).min() > 0.9999


def test_a_mean_is_never_cut(decoder: str) -> None:
    model = opened(decoder, "--embedding", "--pooling", "mean", "-ub", "32")
    assert model.vectors.info.n_text_max == 32
    with pytest.raises(ComputeFailed, match="-101"):
        model.vectors.compute([mixed(33)])
    alone = [model.vectors.compute([mixed(n)])[0] for n in (5, 9, 17)]
    together = model.vectors.compute([mixed(n) for n in (5, 9, 17)])
    for a, b in zip(alone, together, strict=True):
        assert float((a * b).sum()) / float(np.linalg.norm(a) * np.linalg.norm(b)) > 0.9999
    model.close()


def test_the_estimate_counts_the_second_context(decoder: str) -> None:
    model = opened(decoder, "--embedding")
    settings = parse(["-m", decoder, "--embedding"], {}).settings
    beside = vectors_of.estimate(settings, model._handle)
    n_logits = 512 * model.model.info.n_vocab * 4
    assert beside > 2 * n_logits
    refusal = memory.refusal(settings, model._handle, 1 << 60)
    assert refusal is not None
    assert "embeddings 1073741824.00 GiB" in refusal
    assert memory.vectors_refusal(settings, beside) is None
    assert "lower -c, -b or -ub" in (memory.vectors_refusal(settings, 1 << 60) or "")
    model.close()
