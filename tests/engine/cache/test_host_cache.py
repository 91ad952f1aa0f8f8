"""The prompt cache in host memory: what a slot held before it was given to another prompt comes back when it is asked
for again, within its bound and only to whom it belongs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.client.events import Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import ACTION_SHIFT, RESULT_DONE

MANY = 1 << 30
PAGE = 4096


def text(seed: int, n: int = 200) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


A, B, C = text(1), text(2), text(3)


def ask(h: Harness, prompt: bytes, **options) -> int:
    """How many of the prompt's tokens were not read; BOS alone, with which all begin, does not count."""
    task = h.submit(prompt, **({"n_predict": 4} | options))
    h.wait(task)
    return h.n_cached(task) if h.n_cached(task) > 1 else 0


def stat(h: Harness, name: str) -> int:
    return h.stats()["cache_" + name]


@pytest.mark.parametrize("unified", [False, True])
def test_a_prompt_whose_slot_was_taken_comes_back(unified):
    with Harness(Fake(unified=unified), n_slots=1, n_cells=512 if unified else 0, cache_bytes=MANY) as h:
        first = h.submit(A, n_predict=4)
        h.wait(first)
        assert ask(h, B) == 0
        assert (stat(h, "entries"), stat(h, "saves"), stat(h, "hits")) == (1, 1, 0)
        again = h.submit(A, n_predict=4)
        h.wait(again)
        assert h.n_cached(again) == len(A)
        assert h.text(again) == h.text(first)
        assert (stat(h, "entries"), stat(h, "hits"), stat(h, "restored")) == (2, 1, len(A))
        assert stat(h, "us") >= stat(h, "us_max") > 0


def test_a_device_keeps_nothing_until_it_is_known_what_reading_takes():
    """Its first long step loads code, and would make every state look worth its way over the bus."""
    fake = Fake(n_ctx=2048, n_batch=1024, device_us=100, token_us=50)
    with Harness(fake, n_slots=1, n_ctx=2048, n_batch=1024, has_device=True, cache_bytes=MANY) as h:
        saves = []
        for letter in b"abcd":
            ask(h, bytes([letter]) * 700)
            saves.append(stat(h, "saves"))
        assert saves == [0, 0, 1, 2]


def test_off_it_keeps_nothing():
    with Harness(Fake(), n_slots=1) as h:
        assert [ask(h, prompt) for prompt in (A, B, A)] == [0, 0, 0]
        assert (stat(h, "entries"), stat(h, "bytes"), stat(h, "saves")) == (0, 0, 0)


def test_a_part_of_an_entry_is_enough():
    with Harness(Fake(), n_slots=1, cache_bytes=MANY) as h:
        ask(h, A)
        ask(h, B)
        assert ask(h, A[:150] + b"!something else") == 151


def test_what_is_in_a_slot_is_taken_from_there():
    fake = Fake()
    with Harness(fake, n_slots=2, cache_bytes=MANY) as h:
        ask(h, A, id_slot=0)
        ask(h, B, id_slot=0)
        ask(h, A, id_slot=1)
        assert stat(h, "hits") == 1
        assert ask(h, A + b"more", id_slot=0) == len(A) + 1
        assert fake.n_copies == 1
        assert stat(h, "hits") == 1


def test_only_what_would_be_lost_is_saved():
    with Harness(Fake(), n_slots=2, cache_bytes=MANY) as h:
        ask(h, b"short")
        ask(h, A, id_slot=0)
        ask(h, A + b"!" * 20, id_slot=1)  # the other slot holds as much
        assert stat(h, "saves") == 0
        ask(h, B, id_slot=0)
        assert stat(h, "saves") == 0
        ask(h, A[:180] + b"?" * 20, id_slot=1)  # a small part is lost
        assert stat(h, "saves") == 0
        ask(h, C, id_slot=1)
        assert stat(h, "saves") == 1
        assert ask(h, A[:180] + b"?" * 20, id_slot=1) == 200
        ask(h, B, id_slot=1)  # C goes; what was restored is still there
        assert stat(h, "saves") == 2


def test_a_longer_state_takes_a_shorter_ones_place():
    with Harness(Fake(), n_slots=1, cache_bytes=MANY) as h:
        ask(h, A, n_predict=1)
        ask(h, B)
        ask(h, A + C)
        assert stat(h, "entries") == 2  # A, B
        ask(h, B)
        assert stat(h, "entries") == 2  # A + C, B
        assert ask(h, A + C) == len(A + C)


def test_a_turn_is_saved_if_computing_it_again_takes_longer_than_saving_all():
    """More conversations than slots: what a turn has added is a small part of each."""
    with Harness(Fake(decode_us=2000, token_us=500), n_slots=1, cache_bytes=MANY) as h:
        ask(h, A, n_predict=1)
        ask(h, B, n_predict=1)
        longer = A + b"a short question"
        assert ask(h, longer, n_predict=1) == 1 + len(A)  # with BOS
        ask(h, B)
        assert ask(h, longer + b"?") == 1 + len(longer)


