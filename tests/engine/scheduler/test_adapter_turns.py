"""Tasks with different adapters: each token is computed by its own set, sets take turns, none starves."""

from __future__ import annotations

import pytest

from llamad.engine.testing.fake import Fake
from tests.support.engine_harness import Harness

ALONE = {"number": 7, "uses": ((1, 0.5),)}
OTHER = {"number": 8, "uses": ((2, 1.0),)}


def of_turns(h: Harness) -> list[frozenset[int]]:
    """The slots of each step that has nobody else's for its shape (fillers, padding), without repetitions."""
    turns: list[frozenset[int]] = []
    for step in h.steps:
        slots = frozenset(row.slot for row in step.slots)
        if step.n_fillers == 0 and slots and (not turns or turns[-1] != slots):
            turns.append(slots)
    return turns


def test_each_token_is_computed_by_its_own_set():
    fake = Fake(script=b"some text", decode_us=200)
    with Harness(fake, n_slots=4) as h:
        tasks = [h.submit(b"the same prompt", **options) for options in (ALONE, OTHER, {}, ALONE)]
        h.wait(*tasks)
        marks = [set(fake.adapters(h.slot(task))) for task in tasks]
        assert marks == [{5.0}, {100.0}, {0.0}, {5.0}]
        assert {h.text(task) for task in tasks} == {b"some text"}


def test_tasks_with_the_same_set_share_their_steps():
    fake = Fake(script=b"x" * 40, decode_us=200)
    with Harness(fake, n_slots=5) as h:
        first = h.submit(b"first")
        h.catch()
        tasks = [h.submit(b"%d" % i, **(ALONE if i % 2 else OTHER)) for i in range(4)]
        fake.block(False)
        h.wait(first, *tasks)
        ours, theirs = ({h.slot(task) for task in tasks[i::2]} for i in (0, 1))
        assert all(turn <= ours or turn <= theirs or turn == {h.slot(first)} for turn in of_turns(h))
        # A turn has many steps.
        assert fake.n_adapter_changes < len(h.steps) // 4


def test_none_starves_beside_an_endless_one():
    """The endless one goes on as well: sets take turns."""
    fake = Fake(decode_us=1000)
    with Harness(fake, n_slots=4, n_ctx=4096) as h:
        endless = h.submit(b"on and on", n_predict=100_000, **ALONE)
        h.wait_first(endless)
        others = [h.submit(b"%d" % i, n_predict=20, **OTHER) for i in range(2)]
        h.wait(*others)
        n_before = len(h.tokens(endless))
        h.until(lambda: len(h.tokens(endless)) > n_before + 10)
        assert fake.n_adapter_changes >= 3
        h.port.abort(endless)
        h.wait(endless)


def test_a_failed_decode_leaves_no_adapters_behind():
    fake = Fake(script=b"x" * 30)
    with Harness(fake) as h:
        h.wait(h.submit(b"one", **ALONE))
        fake.fail_next(-3)
        h.wait(h.submit(b"two", **ALONE))
        plain = h.submit(b"three")
        h.wait(plain)
        assert set(fake.adapters(h.slot(plain))) == {0.0}
        again = h.submit(b"four", **ALONE)
        h.wait(again)
        assert set(fake.adapters(h.slot(again))) == {5.0}


def activated(n_base: int, base: dict | None = None) -> dict:
    """An activated adapter beside the base's, from this token of the prompt on."""
    base = base or {"number": 0, "uses": ()}
    return {
        "number": 9 + base["number"],
        "uses": (*base["uses"], (3, 1.0)),
        "base": base["number"],
        "n_base": n_base,
        "n_base_uses": len(base["uses"]),
    }


PREFIX = b"what comes before the invocation, "  # with BOS one token more


@pytest.mark.parametrize("base", [None, ALONE])
def test_an_activated_adapter_begins_at_its_invocation(base):
    fake = Fake(script=b"x")
    n = len(PREFIX) + 1
    with Harness(fake, n_slots=2) as h:
        task = h.submit(PREFIX + b"do it", **activated(n, base))
        h.wait(task)
        marks = fake.adapters(h.slot(task))
        before = 0.0 if base is None else 5.0
        assert marks[:n] == [before] * n
        assert set(marks[n:]) == {before + 1000.0}


def test_what_comes_before_an_invocation_is_shared_with_the_base():
    fake = Fake(script=b"x")
    n = len(PREFIX) + 1
    with Harness(fake, n_slots=1) as h:
        h.wait(h.submit(PREFIX + b"do it", **activated(n)))
        plain = h.submit(PREFIX + b"do it")
        h.wait(plain)
        assert h.n_cached(plain) == n
        again = h.submit(PREFIX + b"do it again", **activated(n))
        h.wait(again)
        assert h.n_cached(again) == n  # the rest was the base's
        third = h.submit(PREFIX + b"do it again", **activated(n))
        h.wait(third)
        assert h.n_cached(third) == n + len(b"do it again") - 1
        elsewhere = h.submit(PREFIX + b"do it again", **activated(n - 4))
        h.wait(elsewhere)
        assert h.n_cached(elsewhere) == n - 4


def test_a_closed_adapter_is_closed_between_steps():
    fake = Fake(script=b"x")
    with Harness(fake) as h:
        h.wait(h.submit(b"one", **ALONE))
        h.port.forget(1)
        h.until(lambda: fake.n_adapters_closed == 1)
