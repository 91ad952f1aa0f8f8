"""Actions on slots, over the fake model: done between two steps, in order, never to a slot at work, and with everybody
else's text as if nothing had happened."""

import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness
from support.states.slot_actions import PROMPT, SIZE, counted, fill, restore, save, tokens_of, told

from llamad.client.events import Admitted
from llamad.client.task import Action
from llamad.engine.testing.fake import Fake
from llamad.protocol.blobs import Blob
from llamad.protocol.messages import (
    ACTION_ERASE,
    ACTION_LOOK,
    ACTION_RESTORE,
    ACTION_SAVE,
    ACTION_SHIFT,
    ACTION_TOKENS,
    EVENT_ACTION,
    EVENT_ADMITTED,
    EVENT_STEP,
    RESULT_ABORTED,
    RESULT_BUSY,
    RESULT_CANNOT,
    RESULT_DONE,
    RESULT_FAILED,
    RESULT_NO_ROOM,
    RESULT_TOO_SMALL,
)
from llamad.ses1 import ses1


def test_a_state_goes_from_one_slot_to_another():
    with Harness(Fake()) as h:
        fill(h, 0)
        acted, blob = save(h, 0)
        assert acted.result == RESULT_DONE
        assert acted.n_tokens == len(tokens_of(PROMPT))
        assert acted.n_bytes == blob.size
        assert bytes(blob)[:8] == b"SES1" + struct.pack("<I", acted.n_tokens)
        fill(h, 2, b"something else")
        acted = restore(h, 2, blob)
        assert (acted.result, acted.n_tokens) == (RESULT_DONE, len(tokens_of(PROMPT)))
        assert told(h, 2) == told(h, 0) == tokens_of(PROMPT)
        task = h.submit(PROMPT + b" and more", id_slot=2, n_predict=5)
        h.wait(task)
        assert h.n_cached(task) == len(tokens_of(PROMPT))
        assert h.text(task) == counted(b"e", 5)


def test_a_state_goes_back_to_its_own_slot():
    with Harness(Fake()) as h:
        fill(h, 1)
        _, blob = save(h, 1)
        fill(h, 1, b"overwritten")
        assert restore(h, 1, blob).result == RESULT_DONE
        assert told(h, 1) == tokens_of(PROMPT)


def test_an_empty_slot_is_saved_and_restored():
    with Harness(Fake()) as h:
        acted, blob = save(h, 3)
        assert (acted.result, acted.n_tokens) == (RESULT_DONE, 0)
        fill(h, 0)
        assert restore(h, 0, blob).result == RESULT_DONE
        assert told(h, 0) == []
        h.wait(h.submit(PROMPT, id_slot=0, n_predict=2))


def test_the_others_write_on_unchanged():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        fill(h, 3)
        writers = [h.submit(bytes([97 + i]) * 8, id_slot=i) for i in range(3)]
        for writer in writers:
            h.wait_first(writer)
        acted, blob = save(h, 3)
        for _ in range(10):
            n_before = [len(h.text(writer)) for writer in writers]
            assert restore(h, 3, blob).result == RESULT_DONE
            assert told(h, 3) == tokens_of(PROMPT)
            assert h.done(h.act(ACTION_SHIFT, 3, n_keep=2, n_discard=3)).result == RESULT_DONE
            assert save(h, 3)[0].result == RESULT_DONE
            assert h.done(h.act(ACTION_ERASE, 3)).n_tokens == acted.n_tokens - 3
            h.until(lambda n=n_before: all(len(h.text(w)) > k for w, k in zip(writers, n, strict=True)))
        for i, writer in enumerate(writers):
            h.port.abort(writer)
            h.wait(writer)
            text = h.text(writer)
            assert text == counted(bytes([97 + i]), len(text))


def test_an_action_waits_for_its_slot():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        writer = h.submit(PROMPT, id_slot=1, n_predict=100)
        h.wait_first(writer)
        blob = Blob(SIZE)
        action = h.act(ACTION_SAVE, 1, blob)
        others = h.act(ACTION_ERASE, 0)
        assert h.done(others).result == RESULT_DONE  # another slot's does not wait behind it
        assert not h.end(writer)
        acted = h.done(action)
        assert h.end(writer)
        assert acted.n_tokens == len(tokens_of(PROMPT)) + 99  # the last one was picked, but not decoded


