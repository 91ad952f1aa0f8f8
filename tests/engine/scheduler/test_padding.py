"""Prompts of unequal length on a GPU: prefilled in one graph, with padding that leaves no trace."""

import asyncio
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness
from support.hosted_model import Hosted
from support.live_daemon import model_path

from llamad.engine.loading import memory
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import EVENT_TEXT


def at_once(fake, h, prompts, n_predict=1, is_busy=False, **options):
    """The texts of prompts that are all there when the engine begins: it is held in a step of somebody else's."""
    fake.block(True)
    if not is_busy:
        h.submit(b"someone", n_predict=1)
    h.catch()
    tasks = [
        h.submit(prompt, n_predict=n_predict, **{name: values[i] for name, values in options.items()})
        for i, prompt in enumerate(prompts)
    ]
    fake.block(False)
    h.wait(*tasks)
    return [h.text(task) for task in tasks]


def open_harness(fake, **options):
    return Harness(
        fake,
        **{"n_slots": 8, "n_ctx": 1024, "n_batch": 1024, "n_ubatch": 1024, "has_device": True, **options},
    )


def make_fake(**options):
    return Fake(**{"n_ctx": 1024, "n_batch": 1024, "device_us": 200, "script": b"fine", **options})


def test_prompts_of_unequal_length_are_one_graph():
    fake = make_fake()
    with open_harness(fake) as h:
        at_once(fake, h, [b"%d" % i + b"x" * (40 + 3 * i) for i in range(8)])  # the first finds one slot busy
        n_decodes, n_graphs = fake.n_decodes, fake.n_graphs
        assert at_once(fake, h, [b"%d" % i + b"y" * (40 + 3 * i) for i in range(8)], 4) == [b"fine"] * 8
        assert fake.n_graphs - n_graphs == fake.n_decodes - n_decodes
        assert any(step.n_fillers for step in h.steps)


def test_so_are_prompts_in_slots_that_are_no_neighbours():
    fake = make_fake()
    with open_harness(fake) as h:
        for _ in range(2):
            n_decodes, n_graphs = fake.n_decodes, fake.n_graphs
            texts = at_once(fake, h, [b"x" * 40, b"y" * 44, b"z" * 30], id_slot=[0, 3, 5])
            assert texts == [b"f"] * 3
        assert fake.n_graphs - n_graphs == fake.n_decodes - n_decodes


def test_no_more_prompts_are_read_at_once_than_one_graph_holds():
    """A short prompt and a long one are more than 1,024 when they are equally long: the long one waits, and another
    short one does not wait behind it."""
    fake = make_fake(script=b"")
    with open_harness(fake) as h:
        prompts = [b"0" + b"x" * 100, b"1" + b"x" * 700, b"2" + b"x" * 90]
        n_decodes, n_graphs = fake.n_decodes, fake.n_graphs
        assert at_once(fake, h, prompts, 2, id_slot=[0, 2, 1]) == [b"yz"] * 3
        assert fake.n_graphs - n_graphs == fake.n_decodes - n_decodes
        order = [task for kind, task in h.order if kind == EVENT_TEXT]
        assert order.index(2) < order.index(4) < order.index(3)


def test_a_long_prompt_beside_a_short_one_is_worth_its_own_graph():
    fake = make_fake()
    with open_harness(fake, n_slots=2) as h:
        assert at_once(fake, h, [b"x" * 500, b"y" * 8], id_slot=[0, 1]) == [b"f"] * 2
        assert not any(step.n_fillers for step in h.steps)


def test_a_slot_with_a_long_prefix_is_not_read_along():
    """All of the others would have attention computed as far."""
    fake = make_fake(n_ctx=4096)
    with open_harness(fake, n_slots=3, n_ctx=4096) as h:
        h.wait(h.submit(b"p" * 3000, id_slot=1, n_predict=1))
        n_before = len(h.steps)
        at_once(fake, h, [b"x" * 40, b"y" * 40], id_slot=[0, 2])
        assert not any(step.n_fillers for step in h.steps[n_before:])


