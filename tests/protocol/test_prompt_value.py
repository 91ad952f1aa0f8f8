"""The value of a cached prompt: what makes one worth more than another."""

import pytest

from llamad.protocol.prompt_value import value

HOUR, DAY = 3600.0, 86400.0
BASE = {"n_end": 1000, "n_tokens": 1000, "n_bytes": 1e6, "idle_s": 60.0}


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ({"n_returns": 1}, {}),
        ({"is_named": True}, {}),
        ({"retention_s": 300}, {}),
        ({"n_returns": 1}, {"is_named": True, "retention_s": 86400}),
        ({"is_named": True, "retention_s": 86400, "idle_s": DAY}, {"is_named": True, "idle_s": HOUR}),
        ({}, {"retention_s": -1}),
        ({"n_returns": 1, "retention_s": -1}, {}),
        ({}, {"is_superseded": True}),
        ({}, {"is_superseded": True, "n_returns": 9, "is_named": True}),
        ({}, {"idle_s": 61.0}),
        ({}, {"idle_s": 30 * DAY}),
        ({}, {"n_bytes": 2e6}),
        ({"n_end": 2000, "n_tokens": 2000, "n_bytes": 2e6}, {}),
        # The end of a long prompt costs more to compute than the beginning of another one.
        ({"n_end": 40_000, "n_tokens": 256}, {"n_end": 4000, "n_tokens": 256}),
    ],
)
def test_what_makes_an_entry_worth_more(more, less):
    assert value(**{**BASE, **more}) > value(**{**BASE, **less}) > 0


def test_a_long_conversation_of_yesterday_is_worth_more_than_a_title_of_now():
    long = value(n_end=40_000, n_tokens=40_000, n_bytes=40e6, idle_s=DAY)
    assert long > value(n_end=300, n_tokens=300, n_bytes=0.3e6, idle_s=0)
    assert long < value(n_end=40_000, n_tokens=40_000, n_bytes=40e6, idle_s=HOUR)


def test_a_conversation_that_goes_on_is_worth_more_than_a_longer_one_of_yesterday():
    now = value(n_end=8000, n_tokens=8000, n_bytes=8e6, idle_s=10, n_returns=1)
    assert now > value(n_end=40_000, n_tokens=40_000, n_bytes=40e6, idle_s=DAY, n_returns=1)


def test_a_hint_ends():
    """After its time the prompt is one like any other, apart from the time in which it did not age."""
    for seconds in (300, 3600, 86400):
        named = value(**{**BASE, "retention_s": seconds, "idle_s": seconds - 1.0})
        assert named == value(**{**BASE, "is_named": True, "idle_s": 0.0})
        assert value(**{**BASE, "retention_s": seconds, "idle_s": seconds + 60.0}) == pytest.approx(
            value(**BASE)
        )
    longest = {**BASE, "idle_s": 40 * DAY}
    assert value(**longest, retention_s=2**31 - 1) == value(**{**longest, "idle_s": 39 * DAY})


def test_strange_numbers_give_a_number():
    for more in (
        {"idle_s": -5.0},
        {"n_bytes": 0.0},
        {"n_tokens": 0},
        {"idle_s": 1e18},
        {"retention_s": -(2**31)},
    ):
        assert 0 <= value(**{**BASE, **more}) < 1e6