def test_without_waiting_a_busy_slot_is_told():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        writer = h.submit(PROMPT, id_slot=1, n_predict=100)
        h.wait_first(writer)
        for kind in (ACTION_SAVE, ACTION_RESTORE, ACTION_ERASE, ACTION_SHIFT, ACTION_TOKENS):
            assert h.done(h.act(kind, 1, Blob(SIZE), nowait=True)).result == RESULT_BUSY
        h.wait(writer)
        assert h.text(writer) == counted(PROMPT, 100)
        assert save(h, 1, nowait=True)[0].result == RESULT_DONE


def test_a_look_does_not_wait():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        writer = h.submit(PROMPT, id_slot=1, n_predict=200)
        h.wait_first(writer)
        seen = told(h, 1, ACTION_LOOK)
        assert not h.end(writer)
        assert seen[: len(tokens_of(PROMPT))] == tokens_of(PROMPT)
        assert told(h, 0, ACTION_LOOK) == []


def test_a_waiting_action_is_withdrawn():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        writer = h.submit(PROMPT, id_slot=1, n_predict=100)
        h.wait_first(writer)
        actions = [h.act(ACTION_ERASE, 1), h.act(ACTION_ERASE, 1), h.act(ACTION_TOKENS, 1, Blob(SIZE))]
        h.port.abort(actions[0])
        h.port.abort(actions[2])
        assert h.done(actions[0]).result == h.done(actions[2]).result == RESULT_ABORTED
        h.wait(writer)
        assert h.text(writer) == counted(PROMPT, 100)
        assert h.done(actions[1]).result == RESULT_DONE
        h.port.abort(actions[1])  # done already
        h.wait(h.submit(PROMPT, n_predict=1))


def test_actions_of_a_slot_keep_their_order_and_come_before_who_waits_for_it():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        fill(h, 0)
        _, blob = save(h, 0)
        writer = h.submit(b"writer", id_slot=1, n_predict=50)
        h.wait_first(writer)
        bound = h.submit(PROMPT + b"!", id_slot=1, n_predict=1)
        first, second = Blob(SIZE), Blob(SIZE)
        ids = [
            h.act(ACTION_TOKENS, 1, first),
            h.act(ACTION_ERASE, 1),
            h.act(ACTION_RESTORE, 1, blob, n_tokens=ses1.n_tokens(blob)),
            h.act(ACTION_TOKENS, 1, second),
        ]
        assert [h.done(one).result for one in ids] == [RESULT_DONE] * 4
        assert memoryview(first).cast("i").tolist()[:7] == tokens_of(b"writer")
        assert memoryview(second).cast("i").tolist() == tokens_of(PROMPT)
        h.wait(bound)
        assert h.n_cached(bound) == len(tokens_of(PROMPT))


def test_beside_a_writer_states_are_taken_one_between_two_steps():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        for slot in (0, 1, 2):
            fill(h, slot)
        _, blob = save(h, 0)
        writer = h.submit(b"writer", id_slot=3)
        h.wait_first(writer)
        h.catch()
        n_tokens = ses1.n_tokens(blob)
        long = [
            h.act(ACTION_SAVE, 0, Blob(SIZE)),
            h.act(ACTION_SAVE, 1, Blob(SIZE)),
            h.act(ACTION_RESTORE, 2, blob, n_tokens=n_tokens, nowait=True),  # put off, but not busy
            h.act(ACTION_SAVE, 0, Blob(SIZE)),
        ]
        erase = h.act(ACTION_ERASE, 1)  # behind its slot's save
        bound = h.submit(PROMPT + b"!", id_slot=0, n_predict=1)  # and so is a task
        short = [h.act(ACTION_TOKENS, 2, Blob(SIZE)), h.act(ACTION_LOOK, 1, Blob(SIZE))]
        fake.block(False)
        assert [h.done(one).result for one in [*long, erase, *short]] == [RESULT_DONE] * 7
        assert h.acted[erase].n_tokens == len(tokens_of(PROMPT))
        h.wait(bound)
        assert h.n_cached(bound) == len(tokens_of(PROMPT))
        h.port.abort(writer)
        h.wait(writer)
        places = [h.order.index((EVENT_ACTION, one)) for one in long]
        for before, after in itertools.pairwise(places):
            assert EVENT_STEP in [kind for kind, _ in h.order[before:after]]
        assert h.order.index((EVENT_ACTION, erase)) > places[1]
        assert h.order.index((EVENT_ADMITTED, bound)) > places[3]
        assert h.order.index((EVENT_ACTION, short[1])) < places[1]  # a look waits for nobody


