"""Slots, queue, budget: who runs where and when, over the fake model."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.base.clock import clock_us
from llamad.client.events import Admitted, Done, Failed, SlotStep
from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import (
    ACTION_ERASE,
    FAILURE_ABORTED,
    FAILURE_DEADLINE,
    FAILURE_ENGINE,
    RESULT_ENGINE,
    STOP_LIMIT,
)


def test_more_tasks_than_slots_all_finish_in_order():
    with Harness(Fake(script=b"answer"), n_slots=2) as h:
        tasks = [h.submit(b"question %d" % i) for i in range(10)]
        h.wait(*tasks)
        assert all(h.text(task) == b"answer" for task in tasks)
        admitted = [h.admitted(task).t_us for task in tasks]
        assert admitted == sorted(admitted)


def test_a_higher_priority_overtakes_the_queue():
    fake = Fake(script=b"answer")
    with Harness(fake, n_slots=1) as h:
        fake.block(True)
        first = h.submit(b"first")
        h.wait_first(first, Admitted)
        low, high = h.submit(b"low"), h.submit(b"high", priority=5)
        fake.block(False)
        h.wait(first, low, high)
        order = [h.admitted(task).t_us for task in (first, high, low)]
        assert order == sorted(order)


def test_a_prompt_that_is_continued_re_uses_its_slot():
    with Harness(Fake(script=b" and on")) as h:
        first = h.submit(b"a long beginning of a story")
        h.wait(first)
        second = h.submit(b"a long beginning of a story and on it goes")
        h.wait(second)
        assert h.slot(second) == h.slot(first)
        # BOS, the first prompt, and what was written of it and decoded.
        assert h.n_cached(second) == 1 + 27 + 7


def test_the_whole_prompt_cached_still_reads_its_last_token():
    with Harness(Fake(script=b"x")) as h:
        first, second = h.submit(b"same"), 0
        h.wait(first)
        second = h.submit(b"same")
        h.wait(second)
        assert h.n_cached(second) == 4
        assert h.text(second) == b"x"


def test_cache_prompt_false_reads_everything_again():
    with Harness(Fake(script=b"x")) as h:
        h.wait(h.submit(b"same prompt"))
        again = h.submit(b"same prompt", cache_prompt=False)
        h.wait(again)
        assert h.n_cached(again) == 0


def test_another_adapter_set_does_not_share_a_cache():
    with Harness(Fake(script=b"x")) as h:
        h.wait(h.submit(b"same prompt", number=1))
        other = h.submit(b"same prompt", number=2)
        h.wait(other)
        assert h.n_cached(other) == 0


def test_too_little_in_common_takes_the_least_recently_used_slot():
    with Harness(Fake(script=b"x"), n_slots=2, similarity_min=0.5) as h:
        first, second = h.submit(b"aaaa"), h.submit(b"bbbb")
        h.wait(first, second)
        oldest = min((first, second), key=lambda task: h.end(task).t_us)
        other = h.submit(b"b" + b"z" * 30)
        h.wait(other)
        assert h.slot(other) == h.slot(oldest)


def test_id_slot_waits_for_its_slot_and_lets_others_pass():
    fake = Fake(script=b"answer")
    with Harness(fake, n_slots=2) as h:
        fake.block(True)
        first = h.submit(b"first", id_slot=1)
        h.wait_first(first, Admitted)
        bound, free = h.submit(b"bound", id_slot=1), h.submit(b"free")
        fake.block(False)
        h.wait(first, bound, free)
        assert (h.slot(first), h.slot(bound), h.slot(free)) == (1, 1, 0)


@pytest.mark.parametrize("state", ["waiting", "reading", "writing"])
def test_an_abort_frees_the_slot_in_every_state(state):
    fake = Fake(decode_us=200)
    with Harness(fake, n_slots=1, n_batch=16, n_ctx=512, step_tokens_max=16) as h:
        running = h.submit(b"running")
        h.wait_first(running)
        if state == "waiting":
            task = h.submit(b"waiting")
        elif state == "reading":
            h.port.abort(running)
            h.wait(running)
            fake.block(True)
            task = h.submit(b"r" * 400)
            h.wait_first(task, Admitted)
        else:
            task = running
        h.port.abort(task)
        fake.block(False)
        h.wait(task)
        assert isinstance(h.end(task), Failed)
        assert h.end(task).failure == FAILURE_ABORTED
        if state == "waiting":
            h.port.abort(running)
        after = h.submit(b"after", n_predict=3)
        h.wait(running, after)
        assert isinstance(h.end(after), Done)


def test_a_deadline_ends_a_task_that_waits_and_one_that_writes():
    fake = Fake(decode_us=1000)
    with Harness(fake, n_slots=1) as h:
        writer = h.submit(b"for ever", deadline_us=clock_us() + 60_000)
        waiter = h.submit(b"never", deadline_us=clock_us() + 30_000)
        h.wait(writer, waiter)
        for task in (writer, waiter):
            assert h.end(task).failure == FAILURE_DEADLINE


def test_a_context_that_cannot_be_rebuilt_ends_the_engine_with_everything_answered():
    """Only a new process can help then; those who waited must not wait for it."""
    fake = Fake(script=b"fine")
    with Harness(fake, n_slots=1) as h:
        fake.block(True)
        first = h.submit(b"one")
        h.wait_first(first, Admitted)
        fake.fail_next(-3, n_rebuild_failures=1)
        waiting = h.submit(b"two")
        action = h.act(ACTION_ERASE, 0)
        fake.block(False)
        h.wait(first, waiting)
        assert h.end(first).failure == FAILURE_ENGINE
        assert h.end(waiting).failure == FAILURE_ENGINE
        assert h.done(action).result == RESULT_ENGINE
        h.until(lambda: not h.is_alive)
        assert h.was_lost


def test_clients_take_turns_in_the_queue():
    """A client's many tasks delayed everybody who came later by all of them."""
    fake = Fake()
    with Harness(fake, n_slots=1) as h:
        fake.block(True)
        names = {h.submit(b"x", n_predict=1, client=9): "first"}
        h.until(lambda: h.core.n_idle() == 0)
        for i in range(4):
            names[h.submit(b"m%d" % i, n_predict=1, client=1)] = f"many {i}"
        names[h.submit(b"p", n_predict=1, client=1, priority=1)] = "urgent"
        for i in range(2):
            names[h.submit(b"o%d" % i, n_predict=1, client=2)] = f"one {i}"
        fake.block(False)
        h.wait(*names)
        order = sorted(names, key=lambda task: h.admitted(task).t_us)
    assert [names[task] for task in order] == [
        "first", "urgent", "many 0", "one 0", "many 1", "one 1", "many 2", "many 3",
    ]  # fmt: skip


