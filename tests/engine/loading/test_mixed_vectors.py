"""Embeddings of texts with rows in them: rows of the token embedding table give what their tokens give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np
import pytest
from support.models.tiny_kv_models import EXACT, N_EMBD, write_model

from llamad.engine.loading.embedding_context import Vectors
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.flags.parse import parse
from llamad.protocol.blobs import Blob
from llamad.protocol.control_messages import MediaRun
from llamad.protocol.model_info import Embeddings

REFUSED = -101
TOKENS = np.array([1, 40, 77, 9, 120, 33, 200, 5, 18, 64, 91, 250, 12], np.int32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("mixed") / "model.gguf", "llama", np.float32)


@pytest.fixture(scope="module")
def table(path: str) -> Embeddings:
    """The rows of TOKENS, as a model would look them up."""
    tensors = {one.name: one.data for one in gguf.GGUFReader(path).tensors}
    return np.ascontiguousarray(tensors["token_embd.weight"][TOKENS], np.float32)


@pytest.fixture(scope="module")
def vectors(path: str) -> Iterator[Vectors]:
    model = opened(path, "--pooling", "none", "-ub", "4")
    yield model.vectors
    model.close()


def opened(path: str, *flags: str) -> Any:
    flags = ("-t", "1", "-c", "64", "--embedding", *EXACT, *flags)
    return load(parse(["-m", path, *flags], {}).settings.model, 1, Loading())


def blob_of(rows: Embeddings) -> Blob:
    blob = Blob(rows.nbytes)
    blob.size = rows.nbytes
    memoryview(blob)[:] = rows.tobytes()
    return blob


def run(blob: Blob, first: int, n: int, *, rows_at: int | None = None, **more: Any) -> MediaRun:
    """Embeddings that stand for TOKENS[first:first + n]."""
    values = {"grid_at": -1, "n_pos": n, "is_non_causal": False, **more}
    at = 4 * N_EMBD * first if rows_at is None else rows_at
    return MediaRun(blob=blob.id, rows_at=at, first=first, n_rows=n, **values)


def compute(vectors: Vectors, runs: list[MediaRun], tokens: Any = TOKENS) -> tuple[int, Embeddings]:
    n_rows = len(tokens) if vectors.info.pooling == "none" else 1
    memory = bytearray(4 * (len(tokens) + n_rows * vectors.info.n_out))
    memory[: 4 * len(tokens)] = tokens.tobytes()
    if runs:
        code = vectors.compute_mixed(memoryview(memory), len(tokens), runs)
    else:
        code = vectors.compute(memoryview(memory), [len(tokens)])
    return code, np.frombuffer(memory, np.float32, offset=4 * len(tokens)).reshape(n_rows, -1)


@pytest.mark.parametrize("pooling", ["none", "last", "mean", "cls"])
def test_rows_give_what_their_tokens_give(path: str, table: Embeddings, pooling: str) -> None:
    blob, ids = blob_of(table), TOKENS.copy()
    ids[2:8] = ids[8:9] = -2
    whole = opened(path, "--pooling", pooling, "-ub", "32")
    code, expected = compute(whole.vectors, [])
    whole.close()
    assert code == 0
    for n_ubatch in ("32", "4"):  # the second cuts runs and texts
        model = opened(path, "--pooling", pooling, "-ub", n_ubatch)
        assert model.vectors.info.n_mixed_max == 64
        for runs in ([run(blob, 2, 6), run(blob, 8, 1)], [run(blob, 0, len(TOKENS))]):
            code, embeddings = compute(model.vectors, runs, ids)
            assert code == 0
            assert np.abs(embeddings - expected).max() < 1e-4
        model.close()


def test_rows_that_see_each_other(path: str, table: Embeddings) -> None:
    blob = blob_of(table)
    sees_all = opened(path, "--pooling", "none", "-ub", "32", "--attention", "non-causal")
    assert sees_all.vectors.info.n_mixed_max == 0
    expected = compute(sees_all.vectors, [])[1]
    assert compute(sees_all.vectors, [run(blob, 2, 6)])[0] == REFUSED
    sees_all.close()
    model = opened(path, "--pooling", "none", "-ub", "32")
    before = compute(model.vectors, [])[1]
    code, embeddings = compute(model.vectors, [run(blob, 0, len(TOKENS), is_non_causal=True)])
    assert code == 0
    assert np.abs(embeddings - expected).max() < 1e-4 < np.abs(embeddings - before).max()
    assert np.array_equal(compute(model.vectors, [])[1], before), "the next text is causal again"
    model.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 10, "n": 4, "rows_at": 0},  # past the text
        {"first": -1, "n": 2, "rows_at": 0},
        {"first": 2, "n": 0},
        {"first": 2, "n": 2, "n_pos": 0},
        {"first": 2, "n": 2, "n_pos": 1},  # fewer positions than rows, without a grid
        {"first": 2, "n": 2, "grid_at": 0},  # a model without M-RoPE
        {"first": 2, "n": 5, "is_non_causal": True},  # past the batch
        {"first": 2, "n": 2, "rows_at": 4 * N_EMBD * 12},  # past the blob
        {"first": 2, "n": 2, "rows_at": -4},
    ],
)
def test_what_would_end_the_process_is_refused(
    vectors: Vectors, table: Embeddings, wrong: dict[str, Any]
) -> None:
    blob = blob_of(table)
    assert compute(vectors, [run(blob, **wrong)])[0] == REFUSED
    assert compute(vectors, [run(blob, 2, 2)])[0] == 0


def test_tokens_beside_rows_are_checked_and_runs_in_order(vectors: Vectors, table: Embeddings) -> None:
    blob, ids = blob_of(table), TOKENS.copy()
    assert compute(vectors, [run(blob, 6, 2), run(blob, 2, 2)])[0] == REFUSED
    assert compute(vectors, [run(blob, 2, 3), run(blob, 4, 2)])[0] == REFUSED
    ids[12] = 259
    assert compute(vectors, [run(blob, 2, 2)], ids)[0] == REFUSED
    assert compute(vectors, [run(blob, 2, 2)], np.tile(TOKENS, 20))[0] == REFUSED  # past the context
