"""Requests that outgrow a shared KV cache, over real memories of every kind that has cells: their tokens are those of a
run alone."""

import asyncio

import pytest
from support.hosted_model import Hosted
from support.models.tiny_kv_models import KINDS, write_model

F32 = ("-ctk", "f32", "-ctv", "f32")
PROMPTS = [[1, *(3 + (i * i + 31 * k) % 97 for i in range(70))] for k in range(3)]
N_PREDICT = 150


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {kind: write_model(folder / f"{kind}.gguf", kind) for kind in KINDS}


async def together(h):
    made = await asyncio.gather(*(h.write(-1, prompt, N_PREDICT) for prompt in PROMPTS))
    return [sink.tokens for sink, _ in made]


def alone(h):
    return [h.run(h.write(-1, prompt, N_PREDICT))[0].tokens for prompt in PROMPTS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", ["64", "0"], ids=["saved", "recomputed"])
def test_suspended_requests_write_what_they_would_alone(tiny, kind, cache):
    flags = ("-np", "3", "-c", "256", "--kv-unified", "--cache-ram", cache, *F32)
    with Hosted(tiny[kind], *flags) as h:
        wanted = alone(h)
        assert h.engine.stats()["n_suspensions"] == 0
        assert h.run(together(h)) == wanted
        stats = h.engine.stats()
        assert (stats["n_suspensions"] > 0) is (kind != "mamba"), "a recurrent state has no cells"
        assert (stats["n_recomputed"] > 0) is (cache == "0" and kind != "mamba")
        assert stats["n_suspended"] == 0
