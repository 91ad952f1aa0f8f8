"""How long an engine may be silent: machines from slow to fast, and prompts in either order."""

import pytest

from llamad.models.stalls import STALL_SECONDS_MIN, limit


@pytest.mark.parametrize("token_seconds", [0.00002, 0.002, 0.1, 0.5, 1.9])
def test_a_full_batch_is_never_a_hang(token_seconds: float) -> None:
    full = 512 * token_seconds
    assert limit(0.0, 512, 0.0, 0) > full  # the first prompt
    short = 10 * token_seconds
    assert limit(short, 512, short, 10) > full  # the first long one
    assert limit(full, 512, full, 512) > full


def test_a_fast_machine_is_judged_soon_once_it_is_known() -> None:
    assert limit(0.05, 512, 0.5, 4000) == STALL_SECONDS_MIN


def test_a_step_that_was_long_once_may_be_so_again() -> None:
    assert limit(60.0, 512, 0.5, 4000) == 1200.0
