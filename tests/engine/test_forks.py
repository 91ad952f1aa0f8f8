"""Conversations that begin alike, as sub-agents' do, take a slot each as long as others are worth less."""

from __future__ import annotations

import pytest
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake

N_CTX = 4096
STEM = bytes(33 + (i * i + i // 7) % 90 for i in range(1200))
ANSWERED = 4  # tokens of an answer; the last one is computed with the next turn


def text(seed: int, n: int) -> bytes:
    return bytes(33 + (i * i + 11 * seed + i // (seed + 2)) % 90 for i in range(n))


TASKS = [STEM + b"%d: " % i + text(i, 400) for i in range(4)]


def engine(n_slots: int, is_unified: bool, **more) -> Harness:
    n_cells = n_slots * N_CTX if is_unified else 0
    fake = Fake(n_ctx=N_CTX, n_batch=512, unified=is_unified, **more.pop("fake", {}))
    return Harness(fake, n_slots=n_slots, n_ctx=N_CTX, n_batch=512, n_cells=n_cells, **more)


def ask(h: Harness, prompt: bytes, **options) -> tuple[int, int, bytes]:
    """The slot, how many tokens were computed, and the prompt with its answer."""
    task = h.submit(prompt, **({"n_predict": ANSWERED} | options))
    h.wait(task)
    return h.slot(task), 1 + len(prompt) - h.n_cached(task), prompt + h.text(task)


@pytest.mark.parametrize("is_unified", [False, True])
@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
def test_each_turn_of_two_sub_agents_computes_what_is_new(is_unified, cache_bytes):
    """Both were one slot's: each turn computed all that its agent has beyond the common beginning."""
    with engine(3, is_unified, cache_bytes=cache_bytes) as h:
        agents = [ask(h, task)[2] for task in TASKS[:2]]
        for turn in range(3):
            for i in range(2):
                question = text(7 * turn + i, 30)
                _, n_computed, agents[i] = ask(h, agents[i] + question)
                assert n_computed == len(question) + 1, (turn, i)
        assert h.stats()["n_copied"] > 0


def test_a_long_conversation_makes_no_room_for_a_fork():
    with engine(2, False) as h:
        long = text(90, 3000)
        slots = [ask(h, prompt)[0] for prompt in (long, TASKS[0], TASKS[1])]
        assert slots[1] == slots[2] != slots[0]
        assert ask(h, long)[1] == 1


def test_of_forks_the_oldest_gives_way():
    with engine(3, True) as h:
        slots = [ask(h, task)[0] for task in TASKS]
        assert sorted(slots[:3]) == [0, 1, 2]
        assert slots[3] == slots[0]
        assert [ask(h, task)[1] for task in TASKS[1:]] == [1, 1, 1]


@pytest.mark.parametrize("more", [{"id_slot": 0}, {"session": 5}])
def test_what_the_client_names_is_replaced(more):
    """An edited conversation is no other one."""
    with engine(3, True) as h:
        assert [ask(h, task, **more)[0] for task in TASKS] == [0] * 4


def test_a_short_end_is_no_reason_to_fork():
    with engine(3, True) as h:
        assert {ask(h, STEM + text(i, 200))[0] for i in range(4)} == {0}


@pytest.mark.parametrize(
    "options", [{"can_share": False, "fake": {"can_cut": False}}, {"group_n": 4, "group_w": 32}]
)
def test_a_memory_that_cannot_be_copied_is_not_forked(options):
    with engine(3, False, **options) as h:
        for task in TASKS[:2]:
            ask(h, task)
        assert h.stats()["n_copied"] == 0


def test_one_slot_in_turns_restores_what_each_agent_has():
    """The ends are a small part of what is copied for them, but computing them takes longer."""
    with engine(1, False, cache_bytes=1 << 30, fake={"token_us": 1000}) as h:
        agents = [ask(h, STEM + b"%d: " % i + text(i, 150))[2] for i in range(2)]
        for turn in range(3):
            for i in range(2):
                question = text(7 * turn + i, 30)
                _, n_computed, agents[i] = ask(h, agents[i] + question)
                assert n_computed == len(question) + 1, (turn, i)
        assert h.stats()["cache_hits"] == 6
