"""What a request computed again of the token sequences that its key knows."""

from __future__ import annotations

import random
from array import array

import pytest

from llamad.api.service.known_prompts import KnownPrompts, Sequence, common

DICE = random.Random(1)
FRONT, MIDDLE, END, NEW = (array("i", [DICE.randrange(50_000) for _ in range(300)]) for _ in range(4))


def of(*parts: array[int], adapters: int = 0) -> Sequence:
    return Sequence(b"".join(part.tobytes() for part in parts), adapters)


def test_a_turn_that_goes_on_is_no_miss() -> None:
    known = KnownPrompts()
    assert known.repeated("key", of(FRONT), 0) is None
    known.keep("key", of(FRONT, MIDDLE))
    assert known.repeated("key", of(FRONT, MIDDLE, NEW), 600) is None
    assert known.repeated("key", of(FRONT, MIDDLE, NEW), 599) is None
    assert known.repeated("key", of(NEW), 0) is None  # another conversation
    assert known.repeated("another", of(FRONT, MIDDLE), 0) is None


def test_evicted_and_others() -> None:
    known = KnownPrompts()
    known.keep("key", of(FRONT, MIDDLE))
    whole = of(FRONT, MIDDLE, NEW)
    for uses_cache, adapters, reason in ((True, 0, "evicted"), (False, 0, "other"), (True, 1, "adapters")):
        sequence = Sequence(whole.tokens, adapters)
        repeated = known.repeated("key", sequence, 100, uses_cache=uses_cache)
        assert repeated is not None
        assert (repeated.n, repeated.at, repeated.reason) == (500, 100, reason)
    assert (
        known.repeated("key", of(FRONT, MIDDLE), 536) is None
    )  # 63 tokens, as the last one is always computed
    assert known.repeated("key", of(FRONT, MIDDLE), 535) is not None


@pytest.mark.parametrize("n_changed", [0, 1, 7])
def test_a_change_in_front(n_changed: int) -> None:
    """Everything after tokens that were changed, removed or added is computed again, but only what was known counts."""
    known = KnownPrompts()
    known.keep("key", of(NEW))
    known.keep("key", of(FRONT, MIDDLE[:1], END))
    repeated = known.repeated("key", of(FRONT, NEW[:n_changed], END, NEW[:100]), 300)
    assert repeated is not None
    assert (repeated.at, repeated.reason) == (300, "changed")
    assert 260 <= repeated.n <= 300
    assert repeated.known == of(FRONT, MIDDLE[:1], END)


def test_a_sequence_takes_the_place_of_the_one_that_it_continues() -> None:
    known = KnownPrompts(bytes_max=10_000)
    for n in range(10, 300, 10):
        known.keep("key", of(FRONT, MIDDLE[:n]))
    known.keep("other", of(FRONT))
    repeated = known.repeated("other", of(FRONT, MIDDLE), 0)
    assert repeated is not None
    for one in (MIDDLE, END, NEW):
        known.keep("key", of(one, one, one, one))
    # Of the key with most bytes the oldest ones are gone.
    assert known.repeated("key", of(FRONT, MIDDLE), 0) is None
    assert known.repeated("other", of(FRONT), 0) is not None


def test_the_common_prefix() -> None:
    whole = of(FRONT, MIDDLE, END).tokens
    for n in (0, 1, 63, 64, 65, 128, 500, 899, 900):
        other = whole[: 4 * n] + b"\xff\xff\xff\x00" * 5
        assert common(whole, other) == common(other, whole) == 4 * n
    assert common(b"", whole) == 0