def writers_and_budget(h: Harness, since: int, slot: int) -> None:
    assert len(h.steps) > since
    for step in h.steps[since:]:
        assert step.n_tokens <= step.budget
        assert SlotStep(slot, 1, True) in step.slots, "a step without the running stream's token"


def test_a_long_prompt_never_stalls_a_running_stream():
    # Every token costs time, so that an unbounded chunk would show as a long gap.
    fake = Fake(n_ctx=8192, n_batch=2048, decode_us=300, token_us=20)
    with Harness(fake, n_ctx=8192, n_batch=2048) as h:
        stream = h.submit(b"stream")
        h.until(lambda: len(h.tokens(stream)) > 20)
        long = h.submit(b"p" * 4000, n_predict=1)
        h.wait_first(long, Admitted)
        h.collect()
        since = len(h.steps)
        h.wait(long)
        h.port.abort(stream)
        h.wait(stream)
        reading = [
            step for step in h.steps if any(not row.is_decoding for row in step.slots) and step.n_decoding
        ]
        assert len(reading) > 4, "the prompt was read in one piece"
        writers_and_budget(h, h.steps.index(reading[0]), h.slot(stream))
        assert since >= 0


# The second takes longer for a tile than a step should.
@pytest.mark.parametrize(
    ("decode_us", "token_us", "n_first", "n_others", "n_each", "n_steps"),
    [(30_000, 200, 20, 7, 100, 7 + 4), (60_000, 7_000, 4, 3, 64, 4)],
)
def test_prompts_that_are_soon_read_come_before_what_others_write(
    decode_us, token_us, n_first, n_others, n_each, n_steps
):
    """Each token that is written delays all who wait for their first one."""
    fake = Fake(n_ctx=1024, n_batch=512, decode_us=decode_us, token_us=token_us)
    with Harness(fake, n_slots=n_others + 1, n_ctx=1024, n_batch=512) as h:
        first = h.submit(b"first" * n_first)
        h.until(lambda: len(h.tokens(first)) > 2)
        h.collect()
        since = len(h.steps)
        h.wait(*[h.submit(bytes([65 + i]) * n_each, n_predict=1) for i in range(n_others)])
        h.port.abort(first)
        h.wait(first)
        reads = [i for i, step in enumerate(h.steps[since:]) if not step.n_decoding]
        assert len(reads) == n_others, "prompts were cut into pieces smaller than a tile"
        assert reads[-1] - reads[0] < n_steps, "a step that writes after each prompt"


