"""Embeddings in a prompt: those of its own tokens must give what the tokens give, in every memory and from
every cache. Tiny models with full precision."""

import asyncio
import struct

import numpy as np
import pytest
from gguf import GGUFReader
from support.engine_harness import GREEDY
from support.hosted_model import Hosted, Sink
from support.models.tiny_kv_models import EXACT, write_models

from llamad.client.command import packed_run
from llamad.client.media_embeddings import Lending
from llamad.client.task import RequestContext, Task
from llamad.options.table import Options
from llamad.protocol.blobs import Blob
from llamad.protocol.row_ids import positions, row_ids, without_rows


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"), ("llama", "gemma3", "jamba", "qwen2vl"))


def table(path):
    tensor = next(one for one in GGUFReader(path).tensors if one.name == "token_embd.weight")
    return np.array(tensor.data, np.float32)


class Reading:
    """Prompts in which some tokens are given as rows."""

    def __init__(self, h: Hosted, path: str) -> None:
        self.h, self.table = h, table(path)
        self.lending = h.engine._lending
        assert isinstance(self.lending, Lending)

    def blob(self, tokens, grid=None) -> Blob:
        data = self.table[tokens].tobytes() + (b"" if grid is None else np.array(grid, np.int32).tobytes())
        blob = Blob(len(data))
        blob.size = len(data)
        memoryview(blob)[:] = data
        return blob

    async def write(self, parts, n_predict=12, slot=-1):
        """Each part is a list of tokens, or such a list with the number of its run, n_pos and non-causal."""
        ids, packed, blobs = b"", b"", []
        for part in parts:
            if isinstance(part, list):
                ids += struct.pack(f"<{len(part)}i", *part)
                continue
            tokens, name, n_pos, grid = part
            blob = self.blob(tokens, grid)
            at = -1 if grid is None else len(tokens) * self.table.shape[1] * 4
            packed += packed_run(blob.id, 0, at, len(ids) // 4, len(tokens))
            ids += row_ids(name, 0, len(tokens), n_pos, False)
            blobs.append(blob)
        rows = await self.h.engine.lend_rows(packed, blobs) if blobs else None
        sink = Sink()
        task = Task(
            RequestContext("rows"),
            ids,
            GREEDY,
            Options(id_slot=slot, n_predict=n_predict),
            stream=True,
            rows=rows,
        )
        self.h.engine.submit(task, sink)
        return sink.tokens, await sink.done


def rows(tokens, name=b"a", n_pos=None, grid=None):
    return tokens, name, n_pos or len(tokens), grid


A, B, C = list(range(80, 110)), list(range(120, 143)), list(range(150, 190))


@pytest.mark.parametrize("kind", ["llama", "jamba", "qwen2vl"])
@pytest.mark.parametrize("flags", [(), ("-np", "2"), ("-np", "2", "--kv-unified"), ("-b", "16", "-ub", "8")])
def test_rows_of_tokens_are_those_tokens(tiny, kind, flags):
    path = tiny[kind]
    with Hosted(path, *EXACT, *flags, "--mmproj", path) as h:
        read = Reading(h, path)
        tokens, done = h.run(read.write([[1, *A, *B, *C]]))
        seen, done = h.run(read.write([[1, *A], rows(B), C]))
        assert seen == tokens
        assert done.n_prompt == 1 + len(A + B + C)
        # Beside the prompt's text, the file is known again; another one is not.
        seen, done = h.run(read.write([[1, *A], rows(B), [*C, 90]]))
        assert done.n_cached >= (1 + len(A + B + C) if kind != "jamba" else 0)
        seen, done = h.run(read.write([[1, *A], rows(B, b"other"), C]))
        assert seen == tokens
        assert done.n_cached <= 1 + len(A)
        assert h.instance.core.check_integrity() == 0


def test_several_at_once(tiny):
    path = tiny["llama"]
    with Hosted(path, *EXACT, "-np", "4", "-c", "2048", "--mmproj", path) as h:
        read = Reading(h, path)
        alone = [h.run(read.write([[1, *A[i:]], rows(B, bytes([i])), C]))[0] for i in range(8)]

        async def together():
            return await asyncio.gather(
                *(read.write([[1, *A[i:]], rows(B, b"n" + bytes([i])), C]) for i in range(8))
            )

        texts = h.run(together())
        assert [tokens for tokens, _ in texts] == alone


def test_a_grid_takes_fewer_positions(tiny):
    """All rows at one place, then a text that stands behind the grid: as llama.cpp numbers them."""
    path = tiny["qwen2vl"]
    n, n_pos = len(B), 6
    with Hosted(path, *EXACT, "-np", "2", "--mmproj", path) as h:
        read = Reading(h, path)
        grid = [[0] * n, [i // 6 for i in range(n)], [i % 6 for i in range(n)]]
        first, done = h.run(read.write([[1, *A], rows(B, b"g", n_pos, grid), C]))
        again, done = h.run(read.write([[1, *A], rows(B, b"g", n_pos, grid), [*C, *first[:3]]]))
        assert done.n_cached >= 1 + len(A) + n
        assert again[: len(first) - 3] == first[3:]
        assert h.run(read.write([[1, *A], rows(B, b"l", n, None), C]))[0] != first
        assert h.instance.core.check_integrity() == 0


N_COLUMNS = 6


def placed(kind, tokens, name):
    """MediaEmbeddings as an image of the model has them."""
    n = len(tokens)
    if kind != "qwen2vl":
        return rows(tokens, name)
    grid = [[0] * n, [i // N_COLUMNS for i in range(n)], [i % N_COLUMNS for i in range(n)]]
    return rows(tokens, name, N_COLUMNS, grid)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "jamba", "qwen2vl"])
def test_an_image_comes_back_from_the_prompt_cache(tiny, kind):
    """Another prompt has taken the slot meanwhile. Where the conversation goes on, all of it is there again; another
    image in the same place is not taken for it."""
    path = tiny[kind]
    n_image = 1 + len(A) + len(B)
    with Hosted(path, *EXACT, "--cache-ram", "64", "--mmproj", path) as h:
        read = Reading(h, path)

        def ask(image, more):
            return h.run(read.write([[1, *A], placed(kind, B, image), [*C, *more]]))

        def take_the_slot():
            h.run(read.write([[1, *range(200, 100, -1)]]))

        first, _ = ask(b"one", [])
        more = [*first, 90, 91]
        take_the_slot()
        again, done = ask(b"one", more)
        assert done.n_cached >= n_image + len(C)
        take_the_slot()
        other, done = ask(b"two", more)  # with the same rows: what is computed must be the same
        assert done.n_cached <= 1 + len(A)
        assert other == again
        assert h.instance.core.check_integrity() == 0


@pytest.mark.parametrize("kind", ["llama", "qwen2vl"])
@pytest.mark.parametrize("cache", ["64", "0"])
def test_an_image_whose_task_was_suspended(tiny, kind, cache):
    """Three tasks outgrow a shared cache: a state with an image goes to the prompt cache, or is computed again."""
    path = tiny[kind]
    with Hosted(
        path, *EXACT, "-np", "3", "-c", "320", "--kv-unified", "--cache-ram", cache, "--mmproj", path
    ) as h:
        read = Reading(h, path)

        def prompt(i):
            return [[1, *A[i:]], placed(kind, B, bytes([i])), C]

        alone = [h.run(read.write(prompt(i), 80))[0] for i in range(3)]

        async def together():
            return await asyncio.gather(*(read.write(prompt(i), 80) for i in range(3)))

        assert [tokens for tokens, _ in h.run(together())] == alone
        assert h.engine.stats()["n_suspensions"] > 0
        assert h.instance.core.check_integrity() == 0


def test_ids():
    ids = row_ids(b"digest", 3, 10, 4, True)
    assert positions(ids) == 4
    assert positions(struct.pack("<2i", 5, 6) + ids + struct.pack("<i", 7)) == 7
    assert positions(row_ids(b"digest", 3, 10, 10, False)) == 10
    assert row_ids(b"digest", 3, 10, 4, True) == ids != row_ids(b"digest", 4, 10, 4, True)
    assert row_ids(b"digest", 3, 11, 11, False)[4:40] != row_ids(b"digest", 3, 10, 10, False)[4:]
    assert all(one < 0 and one != -1 for one in struct.unpack("<10i", ids))
    assert without_rows(struct.pack("<i", 5) + ids) == struct.pack("<i", 5)
    with pytest.raises(ValueError, match="cannot take"):
        row_ids(b"", 0, 1, 2, False)