def test_the_bound_holds_and_the_longest_unused_goes_first():
    prompts = [text(i) for i in range(1, 9)]
    n_entry = -(-(4 * 204 + 48 + 20 * 204) // PAGE) * PAGE
    with Harness(Fake(), n_slots=1, cache_bytes=3 * n_entry) as h:
        for i, prompt in enumerate(prompts):
            ask(h, prompt)
            assert stat(h, "bytes") == min(i, 3) * n_entry
        assert (stat(h, "entries"), stat(h, "dropped")) == (3, 4)
        # The slot holds the last; the three before it are kept.
        assert ask(h, prompts[4]) == 200  # used now, and the last was saved in the place of the fifth's elder
        assert ask(h, prompts[0]) == 0
        assert ask(h, prompts[4]) == 200
        assert stat(h, "bytes") <= 3 * n_entry


def test_a_state_larger_than_the_bound_is_not_kept():
    with Harness(Fake(), n_slots=1, cache_bytes=PAGE) as h:
        assert [ask(h, prompt) for prompt in (A, B, A)] == [0, 0, 0]
        assert (stat(h, "entries"), stat(h, "bytes")) == (0, 0)


def test_an_entry_that_is_wanted_stays_when_another_needs_its_place():
    n_entry = -(-(4 * 204 + 48 + 20 * 204) // PAGE) * PAGE
    with Harness(Fake(), n_slots=1, cache_bytes=n_entry) as h:
        ask(h, A)
        ask(h, B)
        assert ask(h, A) == 200  # B had no room beside it
        assert ask(h, B) == 0


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ({"owner": 1}, {"owner": 2}),
        ({"owner": 1}, {}),
        ({"number": 1}, {"number": 2}),
        ({}, {"cache_prompt": False}),
    ],
)
def test_entries_belong_to_a_key_and_to_adapters(mine, other):
    with Harness(Fake(), n_slots=1, cache_bytes=MANY) as h:
        ask(h, A, **mine)
        ask(h, B, **mine)
        assert ask(h, A, **other) == 0
        ask(h, C, **mine)
        assert ask(h, A, **mine) == 200


def test_a_restore_that_fails_leaves_the_task_reading():
    fake = Fake()
    with Harness(fake, n_slots=1, cache_bytes=MANY) as h:
        first = h.submit(A, n_predict=4)
        h.wait(first)
        ask(h, B)
        fake.fail_state()
        again = h.submit(A, n_predict=4)
        h.wait(again)
        assert h.n_cached(again) == 0
        assert h.text(again) == h.text(first)
        assert (stat(h, "hits"), stat(h, "entries")) == (0, 1)  # it is not tried again
        assert ask(h, B) == 200


def test_a_restore_that_fails_leaves_the_copy():
    fake = Fake()
    with Harness(fake, n_slots=2, cache_bytes=MANY) as h:
        ask(h, A + C, id_slot=0)
        ask(h, B, id_slot=0)
        ask(h, A[:100] + b"!" * 40, id_slot=1, cache_prompt=False)
        fake.fail_state()
        assert ask(h, A + C, id_slot=0) == 101


def test_a_memory_that_cannot_be_cut_takes_whole_entries_only():
    fake = Fake(can_cut=False)
    with Harness(fake, n_slots=1, can_share=False, cache_bytes=MANY) as h:
        ask(h, A, n_predict=1)
        ask(h, B, n_predict=1)
        assert ask(h, A[:150] + b"something else") == 0
        ask(h, B, n_predict=1)
        assert ask(h, A + b"more") == 201
        ask(h, B, n_predict=1)
        # The longer one has not taken the shorter one's place.
        assert ask(h, A + b"else") == 201


def test_a_window_takes_whole_entries_only():
    with Harness(Fake(), n_slots=1, n_swa=32, cache_bytes=MANY) as h:
        ask(h, A, n_predict=1)
        ask(h, B, n_predict=1)
        assert ask(h, A[:150] + b"something else") == 0
        ask(h, B, n_predict=1)
        assert ask(h, A + b"more") == 201


def test_grouped_positions_are_not_kept():
    with Harness(Fake(), n_slots=1, group_n=4, group_w=32, cache_bytes=MANY) as h:
        assert [ask(h, prompt) for prompt in (A, B, A)] == [0, 0, 0]
        assert stat(h, "saves") == 0


def test_copies_are_done_before_their_slot_is_saved():
    """The second holds what is only copied at the next decode, and is given away before: Fake counts a state that is
    read too early as a bad call."""
    fake = Fake(decode_us=200)
    with Harness(fake, n_slots=3, cache_bytes=MANY) as h:
        first = h.submit(A + B, n_predict=-1, id_slot=0)
        h.wait_first(first)
        h.catch()
        second = h.submit(A + B[:150], n_predict=0, id_slot=1)
        h.port.abort(second)
        third = h.submit(C, n_predict=2, id_slot=1)
        fake.block(False)
        h.wait(second, third)
        h.port.abort(first)
        h.wait(first)
        assert isinstance(h.end(second), Failed)


