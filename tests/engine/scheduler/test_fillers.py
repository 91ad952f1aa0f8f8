"""With a stream for each slot, slots at work are neighbours in one graph, by place or by fillers between them."""

import statistics

import pytest
from support.engine_harness import Harness
from support.timing_retries import learned

from llamad.client.events import Admitted
from llamad.engine.testing.fake import Fake


def fillers(h: Harness) -> list[int]:
    return [step.n_fillers for step in h.steps]


def test_holes_between_writers_are_filled_where_a_device_computes():
    fake = Fake(device_us=400)
    with Harness(fake, n_slots=8) as h:
        long = [h.submit(b"slot %d" % i, id_slot=i, n_predict=120) for i in (0, 3, 7)]
        h.wait(*long)
        n_filled = fillers(h).count(5)
        assert n_filled > 80  # until it is known that a device computes, nothing is filled
        assert fake.n_graphs < fake.n_decodes + 60
        alone = h.submit(b"alone", id_slot=0, n_predict=100)
        h.wait(alone)
        assert all(len(h.tokens(task)) == 120 for task in long)


def test_what_idle_slots_hold_is_as_before_the_filling():
    fake = Fake(device_us=400, script=b"once upon a time there was a slot")
    with Harness(fake, n_slots=3) as h:
        h.wait(h.submit(b"in the middle", id_slot=1))
        held = h.core.slot_tokens(1)
        h.wait(*[h.submit(b"beside it", id_slot=i, n_predict=30) for i in (0, 2)])
        assert sum(fillers(h)) > 0
        again = h.submit(b"in the middle", id_slot=1)
        h.wait(again)
        assert h.n_cached(again) > 0
        assert h.core.slot_tokens(1) == held


@pytest.mark.parametrize("options", [{"n_cells": 4096}, {"n_swa": 64}, {"can_share": False}])
def test_no_fillers_where_they_would_harm(options):
    fake = Fake(device_us=400, unified="n_cells" in options)
    with Harness(fake, n_slots=3, **options) as h:
        h.wait(*[h.submit(b"beside it", id_slot=i, n_predict=60) for i in (0, 2)])
        assert sum(fillers(h)) == 0


def test_no_fillers_where_the_processor_computes():
    with Harness(Fake(decode_us=400), n_slots=3) as h:
        h.wait(*[h.submit(b"beside it", id_slot=i, n_predict=60) for i in (0, 2)])
        assert sum(fillers(h)) == 0


def test_a_new_task_goes_beside_those_at_work():
    fake = Fake(decode_us=200)
    with Harness(fake, n_slots=6) as h:
        for i in range(6):
            h.wait(h.submit(b"use slot %d once" % i, id_slot=i, n_predict=1))
        long = h.submit(b"a long one at work", id_slot=4, n_predict=400)
        h.wait_first(long, Admitted)
        second = h.submit(b"quite another text", n_predict=300)
        h.wait_first(second, Admitted)
        third = h.submit(b"and something else again", n_predict=1)
        h.wait(third)
        assert h.slot(second) == 3  # 0 was unused for longer; of the neighbours 3 was
        assert h.slot(third) in (2, 5)


def test_an_idle_server_takes_the_least_recently_used_slot():
    with Harness(Fake(), n_slots=3) as h:
        for i in (2, 0, 1):
            h.wait(h.submit(b"use slot %d once" % i, id_slot=i, n_predict=1))
        task = h.submit(b"something else", n_predict=1)
        h.wait(task)
        assert h.slot(task) == 2


def reading_beside_writers(h: Harness) -> list[int]:
    """Prompt tokens of each step that also wrote."""
    return [
        step.n_tokens - step.n_decoding
        for step in h.steps
        if step.n_decoding and step.n_tokens > step.n_decoding
    ]


@learned
def test_a_devices_steps_with_prompts_are_worth_their_fixed_cost():
    """A step costs 4 ms and a token 2 µs more, so cutting a prompt small would only make more steps of 4 ms."""
    fake = Fake(n_ctx=8192, n_batch=2048, device_us=200, decode_us=4000, token_us=2)
    with Harness(fake, n_slots=7, n_ctx=8192, n_batch=2048, has_device=True) as h:
        writers = [h.submit(b"%d who writes" % i, n_predict=60) for i in range(5)]
        for writer in writers:
            h.wait_first(writer)
        readers = [h.submit(b"%d" % i + b"x" * 6000, n_predict=1) for i in range(2)]
        h.wait(*readers)
        chunks = reading_beside_writers(h)
        assert statistics.median(chunks[-12:]) >= 512  # also after many of them that were equal
        assert len(chunks) < 30