def test_states_put_off_are_taken_though_nobody_steps():
    fake = Fake(decode_us=200)
    with Harness(fake) as h:
        fill(h, 0)
        writer = h.submit(b"writer", id_slot=3, n_predict=40)
        h.wait_first(writer)
        h.port.pause(writer)
        actions = [h.act(ACTION_SAVE, slot, Blob(SIZE)) for slot in (0, 1, 2, 0)]
        assert [h.done(one).result for one in actions] == [RESULT_DONE] * 4
        assert not h.end(writer)
        h.port.resume(writer)
        h.wait(writer)
        assert h.text(writer) == counted(b"r", 40)


def test_actions_are_answered_when_the_engine_stops():
    fake = Fake(decode_us=1000)
    with Harness(fake) as h:
        writer = h.submit(PROMPT, id_slot=1, n_predict=-1)
        h.wait_first(writer, Admitted)
        actions = [h.act(ACTION_SAVE, 1, Blob(SIZE)) for _ in range(3)]
    assert [h.acted[one].result for one in actions] == [RESULT_ABORTED] * 3


def test_a_failed_restore_leaves_an_empty_slot():
    fake = Fake()
    with Harness(fake) as h:
        fill(h, 0)
        fill(h, 1, b"kept?")
        _, blob = save(h, 0)
        fake.fail_state()
        assert restore(h, 1, blob).result == RESULT_FAILED
        assert told(h, 1) == []
        assert told(h, 0) == tokens_of(PROMPT)
        assert h.stats()["n_restores"] == 0
        assert restore(h, 1, blob).result == RESULT_DONE
        task = h.submit(PROMPT + b"!", id_slot=1, n_predict=3)
        h.wait(task)
        assert h.text(task) == counted(b"!", 3)


def test_blobs_that_do_not_fit():
    with Harness(Fake()) as h:
        fill(h, 0)
        acted, blob = save(h, 0)
        small = Blob(acted.n_bytes - 1)
        again = h.done(h.act(ACTION_SAVE, 0, small))
        assert (again.result, again.n_bytes, small.size) == (RESULT_TOO_SMALL, acted.n_bytes, 0)
        exact = Blob(acted.n_bytes)
        assert h.done(h.act(ACTION_SAVE, 0, exact)).result == RESULT_DONE
        assert bytes(exact) == bytes(blob)
        assert h.done(h.act(ACTION_TOKENS, 0, Blob(4))).result == RESULT_TOO_SMALL
        for kind in (ACTION_SAVE, ACTION_RESTORE, ACTION_TOKENS):
            assert h.done(h.act(kind, 0)).result == RESULT_FAILED  # without one
        # What the checker would not have let through.
        assert h.done(h.act(ACTION_RESTORE, 0, blob, n_tokens=513)).result == RESULT_FAILED
        assert h.done(h.act(ACTION_RESTORE, 0, Blob(64), n_tokens=5)).result == RESULT_FAILED
        assert told(h, 0) == tokens_of(PROMPT)


def test_there_is_no_such_slot():
    with Harness(Fake(), n_slots=2) as h:
        for slot in (-1, 2, 2**31 - 1):
            with pytest.raises(ValueError, match="no such slot"):
                h.port.act(99, Action(ACTION_ERASE, slot))


# --- a cache that all slots share ---------------------------------------------------------------------------------


def test_room_is_made_by_the_idle():
    fake = Fake(unified=True)
    with Harness(fake, n_slots=3, n_ctx=96, n_cells=96) as h:
        fill(h, 0, b"a" * 39)
        _, blob = save(h, 0)
        fill(h, 1, b"b" * 39)
        acted = restore(h, 2, blob)  # 40 + 40 + 40 > 96: the oldest goes
        assert (acted.result, told(h, 0)) == (RESULT_DONE, [])
        assert told(h, 1) == tokens_of(b"b" * 39)
        assert told(h, 2) == tokens_of(b"a" * 39)
        assert restore(h, 2, blob).result == RESULT_DONE  # its own cells are free for it
        assert told(h, 1) == tokens_of(b"b" * 39)


