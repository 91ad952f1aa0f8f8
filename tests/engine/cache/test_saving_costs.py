"""What a device saves of the prompts that slots give up: what takes longer to compute again than to copy."""

from __future__ import annotations

import random

import pytest
from support.states.adopting_engine import SIZES, Chained, Cut, answered

from llamad.engine.testing.fake import Fake
from llamad.protocol.cache_memory import CacheMemory

N_SLOTS = 2
N_AGENTS = 5
N_TURNS = 4
LONG = 1500


def text(seed: int, n: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(33, 120) for _ in range(n))


def computed_again(token_us: int, state_us: int, n_turn: int = 80) -> float:
    """The share of the prompt tokens that are computed again when more agents than slots take turns. The queue is never
    empty, and some slot is always busy."""
    fake = Fake(unified=True, token_us=token_us, state_us=state_us, **SIZES)
    with Chained(CacheMemory(), fake, n_slots=N_SLOTS, has_device=True) as h:
        prompts = [text(i, LONG) for i in range(N_AGENTS)]
        n_seen = [0] * N_AGENTS  # tokens of each conversation that were computed before
        tasks = {h.submit(prompt, n_predict=4): i for i, prompt in enumerate(prompts)}
        n_all = n_again = 0
        for turn in range(N_TURNS):
            for task, i in list(tasks.items()):
                h.wait(task)
                n_all += len(prompts[i])
                n_again += max(0, n_seen[i] - h.n_cached(task))
                n_seen[i] = len(answered(prompts[i]))
                prompts[i] = answered(prompts[i]) + text(100 * turn + i, n_turn)
                del tasks[task]
                tasks[h.submit(prompts[i], n_predict=4)] = i
        h.wait(*tasks)
        return n_again / n_all


def test_what_is_dear_to_compute_is_computed_once():
    """But for an end now and then, which is as cheap to compute as to save."""
    assert computed_again(token_us=40, state_us=2000) < 0.05


def test_a_part_may_take_longer_to_save_than_to_compute():
    """Up to twice as long, for it is saved once, and would be computed again in every turn."""
    assert computed_again(token_us=30, state_us=20_000, n_turn=508) < 0.05


def test_what_is_cheap_to_compute_is_computed_again():
    """A state that takes as long as 20 times its tokens is saved at most now and then, to see what it takes."""
    assert computed_again(token_us=2, state_us=20_000) > 0.5


@pytest.mark.parametrize(("depth_us", "share"), [(0, 1.0), (40, 0.05)])
def test_a_token_at_the_end_of_a_long_prompt_costs_more(depth_us, share):
    """It attends to all before it, so that long prompts are worth more than their first tokens say."""
    sizes = {"n_ctx": 16384, "n_cells": 40_000, "n_batch": 512}
    fake = Fake(unified=True, token_us=4, depth_us=depth_us, state_us=8000, **sizes)
    with Chained(CacheMemory(), fake, n_slots=N_SLOTS, has_device=True, **sizes) as h:
        prompts = [text(i, 12_000) for i in range(4)]
        for _ in range(2):
            tasks = [h.submit(prompt, n_predict=4) for prompt in prompts]
            h.wait(*tasks)
        n_cached = sum(h.n_cached(task) for task in tasks)
        assert n_cached >= (1 - share) * 4 * 12_000
        if share == 1.0:
            assert n_cached < 2 * 12_000


def test_parts_of_a_whole_state_are_saved_if_computing_takes_longer():
    with Cut(
        CacheMemory(), "streams", n_slots=1, token_us=40, state_us=40_000, has_device=True, cache_idle=False
    ) as h:
        prompts = [text(i, LONG) for i in range(4)]
        for prompt in prompts:
            h.ask(prompt)
        assert h.stats()["cache_saves"] == 9  # three parts each, but for the prompt that the slot has still
        for prompt in prompts[:3]:
            assert h.ask(answered(prompt) + b"more") == len(answered(prompt))


def test_where_no_prompt_comes_back_saving_must_pay_at_once():
    """At first each may be one of a conversation, and is saved although that takes nearly as long as computing it."""
    n, n_saved = 600, []
    with Chained(
        CacheMemory(), Fake(unified=True, token_us=20, state_us=8000, **SIZES), n_slots=1, has_device=True
    ) as h:
        for i in range(140):
            h.ask(text(i, n), id_slot=0)
            n_saved.append(h.stats()["cache_saves"])
        assert n_saved[40] >= 40
        assert n_saved[-1] - n_saved[-21] <= 2
