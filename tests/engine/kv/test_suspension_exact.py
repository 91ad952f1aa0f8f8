"""Requests that outgrow a shared KV cache, over real memories of every kind that has cells: their tokens are those of a
run alone."""

import asyncio
import struct

import pytest
from support.engine_harness import sampling
from support.hosted_model import Hosted, Sink
from support.models.tiny_kv_models import EXACT, KINDS, write_models

from llamad.client.task import RequestContext, Task
from llamad.options.table import Options

# So that rounding, which depends on the shapes of the batches, changes no token.
PROMPTS = [[1, *(3 + (i * i + 31 * k) % 97 for i in range(70))] for k in range(3)]
N_PREDICT = 150
EOS = 2


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"), KINDS)


async def write(h, k):
    """Drawn by a seed of its own."""
    sink = Sink()
    prompt = struct.pack(f"<{len(PROMPTS[k])}i", *PROMPTS[k])
    drawn = sampling(["temperature"], temperature=0.8, seed=k + 1)
    h.engine.submit(
        Task(RequestContext("exact"), prompt, drawn, Options(n_predict=N_PREDICT), stream=True), sink
    )
    done = await sink.done
    assert done.n_decoded == N_PREDICT or sink.tokens[-1] == EOS
    return sink.tokens


async def together(h):
    return await asyncio.gather(*(write(h, k) for k in range(len(PROMPTS))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", ["64", "0"], ids=["saved", "recomputed"])
def test_suspended_requests_write_what_they_would_alone(tiny, kind, cache):
    flags = ("-np", "3", "-c", "256", "--kv-unified", "--cache-ram", cache, *EXACT)
    with Hosted(tiny[kind], *flags) as h:
        wanted = [h.run(write(h, k)) for k in range(len(PROMPTS))]
        assert h.engine.stats()["n_suspensions"] == 0
        assert h.run(together(h)) == wanted
        stats = h.engine.stats()
        assert (stats["n_suspensions"] > 0) is (kind != "mamba"), "a recurrent state has no cells"
        assert (stats["n_recomputed"] > 0) is (cache == "0" and kind != "mamba")
        assert stats["n_suspended"] == 0
