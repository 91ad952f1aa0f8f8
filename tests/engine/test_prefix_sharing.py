"""A prefix that another slot holds is taken over, and the tasks of a group read their prompt once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.client.events import Admitted, Done, Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import STOP_LIMIT

PROMPT = b"a prompt that several completions of it share, long enough to be worth a copy " * 2
N_PROMPT = 1 + len(PROMPT)
ANSWER = b'!"#$%&'  # without a script the fake counts upwards from the last byte


def n_read(h: Harness) -> int:
    """Prompt tokens that were decoded."""
    return sum(row.n_tokens for step in h.steps for row in step.slots if not row.is_decoding)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("cache_prompt", [False, True])
def test_a_group_reads_its_prompt_once(unified, cache_prompt):
    fake = Fake(n_ctx=512, unified=unified)
    with Harness(fake, n_slots=4, n_ctx=512, n_cells=2048 if unified else 0) as h:
        fake.block(True)
        tasks = [h.submit(PROMPT, group=7, cache_prompt=cache_prompt, n_predict=6) for _ in range(4)]
        fake.block(False)
        h.wait(*tasks)
        assert [h.n_cached(task) for task in tasks] == [0] + [N_PROMPT] * 3
        assert len({h.slot(task) for task in tasks}) == 4
        assert all(h.text(task) == ANSWER for task in tasks)
        assert n_read(h) == N_PROMPT  # the others' first tokens come from the same row
        assert fake.n_copies == 3
        assert h.stats()["n_copied"] == 3 * N_PROMPT


def test_completions_of_one_prompt_that_ask_for_no_token_end_with_it():
    with Harness(Fake(), n_slots=4) as h:
        tasks = [h.submit(PROMPT, group=7, n_predict=0) for _ in range(3)]
        h.wait(*tasks)
        assert all(isinstance(h.end(task), Done) and h.text(task) == b"" for task in tasks)


def test_without_a_group_each_reads_the_prompt_itself():
    fake = Fake(script=b"answer")
    with Harness(fake, n_slots=4) as h:
        fake.block(True)
        tasks = [h.submit(PROMPT, cache_prompt=False, n_predict=20) for _ in range(4)]
        fake.block(False)
        h.wait(*tasks)
        assert n_read(h) == 4 * N_PROMPT
        assert fake.n_copies == 0


def test_a_group_without_cache_takes_nothing_from_an_earlier_request():
    with Harness(Fake(script=b"answer"), n_slots=4) as h:
        h.wait(h.submit(PROMPT))
        h.fake.block(True)
        tasks = [h.submit(PROMPT, group=1, cache_prompt=False) for _ in range(3)]
        h.fake.block(False)
        h.wait(*tasks)
        assert [h.n_cached(task) for task in tasks] == [0] + [N_PROMPT] * 2


@pytest.mark.parametrize("n_slots", [1, 2])
def test_a_group_larger_than_the_slots_waits_and_still_reads_once(n_slots):
    with Harness(Fake(), n_slots=n_slots) as h:
        h.fake.block(True)
        tasks = [h.submit(PROMPT, group=3, cache_prompt=False, n_predict=6) for _ in range(5)]
        h.fake.block(False)
        h.wait(*tasks)
        assert [h.n_cached(task) for task in tasks] == [0] + [N_PROMPT] * 4
        assert all(h.text(task) == ANSWER for task in tasks)
        assert n_read(h) == N_PROMPT


def test_a_group_whose_first_task_is_aborted_goes_on_alone():
    fake = Fake()
    with Harness(fake, n_slots=4, step_tokens_max=16) as h:
        fake.block(True)
        tasks = [h.submit(PROMPT, group=3, n_predict=6) for _ in range(4)]
        h.wait_first(tasks[0], Admitted)
        h.port.abort(tasks[0])
        fake.block(False)
        h.wait(*tasks)
        assert isinstance(h.end(tasks[0]), Failed)
        assert all(h.text(task) == ANSWER for task in tasks[1:])
        # The second goes on with what the first had read, and the others take it from there.
        assert h.n_cached(tasks[1]) < N_PROMPT - 1
        assert [h.n_cached(task) for task in tasks[2:]] == [N_PROMPT] * 2


@pytest.mark.parametrize("n_failures", [1, 2])
def test_a_group_whose_first_decode_fails_is_read_again(n_failures):
    """Once: by the first itself. Twice: the first is given up, and one of those that waited reads the prompt."""
    fake = Fake()
    with Harness(fake, n_slots=4) as h:
        fake.block(True)
        tasks = [h.submit(PROMPT, group=3, n_predict=6) for _ in range(3)]
        h.wait_first(tasks[0], Admitted)
        fake.fail_next(-3, n_times=n_failures)
        fake.block(False)
        h.wait(*tasks)
        first = n_failures - 1
        assert [type(h.end(task)) for task in tasks] == [Failed] * first + [Done] * (3 - first)
        assert [h.n_cached(task) for task in tasks[first:]] == [0] + [N_PROMPT] * (2 - first)
        assert all(h.text(task) == ANSWER for task in tasks[first:])


def test_a_held_task_lets_others_pass():
    fake = Fake(script=b"answer")
    with Harness(fake, n_slots=3, step_tokens_max=16) as h:
        fake.block(True)
        tasks = [h.submit(PROMPT, group=3) for _ in range(2)]
        other = h.submit(b"other")
        h.wait_first(tasks[0], Admitted)
        fake.block(False)
        h.wait(*tasks, other)
        admitted = [h.admitted(task).t_us for task in (tasks[0], other, tasks[1])]
        assert admitted == sorted(admitted)


def test_a_busy_slots_prefix_is_taken_over_where_it_is_long():
    fake = Fake(decode_us=100)
    with Harness(fake, n_slots=2) as h:
        first = h.submit(PROMPT + b"first")
        h.wait_first(first)
        second = h.submit(PROMPT + b"second", n_predict=3)
        h.wait(second)
        assert h.n_cached(second) == N_PROMPT
        assert h.slot(second) != h.slot(first)
        h.port.abort(first)
        h.wait(first)
        assert bytes(token - 3 for token in h.core.slot_tokens(h.slot(first))[1:]).startswith(
            PROMPT + b"first"
        )


@pytest.mark.parametrize(
    "change",
    [{"number": 1}, {"cache_prompt": False}, {"prompt": b"a prompt that several" + b"!" * 60}],
)
def test_a_busy_slots_prefix_is_left_where_it_does_not_fit(change):
    fake = Fake(decode_us=100)
    with Harness(fake, n_slots=2) as h:
        first = h.submit(PROMPT)
        h.wait_first(first)
        second = h.submit(**({"prompt": PROMPT, "n_predict": 3} | change))
        h.wait(second)
        assert h.n_cached(second) == 0
        assert fake.n_copies == 0
        h.port.abort(first)
        h.wait(first)


def test_a_memory_that_cannot_be_cut_is_not_copied():
    fake = Fake(script=b"answer", can_cut=False)
    with Harness(fake, n_slots=2, can_share=False) as h:
        tasks = [h.submit(PROMPT + end) for end in (b"one", b"two")]
        h.wait(*tasks)
        assert fake.n_copies == 0
        assert [h.n_cached(task) for task in tasks] == [0, 0]


@pytest.mark.parametrize("n_slots", [2, 4])
def test_a_memory_that_cannot_be_cut_is_copied_at_the_end_of_a_groups_prompt(n_slots):
    """Recurrent models: the state after the prompt serves all completions. Those that have to wait for a slot find it
    in a checkpoint."""
    fake = Fake(can_cut=False)
    options = {"can_share": False, "n_checkpoints": 8, "checkpoint_bytes": 1 << 20, "cache_bytes": 1 << 20}
    with Harness(fake, n_slots=n_slots, **options) as h:
        fake.block(True)
        tasks = [h.submit(PROMPT, group=1, n_predict=6) for _ in range(4)]
        fake.block(False)
        h.wait(*tasks)
        assert [h.n_cached(task) for task in tasks] == [0] + [N_PROMPT] * 3
        assert all(h.text(task) == ANSWER for task in tasks)
        assert n_read(h) == N_PROMPT


def test_a_copy_that_cannot_be_cut_is_dropped():
    fake = Fake(decode_us=100, can_cut=False)
    with Harness(fake, n_slots=2) as h:
        first = h.submit(PROMPT + b"first")
        h.wait_first(first)
        second = h.submit(PROMPT, n_predict=6)
        h.wait(second)
        assert fake.n_copies == 1
        assert h.n_cached(second) == 0
        assert h.text(second) == ANSWER
        h.port.abort(first)
        h.wait(first)


@pytest.mark.parametrize("n_cells", [64, 80, 256])
@pytest.mark.parametrize("n_prompt", [20, 40, 60])
def test_a_shift_leaves_cells_alone_that_another_slot_holds_as_well(n_cells, n_prompt):
    """In a unified cache a position belongs to the cell. All write on, each beyond its context, and each gets cells of
    its own before it moves any (Harness.check_cells compares every position): they have the text of a task alone."""

    def write(n_tasks):
        fake = Fake(n_ctx=64, n_cells=n_cells, unified=True, decode_us=50, chaos=7)
        with Harness(fake, n_slots=3, n_ctx=64, n_cells=n_cells, cache_bytes=1 << 20) as h:
            tasks = [h.submit(b"p" * n_prompt, group=1, n_predict=100 + 5 * i) for i in range(n_tasks)]
            h.wait(*tasks)
            assert all(h.end(task).truncated for task in tasks)  # truncated: all did shift
            return [h.tokens(task)[:100] for task in tasks]

    (alone,) = write(1)
    assert write(3) == [alone] * 3


def test_an_idle_slot_gives_up_cells_that_must_move():
    def write(*prompts):
        fake = Fake(n_ctx=64, unified=True, chaos=7)
        with Harness(fake, n_slots=2, n_ctx=64, n_cells=256, cache_bytes=1 << 20) as h:
            tasks = []
            for i, prompt in enumerate(prompts):
                tasks.append(h.submit(prompt, n_predict=100 * (i == len(prompts) - 1) + 1, id_slot=i))
                h.wait(tasks[-1])
            return h.n_cached(tasks[-1]), h.tokens(tasks[-1])

    n_cached, tokens = write(b"p" * 60, b"p" * 60 + b"q")
    assert n_cached >= 60
    assert tokens == write(b"p" * 60 + b"q")[1]


actions = st.lists(
    st.tuples(
        st.sampled_from(["submit", "group", "group", "abort", "wait"]),
        st.integers(0, 40),
        st.integers(-1, 80),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(actions=actions, n_slots=st.integers(1, 4), unified=st.booleans())
def test_any_order_of_groups_keeps_memory_and_slots_in_step(actions, n_slots, unified):
    """Invariant: what a slot says it holds is what its sequence holds, at positions 0 and up (Harness.check_cells)."""
    fake = Fake(n_ctx=128, n_batch=32, unified=unified)
    n_cells = 128 * n_slots if unified else 0
    with Harness(fake, n_slots=n_slots, n_ctx=128, n_batch=32, n_cells=n_cells) as h:
        tasks = []
        for i, (action, x, y) in enumerate(actions):
            prompt = bytes([x % 3 + 65]) * (40 + x) + bytes([x + 33])
            if action == "submit":
                tasks.append(h.submit(prompt, n_predict=y))
            elif action == "group":
                tasks += [
                    h.submit(prompt, n_predict=y, group=i + 1, cache_prompt=x % 2 == 0)
                    for _ in range(1 + x % 4)
                ]
            elif action == "wait":
                h.collect()
            elif tasks:
                h.port.abort(tasks[x % len(tasks)])
        for task in tasks:
            if task % 2:
                h.port.abort(task)
        h.until(lambda: all(h.end(task) for task in tasks if task % 2))
        for task in tasks:
            h.port.abort(task)
        h.wait(*tasks)


# --- self-extend: positions grow more slowly than the text ---------------------------------------------------


def positions(h: Harness, task: int) -> list[int]:
    return [pos for pos, _ in h.fake.cells(h.slot(task))]


def test_self_extend_presses_positions_together():
    with Harness(Fake(n_ctx=512), n_ctx=512, group_n=4, group_w=32) as h:
        task = h.submit(b"p" * 199, n_predict=57)
        h.wait(task)
        held = positions(h, task)
        assert len(held) == 200 + 56
        # All but the last window and what is not a whole window yet: four tokens to a position.
        assert held[:224] == [i // 4 for i in range(224)]
        assert held[224:] == list(range(56, 56 + 32))


def test_self_extend_with_a_factor_of_one_changes_nothing():
    with Harness(Fake(n_ctx=512), n_ctx=512, group_n=1, group_w=32) as h:
        task = h.submit(b"p" * 199, n_predict=57)
        h.wait(task)
        assert positions(h, task) == list(range(256))


def test_a_slot_with_grouped_positions_is_used_again_only_where_nothing_grouped_is_cut():
    with Harness(Fake(n_ctx=512), n_ctx=512, n_slots=1, group_n=4, group_w=32) as h:
        text = bytes(33 + i % 90 for i in range(100))
        h.wait(h.submit(text, n_predict=1))
        longer = h.submit(text + b" and more", n_predict=1)
        h.wait(longer)
        assert h.n_cached(longer) == 101
        in_tail = h.submit(text + b" and less", n_predict=1)
        h.wait(in_tail)
        assert h.n_cached(in_tail) == 101 + 5
        grouped = h.submit(text[:50] + b"else", n_predict=1)
        h.wait(grouped)
        assert h.n_cached(grouped) == 0


def test_self_extend_shares_no_prefix_between_slots():
    fake = Fake(n_ctx=512, script=b"answer")
    with Harness(fake, n_ctx=512, group_n=4, group_w=32) as h:
        tasks = [h.submit(PROMPT, group=1) for _ in range(3)]
        h.wait(*tasks)
        assert fake.n_copies == 0
        assert all(h.text(task) == b"answer" for task in tasks)


def test_self_extend_ends_at_the_contexts_end():
    with Harness(Fake(n_ctx=128), n_ctx=128, group_n=2, group_w=32) as h:
        task = h.submit(b"p" * 50, n_predict=-1)
        h.wait(task)
        assert isinstance(h.end(task), Done)
        assert (h.end(task).stop_type, h.end(task).truncated) == (STOP_LIMIT, True)
        assert len(h.tokens(task)) == 128 - 51 + 1