def test_a_chunk_leaves_no_less_than_a_tile():
    """llama.cpp reads fewer than 64 tokens of one prompt many times as slowly."""
    fake = Fake(n_ctx=2048, n_batch=512, decode_us=300, token_us=200)
    with Harness(fake, n_slots=2, n_ctx=2048, n_batch=512) as h:
        stream = h.submit(b"stream")
        h.until(lambda: len(h.tokens(stream)) > 5)
        for n in (100, 127, 129, 300, 700, 1000, 1500):
            h.wait(h.submit(bytes([n % 251]) * n, n_predict=1))
        h.port.abort(stream)
        h.wait(stream)
        read = [sum(row.n_tokens for row in step.slots if not row.is_decoding) for step in h.steps]
        assert sum(read) >= 3856
        assert min([n for n in read if n][1:]) >= 64


def test_a_fixed_budget_is_kept():
    fake = Fake(n_ctx=4096, n_batch=512)
    with Harness(fake, n_ctx=4096, n_batch=512, step_tokens_max=32) as h:
        tasks = [h.submit(bytes([65 + i]) * 500, n_predict=20) for i in range(4)]
        h.wait(*tasks)
        assert max(step.n_tokens for step in h.steps) == 32
        assert all(step.budget == 32 for step in h.steps)


def test_without_continuous_batching_prompts_wait_for_writers():
    fake = Fake(n_ctx=512, n_batch=64)
    with Harness(fake, cont_batching=False) as h:
        stream = h.submit(b"stream", n_predict=100)
        h.wait_first(stream)
        other = h.submit(b"other", n_predict=5)
        h.wait(stream, other)
        for step in h.steps:
            kinds = {row.is_decoding for row in step.slots}
            assert len(kinds) == 1, "a prompt was read beside a writer"


def test_a_paused_reader_gets_no_tokens_and_holds_nobody_back():
    fake = Fake(decode_us=100)
    with Harness(fake, n_slots=2) as h:
        slow, fast = h.submit(b"slow"), h.submit(b"fast")
        h.wait_first(slow)
        h.port.pause(slow)
        h.port.abort(h.submit(b"a command behind the pause", n_predict=1))
        h.until(lambda: len(h.tokens(fast)) > 5)
        h.collect()
        n_slow, n_fast = len(h.tokens(slow)), len(h.tokens(fast))
        h.until(lambda: len(h.tokens(fast)) > n_fast + 50)
        assert len(h.tokens(slow)) <= n_slow + 1
        h.port.resume(slow)
        h.until(lambda: len(h.tokens(slow)) > n_slow + 10)
        h.port.abort(slow)
        h.port.abort(fast)
        h.wait(slow, fast)


def test_n_predict_zero_reads_the_prompt_and_writes_nothing():
    with Harness(Fake(script=b"x")) as h:
        task = h.submit(b"only read", n_predict=0)
        h.wait(task)
        assert h.text(task) == b""
        assert h.end(task).stop_type == STOP_LIMIT
        again = h.submit(b"only read this", n_predict=1)
        h.wait(again)
        assert h.n_cached(again) == 10


@pytest.mark.parametrize(("n_predict", "shift"), [(-2, True), (-1, False)])
def test_a_full_context_ends_the_task(n_predict, shift):
    with Harness(Fake(n_ctx=64), n_ctx=64) as h:
        task = h.submit(b"p" * 20, n_predict=n_predict, context_shift=shift)
        h.wait(task)
        end = h.end(task)
        assert end.stop_type == STOP_LIMIT
        assert end.truncated
        assert end.n_decoded + end.n_prompt == 64