def test_cells_that_are_still_to_move_are_not_saved():
    """In a unified cache a slot took over cells that a context shift had marked to move, and was itself given away
    before any decode: its state was saved with keys at their old positions."""
    fake = Fake(n_ctx=2048, n_batch=1024, device_us=100, token_us=50, unified=True)
    options = {"n_ctx": 2048, "n_batch": 1024, "n_cells": 8192, "has_device": True, "cache_bytes": MANY}
    long = [text(i, 700) for i in range(6)]
    with Harness(fake, n_slots=3, **options) as h:
        for prompt in long[:4]:  # what reading and saving take becomes known
            ask(h, prompt, id_slot=0, n_predict=1)
        n_saves = stat(h, "saves")
        assert n_saves > 0
        assert h.done(h.act(ACTION_SHIFT, 0, n_keep=5, n_discard=50)).result == RESULT_DONE
        shifted = long[3][:4] + long[3][54:]
        h.port.announce()  # a burst: tasks are admitted as they come, and decoded at its end
        taken = h.submit(shifted + b"more", id_slot=1, wake=False)
        h.until(lambda: len(h.core.slot_tokens(1)) == len(shifted) + 1)
        h.port.abort(taken)
        h.wait(taken)
        tasks = [h.submit(long[4 + i], id_slot=i, n_predict=1, wake=False) for i in (0, 1)]
        h.until(lambda: stat(h, "saves") > n_saves)
        h.port.wake()
        h.wait(*tasks)


def test_a_unified_cache_keeps_what_it_evicts():
    fake = Fake(unified=True)
    with Harness(fake, n_slots=3, n_cells=512, cache_bytes=MANY) as h:
        for i, prompt in enumerate((A, B, C)):  # the third needs the first one's cells
            ask(h, prompt, id_slot=i)
        assert fake.held(0) == 0
        assert stat(h, "saves") == 1
        assert ask(h, A, id_slot=0) == 200
        assert stat(h, "hits") == 1


def test_what_idle_slots_give_up_is_dropped_if_the_flag_says_so():
    """--no-cache-idle-slots: only what a slot gives up for another prompt of its own is saved."""
    with Harness(Fake(unified=True), n_slots=3, n_cells=512, cache_bytes=MANY, cache_idle=False) as h:
        for i, prompt in enumerate((A, B, C)):
            ask(h, prompt, id_slot=i)
        assert stat(h, "saves") == 0
        ask(h, A, id_slot=2)
        assert stat(h, "saves") == 1


def test_an_entry_stays_while_room_is_made_for_it():
    """Evicting an idle slot saved its state in the place of the very entry that the room was for, and the search for
    that entry then read past the cache's end."""
    n_entry = -(-(4 * 204 + 48 + 20 * 204) // PAGE) * PAGE
    with Harness(Fake(unified=True), n_slots=3, n_cells=512, cache_bytes=n_entry) as h:
        for i, prompt in enumerate((A, B, C)):
            ask(h, prompt, id_slot=i)
        assert (stat(h, "entries"), stat(h, "bytes")) == (1, n_entry)
        assert ask(h, A, id_slot=0) == 200  # B is evicted, and not saved
        assert (stat(h, "hits"), stat(h, "dropped")) == (1, 0)
        assert ask(h, B, id_slot=1) == 0


def test_a_failed_decode_leaves_the_entries():
    fake = Fake()
    with Harness(fake, n_slots=1, cache_bytes=MANY) as h:
        ask(h, A)
        ask(h, B)
        fake.fail_next(-3, n_times=2)
        failed = h.submit(C)
        h.wait(failed)
        assert isinstance(h.end(failed), Failed)
        assert ask(h, A) == 200


steps = st.lists(
    st.tuples(
        st.integers(0, 5), st.integers(60, 240), st.sampled_from(["ask", "ask", "start", "fail", "abort"])
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, n_slots=st.integers(1, 3), unified=st.booleans(), n_pages=st.integers(1, 12))
def test_any_order_keeps_memory_slots_and_bound_in_step(steps, n_slots, unified, n_pages):
    """What a slot says it holds is what its sequence holds (Harness.check_cells), and the text is always right."""
    fake = Fake(unified=unified)
    n_cells = 300 * n_slots if unified else 0
    with Harness(fake, n_slots=n_slots, n_cells=n_cells, cache_bytes=n_pages * PAGE) as h:
        tasks = []
        for seed, n, action in steps:
            prompt = text(seed // 2, 50 + 50 * (seed % 2)) + text(seed, n - 60)
            if action == "fail":
                fake.fail_state()
            elif action == "abort" and tasks:
                h.port.abort(tasks[n % len(tasks)])
            else:
                tasks.append(h.submit(prompt, n_predict=4, owner=int(seed == 5)))
                if action == "ask":
                    h.wait(tasks[-1])
                    if not isinstance(h.end(tasks[-1]), Failed):
                        # The fake counts upwards from the last byte.
                        assert h.text(tasks[-1]) == bytes(prompt[-1] + k for k in (1, 2, 3, 4))
            assert stat(h, "bytes") <= n_pages * PAGE
        h.wait(*tasks)
