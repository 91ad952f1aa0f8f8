"""The context for embeddings: its rows against NumPy, and its refusal of what would end the process."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from support.live_daemon import model_path
from support.models import bert_reference
from support.models.tiny_model import write_tiny

from llamad.engine.loading.embedding_context import Vectors
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.flags.parse import parse
from llamad.protocol.errors import LoadError
from llamad.protocol.model_info import Embeddings

REFUSED = -101


def text(n_tokens: int, token: int = 7) -> bytes:
    return np.full(n_tokens, token, np.int32).tobytes()


def compute(vectors: Vectors, texts: list[bytes]) -> tuple[int, list[Embeddings]]:
    """llama.cpp's code, and the rows of each text."""
    lengths = [len(one) // 4 for one in texts]
    is_pooled = vectors.info.pooling != "none"
    n_rows = len(texts) if is_pooled else sum(lengths)
    memory = bytearray(4 * (sum(lengths) + n_rows * vectors.info.n_out))
    memory[: 4 * sum(lengths)] = b"".join(texts)
    code = vectors.compute(memoryview(memory), lengths)
    rows = np.frombuffer(memory, np.float32, offset=4 * sum(lengths)).reshape(n_rows, vectors.info.n_out)
    if is_pooled:
        return code, [rows[i : i + 1] for i in range(n_rows)]
    return code, np.split(rows, np.cumsum(lengths)[:-1])


def computed(vectors: Vectors, texts: list[bytes]) -> list[Embeddings]:
    code, rows = compute(vectors, texts)
    assert code == 0
    return rows


def opened(path: Any, *flags: str) -> Any:
    return load(parse(["-m", str(path), "-t", "1", *flags], {}).settings.model, 1, Loading())


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
    assert compute(vectors, texts)[0] == REFUSED
    assert computed(vectors, [text(5)])[0].shape == (1, 32)


def test_a_text_may_fill_the_context(vectors: Vectors) -> None:
    assert np.isfinite(computed(vectors, [text(512)])[0]).all()


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
        embeddings = computed(model.vectors, batch)[1]
        assert embeddings.shape == expected.shape
        assert np.abs(embeddings - expected).max() < 0.02
    finally:
        model.close()


def test_an_encoder_without_the_flag_says_which_flag(plain: str) -> None:
    with pytest.raises(LoadError, match="cannot generate text; give --embedding"):
        opened(plain)


def test_a_head_is_noticed(plain: str, tmp_path: Any) -> None:
    model = opened(plain, "--reranking")
    assert not model.vectors.info.has_head
    assert not model.can_generate
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
    embeddings = []
    for n_ubatch in ("32", "256"):
        model = opened(decoder, "--embedding", "--pooling", pooling, "-ub", n_ubatch)
        assert model.can_generate
        assert model.vectors.info.n_text_max == 512
        embeddings.append(computed(model.vectors, [mixed(150)])[0])
        model.close()
    cut, whole = embeddings
    assert cut.shape == whole.shape == (150 if pooling == "none" else 1, 64)
    norms = np.linalg.norm(cut, axis=1) * np.linalg.norm(whole, axis=1)
    assert ((cut * whole).sum(axis=1) / norms).min() > 0.9999


def test_a_mean_is_never_cut(decoder: str) -> None:
    model = opened(decoder, "--embedding", "--pooling", "mean", "-ub", "32")
    assert model.vectors.info.n_text_max == 32
    assert compute(model.vectors, [mixed(33)])[0] == REFUSED
    alone = [computed(model.vectors, [mixed(n)])[0] for n in (5, 9, 17)]
    together = computed(model.vectors, [mixed(n) for n in (5, 9, 17)])
    for a, b in zip(alone, together, strict=True):
        assert float((a * b).sum()) / float(np.linalg.norm(a) * np.linalg.norm(b)) > 0.9999
    model.close()