def test_nothing_is_padded_beyond_the_context_or_the_batch():
    """The fake counts what goes beyond either, and the harness asks it."""
    fake = make_fake(n_ctx=128, n_batch=256)
    with open_harness(fake, n_ctx=128, n_batch=256, n_ubatch=256) as h:
        h.wait(*[h.submit(b"%d" % i + b"k" * 100, n_predict=1) for i in range(3)])
        for n in (126, 120, 90):
            prompts = [b"%d" % i + b"k" * (n - 2 - 9 * i) for i in range(8)]
            assert all(at_once(fake, h, prompts))


def test_on_the_cpu_there_is_no_padding():
    fake = make_fake(device_us=0)
    with open_harness(fake, has_device=False) as h:
        at_once(fake, h, [b"%d" % i + b"x" * (20 + 3 * i) for i in range(8)])
        assert not any(step.n_fillers for step in h.steps)


@pytest.mark.parametrize("n_writers", [1, 3])
def test_beside_writers_too_and_nobody_notices(n_writers):
    """The fake counts up from the prompt's last byte, whatever has an output beside it."""
    fake = make_fake(script=b"", decode_us=300)
    with open_harness(fake) as h:
        writers = [h.submit(b"%d who writes" % i + b"!", n_predict=40) for i in range(n_writers)]
        for writer in writers:
            h.wait_first(writer)
        texts = at_once(fake, h, [b"%d" % i + b"x" * (30 + 5 * i) for i in range(4)], 9, is_busy=True)
        h.wait(*writers)
        assert texts == [bytes(range(ord("y"), ord("y") + 9))] * 4
        assert [h.text(writer) for writer in writers] == [bytes(range(ord('"'), ord('"') + 40))] * n_writers


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=2, max_size=12),
    n_slots=st.integers(2, 9),
    n_ubatch=st.sampled_from([64, 256, 512]),
    n_predict=st.integers(0, 5),
)
def test_any_lengths_leave_what_was_asked_for(lengths, n_slots, n_ubatch, n_predict):
    """The fake counts up from the prompt's last byte. In the end the harness compares each slot's tokens with the cells
    of the model's memory."""
    fake = Fake(n_ctx=512, n_batch=512, device_us=50)
    with open_harness(fake, n_slots=n_slots, n_ctx=512, n_batch=512, n_ubatch=n_ubatch) as h:
        prompts = [b"%d" % i + b"x" * n for i, n in enumerate(lengths)]
        assert at_once(fake, h, prompts, n_predict) == [b"yz{|}"[:n_predict]] * len(lengths)


def test_padding_does_not_change_what_llama_cpp_computes(monkeypatch, tmp_path):
    """The real model, computed here as if a device did it: alone each prompt has no padding, together they have."""
    monkeypatch.setattr(memory, "computes", lambda *_: True)
    trace = tmp_path / "steps.jsonl"
    rng = random.Random(3)
    prompts = [[rng.randrange(1000, 40000) for _ in range(n)] for n in (20, 33, 26, 40)]
    with Hosted(model_path(), "-np", "4", "-c", "1024", "--step-trace", str(trace)) as h:

        async def alone():
            return [(await h.write(0, prompt, 6))[0].tokens for prompt in prompts]

        async def together():
            sinks = await asyncio.gather(*[h.write(i, prompt, 6) for i, prompt in enumerate(prompts)])
            return [sink.tokens for sink, _ in sinks]

        async def beside():
            """One writes in the middle of them, and an idle slot between has a prefix."""
            writer = asyncio.ensure_future(h.write(2, prompts[2], 30))
            await asyncio.sleep(0.2)
            sinks = await asyncio.gather(*[h.write(i, prompts[i], 6) for i in (0, 3)])
            return [sink.tokens for sink, _ in [await writer, *sinks]]

        expected = h.run(alone())
        assert h.run(together()) == expected
        written, *others = h.run(beside())
        assert written[:6] == expected[2]
        assert others == [expected[i] for i in (0, 3)]
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    assert any(step["n_fillers"] > 20 and step["n_writing"] == 0 for step in steps)
