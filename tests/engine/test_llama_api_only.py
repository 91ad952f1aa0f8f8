"""--llama-api-only: the same texts, without anything that relies on how llama.cpp works inside."""

import asyncio
import json
import struct
from pathlib import Path

import pytest
from support.engine_harness import Harness
from support.hosted_model import Hosted
from support.live_daemon import model_path

from llamad._llama import ffi, lib
from llamad.engine.loading import memory
from llamad.engine.testing.fake import Fake

TEXTS = [
    "The capital of France is",
    "Once upon a time",
    "Water boils at",
    "def add(a, b):\n",
    "One, two, three,",
]


def run_fake(api_only: bool) -> tuple[list[bytes], dict[str, int]]:
    """Streams with a hole between them, a prompt beside them and a burst of prompts of unequal length: what each got,
    and how often the engine did more than the API asks for."""
    fake = Fake(n_ctx=1024, n_batch=1024, decode_us=300, device_us=300)
    sizes = {"n_slots": 8, "n_ctx": 1024, "n_batch": 1024, "n_ubatch": 1024}
    with Harness(fake, has_device=True, api_only=api_only, **sizes) as h:
        streams = [h.submit(b"%d stream a" % i, n_predict=500, id_slot=i) for i in (0, 2)]
        for stream in streams:
            h.wait_first(stream)
        beside = h.submit(b"3 prompt" + b"b" * 200, n_predict=20, id_slot=3)
        h.wait(beside)
        fake.block(True)
        h.catch()
        burst = [h.submit(b"%d" % i + b"c" * (30 + 7 * i), n_predict=9, id_slot=i) for i in range(4, 8)]
        fake.block(False)
        h.wait(*streams, *burst)
        texts = [h.text(task) for task in (*streams, beside, *burst)]
        stats = h.stats()
        h.collect()
        counts = {
            "early": stats["n_landed"],
            "fillers": sum(step.n_fillers for step in h.steps),
            "separate": fake.n_decodes - stats["n_steps"],
        }
    return texts, counts


def test_the_fake_gets_the_same_texts_without_any_of_it():
    usual, did = run_fake(api_only=False)
    alone, did_not = run_fake(api_only=True)
    assert alone == usual
    assert all(did.values()), did
    assert not any(did_not.values()), did_not


def run_model(folder: Path, *flags: str) -> tuple[list[bytes], list[list[int]], list[dict[str, int]]]:
    """The prompts' tokens, the greedy tokens behind them, all at once, and the step trace."""
    trace = folder / f"steps{len(flags)}.jsonl"
    with Hosted(model_path(), "-np", "6", "-c", "1536", "--step-trace", str(trace), *flags) as h:
        prompts = [h.vocab.tokenize(text.encode(), True, False) for text in TEXTS]

        async def write() -> list[list[int]]:
            ids = [list(struct.unpack(f"<{len(prompt) // 4}i", prompt)) for prompt in prompts]
            texts = await asyncio.gather(*[h.write(i, tokens, 8) for i, tokens in enumerate(ids)])
            return [sink.tokens for sink, _ in texts]

        texts = h.run(write())
    return prompts, texts, [json.loads(line) for line in trace.read_text().splitlines()]


def test_the_model_writes_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Computed here as if a device did it, so that the usual run pads its prompts."""
    monkeypatch.setattr(memory, "computes", lambda *_: True)
    prompts, texts, steps = run_model(tmp_path)
    plain_prompts, plain_texts, plain_steps = run_model(tmp_path, "--llama-api-only")
    assert plain_prompts == prompts
    assert plain_texts == texts
    assert any(step["n_fillers"] for step in steps)
    assert not any(step["n_fillers"] for step in plain_steps)


@pytest.mark.parametrize("api_only", [False, True])
def test_the_front_tokenizes_with_words_of_its_own_or_without(api_only: bool):
    handle = lib.llamad_vocab_open(model_path().encode(), ffi.NULL, api_only)
    try:
        assert lib.llamad_knows_words(lib.llama_model_get_vocab(handle)) == (not api_only)
    finally:
        lib.llamad_model_close(handle)