def test_a_context_shift_keeps_the_beginning_and_the_recent_half():
    with Harness(Fake(n_ctx=64), n_ctx=64) as h:
        task = h.submit(b"0123456789", n_predict=100, n_keep=4)
        h.wait(task)
        assert h.end(task).n_decoded == 100
        assert h.end(task).truncated is True
        tokens = h.core.slot_tokens(h.slot(task))
        assert tokens[:5] == [0, *(3 + byte for byte in b"0123")]
        written = h.tokens(task)
        # The last token picked is never decoded; what lies before it is the text's end, without a hole.
        tail = tokens[5:]
        assert written[: len(written) - 1][-len(tail) :] == tail
        assert h.fake.held(h.slot(task)) == len(tokens)


def test_n_keep_minus_one_keeps_the_whole_prompt():
    with Harness(Fake(n_ctx=64), n_ctx=64) as h:
        task = h.submit(b"keep all of me", n_predict=120, n_keep=-1)
        h.wait(task)
        assert bytes(t - 3 for t in h.core.slot_tokens(h.slot(task))[1:15]) == b"keep all of me"


def test_a_model_that_cannot_shift_ends_at_the_context():
    with Harness(Fake(n_ctx=64, can_shift=False), n_ctx=64) as h:
        task = h.submit(b"p" * 20, n_predict=100)
        h.wait(task)
        assert h.end(task).stop_type == STOP_LIMIT
        assert h.end(task).truncated is True


def test_t_max_predict_stops_at_a_new_line_only():
    fake = Fake(script=b"abcdef\nghijkl\n" * 50, decode_us=2000)
    with Harness(fake) as h:
        task = h.submit(b"x", t_max_predict_ms=20)
        h.wait(task)
        assert h.end(task).stop_type == STOP_LIMIT
        assert h.end(task).has_new_line is True
        assert h.text(task).endswith(b"\n")
        assert len(h.text(task)) < 700


def test_a_shared_cache_admits_what_fits_and_evicts_idle_prefixes():
    fake = Fake(n_ctx=256, n_batch=64)
    with Harness(fake, n_slots=4, n_ctx=256, n_cells=256) as h:
        tasks = [h.submit(bytes([97 + i]) * 100, n_predict=20) for i in range(8)]
        h.wait(*tasks)
        assert all(isinstance(h.end(task), Done) and h.end(task).n_decoded == 20 for task in tasks)
        assert sum(fake.held(i) for i in range(4)) <= 256
        assert h.stats()["n_evicted"] > 0


def test_ignored_eos_goes_on():
    with Harness(Fake(script=b"ab")) as h:
        task = h.submit(b"x", n_predict=6, bias=struct.pack("=if", 1, -math.inf))
        h.wait(task)
        assert h.text(task) == b"ab...."


actions = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "submit", "abort", "pause", "resume", "fail", "wait"]),
        st.integers(0, 40),
        st.integers(-2, 30),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(actions=actions, n_slots=st.integers(1, 4), shared=st.booleans(), mix=st.booleans())
def test_any_order_of_commands_leaves_nothing_behind(actions, n_slots, shared, mix):
    """Invariant: every task ends exactly once, no call breaks llama.cpp's rules, every sampler is closed (see
    Harness.__exit__)."""
    fake = Fake(n_ctx=128, n_batch=32)
    with Harness(
        fake, n_slots=n_slots, n_ctx=128, n_batch=32, n_cells=128 if shared else 0, cont_batching=mix
    ) as h:
        tasks = []
        for action, x, y in actions:
            if action == "submit":
                stop = [bytes([x + 60])] if x % 3 == 0 else []
                tasks.append(h.submit(bytes([x + 33]) * (x + 1), n_predict=y, stops=stop, stream=x % 2 == 0))
            elif action == "wait":
                h.collect()
            elif action == "fail":
                if x == 0:
                    fake.fail_next(-2)
            elif tasks:
                getattr(h.port, action)(tasks[x % len(tasks)])
        for task in tasks:
            h.port.resume(task)
            h.port.abort(task)
        h.wait(*tasks)


