"""Tasks for engines that end at any moment, and tests of such engines."""

import asyncio
import math
import struct

from llamad.client.command import packed_biases
from llamad.client.task import RequestContext, Task
from llamad.engine.testing.fake import Fake
from llamad.options.table import Options
from support.engine_harness import sampling
from support.mortal_engine import MortalEngine

END, FIRST_BYTE = 1, 3  # of the fake's tokens
ALL = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
NO_END = packed_biases(struct.pack("<i", END), struct.pack("<d", -math.inf))


def chaos(**options):
    """A model whose logits depend on each token and its position, and whose tokens are bytes: most texts have
    incomplete characters."""
    return lambda: Fake(chaos=7, **{"decode_us": 100, **options})


def task(engine, prompt=b"hello", chain=ALL, **values):
    """`values` are fields of Task or of Options; those of samplers are for the chain, too."""
    own = set(Task.__struct_fields__) | {"context"}
    options = {name: values.pop(name) for name in list(values) if name not in own}
    options = {"n_predict": 200, "temperature": 0.9, **options}
    seed = options.pop("seed", 3)
    return Task(
        RequestContext("request", **values.pop("context", {})),
        engine.vocab.tokenize(prompt, True, True),
        sampling(chain, seed=seed, end_token=END, **{**options, "n_predict": 0}),
        options=Options(**options),
        vocab=engine.vocab,
        stream=values.pop("stream", True),
        **values,
    )


def crash_test(work, **options):
    """Run a test with an engine that is closed afterwards."""

    async def whole():
        engine = MortalEngine(chaos(decode_us=1000), **options)
        await work(engine)
        await engine.close()

    asyncio.run(whole())


async def until(condition):
    for _ in range(20000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it did not get there")
