"""Requests survive the end of their engine: the next one continues them, and for the same logits nobody sees a
difference."""

import asyncio
import random
import struct

import pytest
from support.mortal_engine import MortalEngine
from support.mortal_tasks import ALL, FIRST_BYTE, chaos, task

from llamad.client.command import packed_biases, packed_run
from llamad.engine.testing.fake_drafter import FakeDrafter
from llamad.protocol.blobs import Blob
from llamad.protocol.row_ids import row_ids

FAKE_ROW = 8  # floats


def run(make, tasks, *, seeds=range(6), n_crashes=3, **options):
    """The same results with crashes as without."""

    async def work(seed=None):
        engine = MortalEngine(make, resume_max=n_crashes, **options)
        made = await tasks(engine)
        crashes = random.Random(seed) if seed is not None else None
        results = await engine.run(made, crashes, n_crashes)
        n_went_on = engine.n_went_on
        await engine.close()
        return results, n_went_on

    expected, _ = asyncio.run(work())
    n_went_on = 0
    for seed in seeds:
        results, n = asyncio.run(work(seed))
        assert results == expected, f"seed {seed}"
        n_went_on += n
    assert n_went_on > 0
    return expected


CHAINS = {
    "greedy": {"temperature": 0.0},
    "default": {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "whole": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "xtc": {"chain": ("xtc", "top_k", "xtc", "temperature"), "xtc_probability": 0.5, "xtc_threshold": 0.02},
    "mirostat_1": {"mirostat": 1},
    "mirostat_2": {"mirostat": 2, "mirostat_tau": 3.0},
    "adaptive": {"chain": (*ALL, "adaptive_p"), "adaptive_target": 0.3},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.4, "repeat_last_n": 100},
    "dry": {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 1},
    "infill": {"chain": ("top_k", "temperature", "infill"), "temperature": 0.05, "top_k": 30},
}


@pytest.mark.parametrize("name", CHAINS)
def test_samplers_go_on(name):
    async def tasks(engine):
        return [
            task(engine, prompt, seed=i, **CHAINS[name]) for i, prompt in enumerate([b"one", b"two", b"six"])
        ]

    run(chaos(), tasks)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("post", [False, True])
def test_probabilities_stops_and_held_text_go_on(stream, post):
    async def tasks(engine):
        stops = [b"\xc3\xa9t\xc3\xa9 impossible", b"ab", b"\x80\x81"]
        return [
            task(engine, b"p%d" % i, seed=i, n_probs=i, post_sampling_probs=post, stops=stops, stream=stream)
            for i in range(5)
        ]

    run(chaos(), tasks)


def test_a_long_answer_without_a_stream_is_not_lost():
    """It is told about every 16 tokens."""

    async def work():
        engine = MortalEngine(chaos(decode_us=1000))
        sink = engine.submit(task(engine, n_predict=400, stream=False, temperature=0.0))
        while len(sink.tokens) < 128:
            await asyncio.sleep(0)
        engine.kill()
        n_known = len(sink.tokens)
        engine.start()
        await asyncio.wait_for(sink.ended.wait(), 30)
        assert engine.client.stats()["n_recomputed"] >= n_known
        assert sink.done.n_decoded == 400 == len(sink.tokens)
        await engine.close()

    asyncio.run(work())


def test_grammars_go_on():
    """Compiled again in the next engine, and brought to where they were."""

    async def tasks(engine):
        made = []
        for text in (
            'root ::= [a-z]+ (" " [a-z]+)* "."',
            'root ::= ("(" root ")" | [a-f0-9])+',
            "root ::= [^x]*",
        ):
            grammar = await engine.asking.compile(text, 10**6)
            made += [task(engine, b"g", grammar=grammar, seed=i, stream=i == 0) for i in range(2)]
        return made

    run(chaos(), tasks)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_drafts_go_on(share):
    def drafts(core, fake):
        assert core.draft_with(FakeDrafter(fake.ctx, share=share), 4)

    async def tasks(engine):
        greedy = [task(engine, b"d%d" % i, temperature=0.0, n_probs=i) for i in range(2)]
        grammar = await engine.asking.compile('root ::= ("abcdefgh " [a-z] " ")+', 10**6)
        return [
            *greedy,
            task(engine, b"x", **CHAINS["xtc"]),
            task(engine, b"f", grammar=grammar, temperature=0.0),
        ]

    run(chaos(), tasks, drafts=drafts)


@pytest.mark.parametrize("n_keep", [-1, 0, 5])
def test_shifted_contexts_go_on(n_keep):
    async def tasks(engine):
        return [task(engine, b"s%d" % i, n_predict=300, n_keep=n_keep, seed=i) for i in range(3)]

    run(chaos(n_ctx=64), tasks, n_ctx=64)


def test_several_completions_of_one_prompt_go_on():
    async def tasks(engine):
        group = engine.client.new_group()
        return [task(engine, b"a longer prompt" * 5, group=group, seed=i) for i in range(6)]

    run(chaos(), tasks)


def test_prompt_probabilities_come_once():
    async def tasks(engine):
        prompt = b"to be or not to be " * 20
        return [task(engine, prompt, n_probs=2, prompt_probs=True, progress=True, n_predict=40)]

    run(chaos(decode_us=2000), tasks, n_batch=32, seeds=range(10))


def test_indented_text_and_biases_go_on():
    async def tasks(engine):
        newline_and_blank = struct.pack("<2i", FIRST_BYTE + 10, FIRST_BYTE + 32)
        bias = packed_biases(newline_and_blank, struct.pack("<2d", 6.0, 6.0))
        return [task(engine, b"i%d" % i, n_indent=1, bias=bias, seed=i, n_predict=60) for i in range(4)]

    run(chaos(decode_us=500), tasks, seeds=range(8))


@pytest.mark.parametrize(
    "kind", [{"recurrent": True, "can_cut": False}, {"n_swa": 32}, {"unified": True, "n_cells": 600}]
)
def test_all_kinds_of_memory_go_on(kind):
    async def tasks(engine):
        return [task(engine, b"m%d" % i, seed=i, n_predict=150) for i in range(6)]

    options = {name: kind[name] for name in ("n_swa", "n_cells") if name in kind}
    if "can_cut" in kind:
        options["can_share"] = False
    run(chaos(**kind), tasks, **options)


def test_images_go_on():
    """Their rows are mapped in the next engine, too."""

    async def tasks(engine):
        made = []
        for i in range(3):
            before, after = (engine.vocab.tokenize(b"text" * 9, is_first, True) for is_first in (True, False))
            blob = Blob(20 * FAKE_ROW * 4)
            blob.size = blob.capacity
            packed = packed_run(blob.id, 0, -1, len(before) // 4, 20)
            made.append(task(engine, seed=i, stream=i != 1, penalty=before + after, repeat_penalty=1.2))
            made[-1].prompt = before + row_ids(b"file %d" % i, 0, 20, 20, False) + after
            made[-1].rows = await engine.client.lend_rows(packed, [blob])
        return made

    run(chaos(decode_us=300), tasks, n_row=FAKE_ROW)
