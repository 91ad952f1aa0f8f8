"""Chunks of an old prompt that stand earlier in the new one are moved to their place (--cache-reuse)."""

import pytest
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake


def text(seed: int, n: int = 100) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


A, B, C, D = (text(i) for i in range(1, 5))


def ask(h: Harness, prompt: bytes, **options) -> int:
    task = h.submit(prompt, **({"n_predict": 4} | options))
    h.wait(task)
    assert h.text(task) == bytes(prompt[-1] + k for k in (1, 2, 3, 4))
    return h.n_cached(task)


@pytest.mark.parametrize("unified", [False, True])
def test_what_follows_a_dropped_part_is_moved(unified):
    """Leaving the harness checks that every cell has its token and its position."""
    with Harness(Fake(unified=unified), n_slots=1, n_cells=512 if unified else 0) as h:
        ask(h, A + B + C + D)
        assert ask(h, A + C + b"!" * 9, n_cache_reuse=64) == 201
        assert h.stats()["n_moved"] == 100
        assert ask(h, A + b"!" * 9, n_cache_reuse=64) == 101  # too short a chunk


def test_several_chunks_move():
    with Harness(Fake(), n_slots=1) as h:
        ask(h, A + B[:50] + C + B[50:] + D)
        assert ask(h, A + C + D + b"?", n_cache_reuse=64) == 301
        assert h.stats()["n_moved"] == 200


@pytest.mark.parametrize(
    ("fake", "options", "task"),
    [
        ({}, {}, {"n_cache_reuse": 0}),
        ({}, {}, {"n_cache_reuse": 101}),
        ({}, {}, {"n_cache_reuse": 64, "cache_prompt": False}),
        ({}, {}, {"n_cache_reuse": 64, "owner": 2}),
        ({"can_shift": False}, {}, {"n_cache_reuse": 64}),
        ({"can_cut": False}, {"can_share": False}, {"n_cache_reuse": 64}),
    ],
)
def test_where_it_is_off_or_cannot_be_nothing_moves(fake, options, task):
    with Harness(Fake(**fake), n_slots=1, **options) as h:
        ask(h, A + B + C, owner=1)
        ask(h, A + C + b"!", **({"owner": 1} | task))
        assert h.stats()["n_moved"] == 0


def test_cells_that_another_slot_holds_stay():
    with Harness(Fake(unified=True), n_slots=2, n_cells=1024) as h:
        ask(h, A + B + C, id_slot=0)
        ask(h, A + B + C + D, id_slot=1)
        assert ask(h, A + C + b"!", id_slot=0, n_cache_reuse=64) == 101
        assert h.stats()["n_moved"] == 0


def test_checkpoints_behind_what_stayed_are_dropped():
    """They are of the old prompt. One of them was restored for a later prompt that began as the moved one, and the fake
    counts a checkpoint of another text as a bad call."""
    fake = Fake(n_ctx=1024, n_swa=256, swa_full=True)
    options = {"n_swa": 256, "n_checkpoints": 8, "checkpoint_min_step": 8192, "checkpoint_bytes": 1 << 20}
    with Harness(fake, n_slots=1, n_ctx=1024, **options) as h:
        ask(h, A + B + C + D)  # leaves a checkpoint near its end
        moved = A + C + D + text(5, 300)
        assert ask(h, moved, n_cache_reuse=64) == 301
        fake.lose(350)  # the window has gone on: the next prompt needs a checkpoint
        assert ask(h, moved[:500] + text(6)) == 0