@learned
def test_a_devices_steps_with_prompts_keep_to_the_gap_where_tokens_are_dear():
    """A writer's step takes 1 ms here and a prompt token 10 µs: some 400 of them are what the gap has room for."""
    fake = Fake(n_ctx=8192, n_batch=2048, device_us=1000, token_us=10)
    with Harness(fake, n_slots=2, n_ctx=8192, n_batch=2048, n_ubatch=2048, has_device=True) as h:
        writer = h.submit(b"someone who writes", n_predict=400)
        h.wait_first(writer)
        h.wait(h.submit(b"x" * 8000, n_predict=1))
        chunks = reading_beside_writers(h)
        assert len(chunks) > 8
        assert sorted(chunks[8:])[len(chunks[8:]) // 2] < 1500  # the middle one: a busy machine sleeps longer


@learned
def test_a_size_that_was_dear_once_is_tried_again():
    """The first steps of their kind load code, and say nothing of the next: here a token takes 100 µs, then none."""
    fake = Fake(n_ctx=131072, n_batch=2048, device_us=200, token_us=100)
    with Harness(fake, n_slots=2, n_ctx=131072, n_batch=2048, has_device=True) as h:
        h.wait_first(h.submit(b"someone who writes", n_predict=4000))
        h.wait(h.submit(b"x" * 1200, n_predict=1))
        fake.take(0)
        h.wait(h.submit(b"y" * 100000, n_predict=1))
        chunks = reading_beside_writers(h)
        assert chunks.count(128) > 100
        assert chunks[-10] >= 512


@learned
def test_a_first_step_that_was_dear_does_not_make_later_ones_long():
    """Reading the least took long once, and what may take no longer than that would be much now."""
    fake = Fake(n_ctx=65536, n_batch=2048, device_us=200, token_us=100)
    with Harness(fake, n_slots=2, n_ctx=65536, n_batch=2048, n_ubatch=2048, has_device=True) as h:
        h.wait_first(h.submit(b"someone who writes", n_predict=4000))
        h.wait(h.submit(b"x" * 300, n_predict=1))
        fake.take(8)
        h.wait(h.submit(b"y" * 60000, n_predict=1))
        assert statistics.median(reading_beside_writers(h)[20:]) <= 512


def burst_beside_a_writer(fake: Fake, h: Harness, n: int, n_prompt: int) -> int:
    """The writer; n prompts that came at once meanwhile have been answered."""
    writer = h.submit(b"someone who writes", n_predict=100)
    h.wait_first(writer)
    h.catch()
    tasks = [h.submit(b"%02d" % i + b"y" * n_prompt, n_predict=4) for i in range(n)]
    fake.block(False)
    h.wait(*tasks)
    return writer


def test_first_tokens_come_before_next_ones_where_more_wait_for_them():
    fake = Fake(n_ctx=512, n_batch=2048, device_us=500, decode_us=30000)  # nobody sits out for long
    with Harness(fake, n_slots=16, n_batch=2048, has_device=True) as h:
        burst_beside_a_writer(fake, h, 14, 300)
        assert max(reading_beside_writers(h)) > 550  # the most that one reads at once is 512


def test_a_batch_is_never_larger_than_llama_cpp_takes():
    """Prompts whose rests would just fit beside each other, with nobody writing and with somebody. The fake counts a
    batch that is too large, and the harness asks it."""
    fake = Fake(n_ctx=2048, n_batch=512, device_us=100)
    with Harness(fake, n_slots=6, n_ctx=2048, n_batch=512, n_ubatch=256, has_device=True) as h:
        for n_writers in (0, 1):
            writers = [h.submit(b"someone who writes", n_predict=200) for _ in range(n_writers)]
            fake.block(True)
            tasks = [
                h.submit(b"%d" % i + b"z" * n, n_predict=2) for i, n in enumerate((300, 110, 410, 130, 60))
            ]
            fake.block(False)
            h.wait(*tasks, *writers)
            assert all(len(h.tokens(task)) == 2 for task in tasks)


def test_who_ends_does_not_change_the_shape_where_many_write():
    fake = Fake(device_us=300)
    with Harness(fake, n_slots=16, has_device=True) as h:
        tasks = [h.submit(b"writer %d" % i, n_predict=40 + 4 * (i % 4)) for i in range(12)]
        h.wait(*tasks)
        widths = [
            step.n_tokens
            for step in h.steps
            if step.n_decoding and step.n_tokens == step.n_decoding + step.n_fillers
        ]
        assert widths.count(12) > 40  # also when nine are left
        assert sum(fillers(h)) > 0


def test_a_shape_is_kept_for_some_steps_and_then_given_up():
    fake = Fake(device_us=300)
    with Harness(fake, n_slots=20, has_device=True) as h:
        ends = [h.submit(b"ends %d" % i, n_predict=40 + i) for i in range(4)]
        stay = [h.submit(b"stays %d" % i, n_predict=120) for i in range(16)]
        h.wait(*ends, *stay)
        wide = [
            step for step in h.steps if step.n_tokens == 20 and step.n_decoding == 16 and step.n_fillers == 4
        ]
        assert 0 < len(wide) <= 13
        assert sum(step.n_tokens == 16 and step.n_decoding == 16 for step in h.steps) > 30


def test_no_filler_makes_the_others_longer():
    """An idle slot with a long prefix would have attention computed as far for all."""
    fake = Fake(n_ctx=2048, n_batch=512, device_us=200)
    with Harness(fake, n_slots=3, n_ctx=2048, n_batch=512, has_device=True) as h:
        h.wait(h.submit(b"x" * 900, id_slot=1, n_predict=1))
        h.wait(*[h.submit(b"beside it", id_slot=i, n_predict=30) for i in (0, 2)])
        assert sum(fillers(h)) == 0


def test_prompts_are_read_one_after_the_other_before_anybody_goes_on():
    """Twelve arrive while one writes: each is answered when it is read, and the one who writes waits a little."""
    fake = Fake(n_ctx=512, n_batch=2048, device_us=200, decode_us=1000)
    with Harness(fake, n_slots=16, n_batch=2048, n_ubatch=256, has_device=True) as h:
        first = burst_beside_a_writer(fake, h, 12, 200)
        apart = [step.n_tokens for step in h.steps if step.n_tokens > 150 and step.n_decoding == 0]
        assert len(apart) > 6
        assert max(apart) <= 256
        h.wait(first)
        assert len(h.tokens(first)) == 100


@learned
def test_a_few_short_prompts_are_read_before_many_go_on():
    """Three of twelve are not many, but soon served: beside the others each step that reads would cost them more."""
    fake = Fake(n_ctx=512, n_batch=2048, device_us=8000, decode_us=2000)
    with Harness(fake, n_slots=16, n_batch=2048, has_device=True) as h:
        # What a prompt token costs is learned here, not from writers that come one by one where handing in is slow.
        h.wait(h.submit(b"x" * 400, n_predict=1))
        writers = [h.submit(b"%d who writes" % i, n_predict=40) for i in range(12)]
        for writer in writers:
            h.wait_first(writer)
        h.catch()
        n_before = len(h.steps)
        tasks = [h.submit(b"%d" % i + b"y" * 60, n_predict=4) for i in range(3)]
        fake.block(False)
        h.wait(*tasks)
        assert any(step.n_tokens > 150 and step.n_decoding == 0 for step in h.steps[n_before:])
        h.wait(*writers)
        assert all(len(h.tokens(writer)) == 40 for writer in writers)


def test_prompts_that_keep_arriving_do_not_stop_those_who_write():
    fake = Fake(n_ctx=512, n_batch=256, device_us=200, decode_us=3000)
    with Harness(fake, n_slots=4, n_batch=256, has_device=True) as h:
        writer = h.submit(b"someone who writes", n_predict=150)
        h.wait_first(writer)
        while h.end(writer) is None:
            h.wait(*[h.submit(b"%d" % i + b"y" * 300, n_predict=1) for i in range(3)])
        n_written = sum(step.n_decoding > 0 for step in h.steps)
        assert n_written > 100


@pytest.mark.parametrize("n_writers", [0, 2, 8])
def test_every_decode_for_a_device_has_an_output(n_writers):
    """One without is a graph that llama.cpp's CUDA keeps apart, and the captured one is launched again unchecked."""
    fake = Fake(n_ctx=2048, n_batch=256, device_us=100)
    with Harness(fake, n_slots=10, n_ctx=2048, n_batch=256, n_ubatch=128, has_device=True) as h:
        writers = [h.submit(b"%d who writes" % i, n_predict=80) for i in range(n_writers)]
        for writer in writers:
            h.wait_first(writer)
        h.wait(*[h.submit(b"%d" % i + b"x" * 1500, n_predict=2) for i in range(2)])
        h.wait(*writers)
        assert fake.n_silent == 0
