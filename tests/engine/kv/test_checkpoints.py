"""Checkpoints of a memory that cannot be cut: where they are made, how many and how large, and whom they serve. The
fake counts one that is restored to other tokens than its own as a bad call."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.client.events import Failed
from llamad.engine.testing.fake import Fake

MANY = 1 << 30
PAGE = 4096


def text(seed: int, n: int = 200) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


A, B, C = text(1), text(2), text(3)


def harness(**options) -> Harness:
    given = {
        "n_slots": 1,
        "can_share": False,
        "n_checkpoints": 32,
        "checkpoint_min_step": 8192,
        "checkpoint_bytes": MANY,
    }
    return Harness(Fake(can_cut=False), **(given | options))


def ask(h: Harness, prompt: bytes, **options) -> int:
    task = h.submit(prompt, **({"n_predict": 4} | options))
    h.wait(task)
    assert h.text(task) == bytes(prompt[-1] + k for k in (1, 2, 3, 4))
    return h.n_cached(task)


def stat(h: Harness, name: str) -> int:
    return h.stats()["checkpoint" + name]


def test_the_same_prompt_again_is_nearly_all_there():
    with harness() as h:
        assert ask(h, A) == 0
        assert ask(h, A) == 201 - 4
        assert (stat(h, "s"), stat(h, "_made"), stat(h, "_used")) == (1, 1, 1)


def test_where_a_conversation_went_on_it_can_be_edited():
    with harness() as h:
        ask(h, A)
        answer = bytes(A[-1] + k for k in (1, 2, 3, 4))
        # All but the last token of the answer was decoded.
        assert ask(h, A + answer + B[:100]) == 204
        assert ask(h, A + answer + C[:90]) == 201 - 4  # the next would have been too near


def test_the_second_fork_at_a_place_finds_it():
    with harness() as h:
        ask(h, A + B)
        assert ask(h, A + C) == 0
        assert ask(h, A + text(4)) == 201


def test_a_plain_memory_makes_none():
    with Harness(Fake(), n_slots=1) as h:
        ask(h, A)
        assert ask(h, A) == 200
        assert stat(h, "_made") == 0


@pytest.mark.parametrize("n_max", [1, 2, 3])
def test_their_number_is_bounded(n_max):
    with harness(n_checkpoints=n_max) as h:
        prompt = b""
        for i in range(6):
            prompt += text(i, 50)
            ask(h, prompt)
            assert stat(h, "s") <= n_max
        assert stat(h, "_made") >= 6
        assert stat(h, "_dropped") == stat(h, "_made") - n_max
        assert ask(h, prompt) > 250  # the newest stays


def test_their_bytes_are_bounded_over_all_slots():
    with harness(n_slots=3, checkpoint_bytes=2 * PAGE) as h:
        for i in range(3):
            ask(h, text(i), id_slot=i)
            assert stat(h, "_bytes") == min(i + 1, 2) * PAGE
        assert [ask(h, text(i), id_slot=i) > 1 for i in (2, 1, 0)] == [True, True, False]
        assert stat(h, "_bytes") <= 2 * PAGE


def test_one_that_has_no_room_is_not_made():
    with harness(checkpoint_bytes=PAGE - 1) as h:
        assert [ask(h, A), ask(h, A)] == [0, 0]
        assert stat(h, "s") == 0


@pytest.mark.parametrize(
    ("mine", "other"), [({"owner": 1}, {"owner": 2}), ({"number": 1}, {}), ({}, {"cache_prompt": False})]
)
def test_they_belong_to_a_key_and_to_adapters(mine, other):
    with harness(cache_bytes=MANY) as h:
        ask(h, A, **mine)
        assert ask(h, A, **other) == 0
        assert stat(h, "_used") == 0


def test_they_come_back_with_their_prompt():
    with harness(cache_bytes=MANY) as h:
        ask(h, A)
        ask(h, B)
        assert ask(h, A[:198] + b"another end") == 197
        assert h.stats()["cache_hits"] == 1


def test_a_restore_that_fails_leaves_the_task_reading():
    with harness() as h:
        ask(h, A)
        h.fake.fail_state()
        assert ask(h, A) == 0
        assert ask(h, A) == 197


steps = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(0, 3), st.integers(2, 150), st.sampled_from(["ask"] * 4 + ["fail"])
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps, n_slots=st.integers(1, 3), n_max=st.integers(1, 4), n_pages=st.integers(1, 8))
def test_any_order_keeps_memory_and_slots_in_step(steps, n_slots, n_max, n_pages):
    with harness(
        n_slots=n_slots, n_checkpoints=n_max, checkpoint_bytes=n_pages * PAGE, cache_bytes=16 * PAGE
    ) as h:
        for seed, other, n, action in steps:
            if action == "fail":
                h.fake.fail_state()
            task = h.submit(text(seed, 2 * n) + text(other, n), n_predict=4, owner=int(seed == 4))
            h.wait(task)
            assert not isinstance(h.end(task), Failed)
            assert stat(h, "_bytes") <= n_pages * PAGE
            assert stat(h, "_bytes") + h.stats()["cache_bytes"] <= 16 * PAGE
            assert h.core.check_integrity() == 0
