"""Room in caches that slots share: what is shared counts once, and a sliding window is copied instead of shared, so
that llama.cpp never has to refuse a decode. The fake has llama.cpp's cells."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.client.events import Done
from llamad.engine.testing.fake import Fake

WINDOW, N_UBATCH = 64, 32


def text(seed: int, n: int) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


def padded(n: int) -> int:
    return -(-n // 256) * 256


def windowed(n_slots: int = 4, n_cells: int = 4096, swa_full: bool = False, **options) -> Harness:
    """Slots that share the caches of a model with a sliding window, as the default flags have it."""
    fake = Fake(
        n_ctx=n_cells,
        n_cells=n_cells,
        n_seqs=n_slots,
        n_batch=64,
        n_ubatch=N_UBATCH,
        n_swa=WINDOW,
        unified=True,
        swa_full=swa_full,
    )
    given = {
        "n_cells": n_cells,
        "n_swa": WINDOW,
        "n_ubatch": N_UBATCH,
        "n_window": 0 if swa_full else padded(min(n_cells, WINDOW * n_slots + N_UBATCH)),
        "n_checkpoints": 0 if swa_full else 8,
        "checkpoint_min_step": 256,
        "checkpoint_bytes": 1 << 30,
        "cache_bytes": 1 << 30,
    }
    return Harness(fake, n_slots=n_slots, n_ctx=n_cells, n_batch=64, **(given | options))


def counted(prompt: bytes, n: int) -> bytes:
    """What the fake writes after the prompt."""
    return bytes((prompt[-1] + 1 + i) % 256 for i in range(n))


def check(h: Harness, asked: dict[int, tuple[bytes, int]]) -> None:
    h.wait(*asked)
    for task, (prompt, n) in asked.items():
        assert isinstance(h.end(task), Done)
        assert h.text(task) == counted(prompt, n)
    assert h.fake.n_refused == 0
    assert h.fake.n_wrong == 0


@pytest.mark.parametrize("n_tasks", [2, 3, 4])
def test_a_long_prefix_of_several_requests_leaves_room_in_the_window(n_tasks):
    """Each cell of the window had as many owners as there were requests, and none of them ever came free: the next
    decode found no room, and all of them failed."""
    prefix = text(1, 600)
    with windowed() as h:
        asked = {}
        for i in range(n_tasks):
            prompt = prefix + text(10 + i, 20)
            asked[h.submit(prompt, n_predict=40)] = (prompt, 40)
        check(h, asked)
        assert sum(h.n_cached(task) > 500 for task in asked) >= n_tasks - 1


def test_a_window_that_is_taken_over_is_the_slots_own():
    with windowed() as h:
        h.fake.block(True)
        prompts = [text(1, 400) + text(10 + i, 20) for i in range(2)]
        tasks = [h.submit(prompt, n_predict=20) for prompt in prompts]
        h.fake.block(False)
        check(h, {task: (prompt, 20) for task, prompt in zip(tasks, prompts, strict=True)})
        for task in tasks:
            assert all(owners == [h.slot(task)] for _, _, owners in h.fake.owned(h.slot(task), "window"))
        shared = [owners for _, _, owners in h.fake.owned(h.slot(tasks[1])) if len(owners) == 2]
        assert len(shared) >= 400


def test_a_prefix_of_which_the_window_is_gone_is_taken_over_from_a_checkpoint():
    with windowed() as h:
        first = text(1, 600) + text(2, 300)
        h.wait(h.submit(first, n_predict=100))
        fork = text(1, 600) + text(3, 30)
        h.wait(h.submit(fork, n_predict=1))  # reads it, and leaves a checkpoint at the fork
        n_copies = h.fake.n_copies
        prompts = [text(1, 600) + text(4 + i, 30) for i in range(2)]
        h.fake.block(True)  # so that the first is not done before the second comes
        asked = {h.submit(prompt, n_predict=30): (prompt, 30) for prompt in prompts}
        h.fake.block(False)
        check(h, asked)
        assert max(h.n_cached(task) for task in asked) >= 600
        assert h.fake.n_copies > n_copies


@pytest.mark.parametrize("n", [2, 4, 6])
def test_completions_of_one_prompt_beside_each_other_have_room(n):
    prompt = text(1, 700)
    with windowed() as h:
        h.fake.block(True)
        asked = {h.submit(prompt, group=1, n_predict=80): (prompt, 80) for _ in range(n)}
        h.fake.block(False)
        check(h, asked)
        assert [h.n_cached(task) for task in asked] == [0] + [701] * (n - 1)


def test_small_contexts_hold_fewer_windows_than_slots():
    """With -c 256 all slots' windows together do not fit: tasks wait, or read what they cannot share."""
    with windowed(n_cells=256) as h:
        prompts = [text(1, 150) + text(10 + i, 10) for i in range(6)]
        asked = {h.submit(prompt, n_predict=60): (prompt, 60) for prompt in prompts}
        check(h, asked)


def test_cells_that_slots_share_count_once():
    """Four requests with 400 tokens in common fit into 1,024 cells side by side."""
    fake = Fake(n_ctx=1024, n_cells=1024, n_seqs=4, unified=True, decode_us=200)
    with Harness(fake, n_slots=4, n_ctx=1024, n_cells=1024, cache_bytes=1 << 20) as h:
        first = h.submit(text(1, 400), n_predict=200)
        h.wait_first(first)
        asked = {first: (text(1, 400), 200)}
        for i in range(3):
            prompt = text(1, 400) + text(5 + i, 10)
            asked[h.submit(prompt, n_predict=60)] = (prompt, 60)
        check(h, asked)
        assert max(sum(1 for row in step.slots if row.is_decoding) for step in h.steps) == 4
        assert h.stats()["n_suspensions"] == 0


requests = st.lists(
    st.tuples(
        st.integers(0, 2),  # which prefix
        st.integers(0, 400),  # how much of it
        st.integers(1, 60),  # what follows
        st.integers(1, 90),  # what is written
        st.sampled_from([1, 1, 1, 2, 3]),  # completions
        st.booleans(),  # the client leaves
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(
    requests=requests,
    n_slots=st.integers(1, 4),
    n_cells=st.sampled_from([512, 1024, 4096]),
    swa_full=st.booleans(),
    n_checkpoints=st.sampled_from([0, 2, 8]),
    cache_bytes=st.sampled_from([0, 1 << 16, 1 << 30]),
)
def test_any_load_on_a_shared_window_finds_room_and_has_its_text(
    requests, n_slots, n_cells, swa_full, n_checkpoints, cache_bytes
):
    with windowed(n_slots, n_cells, swa_full, n_checkpoints=n_checkpoints, cache_bytes=cache_bytes) as h:
        asked = {}
        for i, (prefix, n_prefix, n_more, n_predict, n, leaves) in enumerate(requests):
            prompt = text(prefix, n_prefix) + text(20 + i, n_more)
            n_predict = min(n_predict, n_cells - len(prompt) - 2)  # this memory cannot shift
            tasks = [h.submit(prompt, n_predict=n_predict, group=i + 1 if n > 1 else 0) for _ in range(n)]
            if leaves:
                h.collect()
                for task in tasks:
                    h.port.abort(task)
            else:
                asked |= dict.fromkeys(tasks, (prompt, n_predict))
        check(h, asked)