def test_without_room_nobody_loses_anything():
    fake = Fake(unified=True, decode_us=500)
    with Harness(fake, n_slots=3, n_ctx=96, n_cells=96) as h:
        fill(h, 0, b"a" * 59)
        _, blob = save(h, 0)
        assert h.done(h.act(ACTION_ERASE, 0)).result == RESULT_DONE
        fill(h, 2, b"c" * 9)
        writer = h.submit(b"b" * 39, id_slot=1, n_predict=40)
        h.wait_first(writer)
        h.port.pause(writer)
        assert restore(h, 0, blob).result == RESULT_NO_ROOM
        assert told(h, 2) == tokens_of(b"c" * 9)
        h.port.resume(writer)
        h.wait(writer)
        assert h.text(writer) == counted(b"b", 40)
        assert restore(h, 0, blob).result == RESULT_DONE


def test_cells_that_two_slots_hold_are_not_moved():
    fake = Fake(unified=True)
    with Harness(fake, n_slots=3, n_cells=1536) as h:
        text = PROMPT * 4
        fill(h, 0, text)
        fill(h, 1, text + b" and more")
        assert fake.n_copies == 1
        n_shared = len(tokens_of(text))
        assert h.done(h.act(ACTION_SHIFT, 0, n_keep=1, n_discard=4)).result == RESULT_CANNOT
        assert h.done(h.act(ACTION_SHIFT, 1, n_keep=1, n_discard=4)).result == RESULT_CANNOT
        assert h.done(h.act(ACTION_SHIFT, 1, n_keep=1, n_discard=n_shared)).result == RESULT_DONE
        assert told(h, 0) == tokens_of(text)
        # What was restored is the slot's own.
        _, blob = save(h, 0)
        assert restore(h, 0, blob).result == RESULT_DONE
        assert h.done(h.act(ACTION_SHIFT, 0, n_keep=1, n_discard=4)).result == RESULT_DONE


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["fill", "write", "save", "restore", "erase", "shift", "tokens", "look", "abort", "fail"]
        ),
        st.integers(0, 3),
        st.integers(0, 40),
        st.booleans(),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, unified=st.booleans())
def test_any_order_of_actions_leaves_nothing_behind(steps, unified):
    """Every action is answered once, the slots hold what the model's memory does, and no rule of llama.cpp is broken
    (see Harness.__exit__)."""
    fake = Fake(n_ctx=64, n_batch=32, unified=unified)
    with Harness(fake, n_slots=4, n_ctx=64, n_batch=32, n_cells=128 if unified else 0) as h:
        saved, tasks, actions = [], [], []
        for step, slot, x, nowait in steps:
            if step in ("fill", "write"):
                text = bytes([97 + x % 3]) * (x + 1)
                tasks.append(h.submit(text, id_slot=slot, n_predict=1 if step == "fill" else 30))
                if step == "fill":
                    h.wait(tasks[-1])
            elif step == "save":
                acted, blob = save(h, slot, nowait=nowait)
                saved += [blob] if acted.result == RESULT_DONE else []
            elif step == "restore" and saved:
                blob = saved[x % len(saved)]
                actions.append(h.act(ACTION_RESTORE, slot, blob, n_tokens=ses1.n_tokens(blob), nowait=nowait))
            elif step == "shift":
                actions.append(h.act(ACTION_SHIFT, slot, n_keep=x % 7, n_discard=x // 7, nowait=nowait))
            elif step == "erase":
                actions.append(h.act(ACTION_ERASE, slot, nowait=nowait))
            elif step in ("tokens", "look"):
                kind = ACTION_TOKENS if step == "tokens" else ACTION_LOOK
                actions.append(h.act(kind, slot, Blob(256), nowait=nowait))
            elif step == "abort" and tasks + actions:
                h.port.abort((tasks + actions)[x % len(tasks + actions)])
            elif step == "fail":
                fake.fail_state()
        h.wait(*tasks)
        for action in actions:
            h.done(action)