def test_thousands_of_commands_go_round_the_ring():
    fake = Fake(n_ctx=2048, n_batch=2048, script=b"ok")
    with Harness(fake, n_slots=4, n_ctx=2048, n_batch=2048) as h:
        tasks = [h.submit(bytes([33 + i % 90]) * 1500) for i in range(4000)]
        h.wait(*tasks)
        assert all(h.text(task) == b"ok" for task in tasks)


def test_a_stream_sends_every_token_once():
    with Harness(Fake(script=b"once upon a time")) as h:
        task = h.submit(b"x")
        h.wait(task)
        assert h.text(task) == b"once upon a time"
        assert [text.n_decoded for text in h.texts(task)] == sorted(
            {text.n_decoded for text in h.texts(task)}
        )


def test_a_pause_reaches_a_task_that_still_waits():
    fake = Fake(decode_us=100)
    with Harness(fake, n_slots=1) as h:
        first = h.submit(b"first", n_predict=50)
        waiting = h.submit(b"waiting")
        h.port.pause(waiting)
        h.wait(first)
        h.wait_first(waiting, Admitted)
        other = h.submit(b"behind it", deadline_us=clock_us() + 100_000)
        h.wait(other)
        assert len(h.tokens(waiting)) <= 1
        h.port.resume(waiting)
        h.until(lambda: len(h.tokens(waiting)) > 5)
        h.port.abort(waiting)
        h.wait(waiting)


def test_a_prompt_that_is_alone_is_cut_at_llama_cpps_compute_batch():
    """Logits depend on the shapes they are computed in; these are llama-server's."""
    fake = Fake(n_ctx=4096, n_batch=2048, token_us=5)
    with Harness(fake, n_ctx=4096, n_batch=2048, n_ubatch=512) as h:
        h.wait(h.submit(b"p" * 3000, n_predict=1))
        assert h.steps[0].n_tokens == 512  # the first one ever: nothing is known of the cost
        assert all(step.n_tokens % 512 == 0 for step in h.steps[:-1])
        h.until(lambda: sum(step.n_tokens for step in h.steps) == 3001)  # the last one is told after the text


def test_prompts_that_arrive_together_share_a_step_where_tokens_are_cheap():
    fake = Fake(n_ctx=512, n_batch=512)
    with Harness(fake, n_ctx=512, n_batch=512) as h:
        h.wait(h.submit(b"warm up", n_predict=3))
        fake.block(True)
        blocker = h.submit(b"in the way", n_predict=1)
        h.wait_first(blocker, Admitted)
        tasks = [h.submit(bytes([97 + i]) * 50, n_predict=1) for i in range(3)]
        fake.block(False)
        h.wait(blocker, *tasks)
        assert any(sum(not row.is_decoding for row in step.slots) == 3 for step in h.steps)


def test_the_largest_n_keep_keeps_the_beginning():
    with Harness(Fake(n_ctx=64), n_ctx=64) as h:
        task = h.submit(b"0123456789", n_predict=100, n_keep=2**31 - 1)
        h.wait(task)
        assert h.core.slot_tokens(h.slot(task))[:11] == [0, *(3 + byte for byte in b"0123456789")]


def test_who_waits_is_admitted_when_the_context_ends_the_last_task():
    """It ended after the admission of that turn, with nothing left to decode: the engine slept until a command came."""
    with Harness(Fake(), n_slots=1, n_ctx=32, group_n=2, group_w=8) as h:
        first = h.submit(b"hello", n_predict=-1)
        second = h.submit(b"other", n_predict=1)
        h.wait(first, second)
        assert h.end(second).n_decoded == 1


def test_n_discard_leaves_one_token_behind_what_is_kept():
    with Harness(Fake(n_ctx=64), n_ctx=64) as h:
        task = h.submit(b"0123456789", n_predict=54, n_keep=4, n_discard=1000)
        h.wait(task)
        # 11 tokens were read and 53 written ones decoded; the shift at 63 left five and the last, then one came.
        assert h.end(task).truncated is True
        tokens = h.core.slot_tokens(h.slot(task))
        assert tokens == [0, *(3 + byte for byte in b"0123"), *h.tokens(task)[-3:-1]]
