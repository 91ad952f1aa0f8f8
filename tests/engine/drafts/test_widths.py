"""How many drafted tokens a step verifies, in a simulation: steps cost what they cost on a GPU or a CPU, and drafts are
right as often as a text makes them. Drafting must win where it can, and never lose more than 3 %."""

import random

import numpy as np
import pytest

from llamad.engine.testing.drafts_probe import WidthsProbe

RIGHT, WRONG = 1, 0
ROWS_MORE = 64
# The drafts of which so many tokens are right.
DRAFTS = [np.array([RIGHT] * n + [WRONG] * (63 - n), dtype=np.int32) for n in range(64)]

# Microseconds of a step by its rows, and how much longer the first two steps of a shape take.
GPU = {1: 1280, 2: 1950, 4: 2050, 8: 2150, 16: 2450, 32: 2800, 64: 4000, 128: 5550}
CPU = {1: 22_000, 4: 62_000, 9: 147_000, 64: 900_000, 128: 1_800_000}
# A CPU whose flash attention works in tiles of 64 rows: a few less take far longer.
TILES = {
    1: 109_000,
    2: 179_000,
    4: 225_000,
    8: 430_000,
    32: 1_700_000,
    63: 3_300_000,
    64: 1_300_000,
    128: 2_600_000,
}
MACHINES = {"gpu": (GPU, 3000), "cpu": (CPU, 300), "tiles": (TILES, 300)}


def cost_of(table, rows):
    return float(np.interp(rows, list(table), list(table.values())))


def steady(share):
    return lambda n: share


def phases(n):
    """Right for a while, then wrong for a while."""
    return 0.95 if n // 150 % 2 == 0 else 0.0


def alternating(n):
    """Requests of 150 tokens: one copies a text, the next writes a new one."""
    return 0.995 if n // 150 % 2 == 0 else 0.0


TEXTS = {
    "never right": steady(0.0),
    "prose": steady(0.05),
    "some code": steady(0.5),
    "code": steady(0.8),
    "edited code": steady(0.95),
    "copied": steady(0.995),
    "phases": phases,
    "alternating": alternating,
}


class Stream:
    """One slot: a draft at every place, right as often as the text says."""

    def __init__(self, text, seed):
        self.text = text
        self.draw = random.Random(seed)
        self.n = 0
        self.n_right = self.guess()

    def guess(self):
        share, n = self.text(self.n), 0
        while n < 63 and self.draw.random() < share:
            n += 1
        return n

    def verified(self, width):
        """How many tokens a step of this width gives."""
        return 1 + min(self.n_right, width - 1)


def simulate(machine, text, n_slots, seed=1, n_request=0, mixed=0.0, n_short=0, n_tokens=0, n_draft_max=63):
    """The time of some tokens for each slot, as a share of the time without drafts. n_request: every request of so many
    tokens tries a draft. mixed: the share of steps that have prompts, too, whose time does not count. n_short: a new
    request begins after so many tokens. n_draft_max: no draft is longer."""
    table, change_us = MACHINES[machine]
    n_tokens = n_tokens or max(1500, 10_000 // n_slots)
    probe = WidthsProbe(n_slots, machine == "gpu")
    streams = [Stream(TEXTS[text], seed + i) for i in range(n_slots)]
    draw = random.Random(seed)
    now, n_taken, rows, n_same, plain, n_tried, all_prompts_us = 1.0, 0, 0, 0, 0.0, 0, 0.0
    while streams[0].n < n_tokens:
        probe.learn(int(now), n_taken)
        tries = bool(n_request) and streams[0].n // n_request >= n_tried
        is_mixed = streams[0].n > 50 and draw.random() < mixed
        width = probe.plan(int(now), 1 + ROWS_MORE // n_slots, tries, is_mixed)
        n_tried += tries
        n_same = n_same + 1 if rows == n_slots * width else 0
        rows = n_slots * width
        now += cost_of(table, rows) * draw.uniform(0.98, 1.02) + (change_us if n_same < 2 else 0)
        prompts_us = draw.uniform(500, 50_000) if is_mixed else 0.0
        now += prompts_us
        plain += prompts_us
        all_prompts_us += prompts_us
        n_taken = 0
        for i, stream in enumerate(streams):
            n = stream.verified(min(width, 1 + n_draft_max))
            n_taken += n
            for _ in range(n):
                stream.n += 1
                stream.n_right = stream.guess()
                if n_short and stream.n % n_short == 0:
                    probe.begin(i)
                probe.token(i, RIGHT, DRAFTS[stream.n_right][:n_draft_max])
        plain += cost_of(table, n_slots) * n_taken / n_slots
    return (now - all_prompts_us) / (plain - all_prompts_us)


@pytest.mark.parametrize("n_slots", [1, 8, 64])
@pytest.mark.parametrize("machine", list(MACHINES))
@pytest.mark.parametrize("text", list(TEXTS))
def test_drafting_never_loses_more_than_it_may(machine, text, n_slots):
    assert simulate(machine, text, n_slots) < 1.035


@pytest.mark.parametrize(
    ("text", "n_slots", "most"),
    [("edited code", 1, 0.5), ("copied", 1, 0.2), ("edited code", 8, 0.6), ("copied", 64, 0.8)],
)
def test_drafting_wins_where_drafts_are_right(text, n_slots, most):
    assert simulate("gpu", text, n_slots) < most


def test_drafting_begins_soon():
    """The first request after the start, which copies its prompt."""
    assert simulate("gpu", "copied", 1, n_tokens=384) < 0.35
    assert simulate("tiles", "copied", 1, n_tokens=256) < 0.5


def test_a_cpu_computes_rows_that_nobody_needs_if_that_takes_less_time():
    assert simulate("tiles", "copied", 1, n_draft_max=50) < 0.4


def test_a_draft_is_no_longer_than_the_ledger_can_pay_for():
    """Long drafts of which every fifth is wrong from its first token on."""
    assert simulate("tiles", "alternating", 1) < 0.75
    assert simulate("cpu", "alternating", 1, n_short=150) < 0.9


@pytest.mark.parametrize("machine", list(MACHINES))
@pytest.mark.parametrize("n_slots", [1, 8])
def test_requests_that_try_a_draft_lose_little(machine, n_slots):
    assert simulate(machine, "never right", n_slots, n_request=1000) < 1.035


def test_requests_that_try_a_draft_do_not_keep_drafts_from_paying():
    assert simulate("gpu", "copied", 1, n_request=100) < 0.3
    assert simulate("gpu", "edited code", 1, n_request=100) < 0.6


def test_a_try_is_paid_for_as_long_as_drafts_can_begin():
    probe, now = WidthsProbe(1, True), 1

    def step(us, tries=False):
        nonlocal now
        probe.learn(now, 1)
        assert probe.plan(now, 8, tries=tries) == 1 + tries
        now += us

    def try_one():
        before = probe.credit_us
        for us, tries in ((4000, True), (4000, False), (4000, False), (1000, False)):
            step(us, tries)
        return before - probe.credit_us

    for _ in range(800):
        step(1000)
    assert try_one() > 6000
    for _ in range(50):
        try_one()
    assert abs(try_one()) < 200
    for _ in range(60):
        probe.token(0, RIGHT, DRAFTS[63])
    probe.learn(now, 1)
    assert probe.plan(now, 64) > 1


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("text", ["never right", "some code", "phases"])
def test_steps_with_prompts_do_not_mislead(text, share):
    for machine in MACHINES:
        assert simulate(machine, text, 4, mixed=share) < 1.035


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_drafting_wins_beside_prompts(share):
    assert simulate("gpu", "copied", 4, mixed=share) < 0.6


@pytest.mark.parametrize(("machine", "most"), [("gpu", 0.1), ("cpu", 0.8)])
def test_short_requests_of_one_kind_begin_with_drafts(machine, most):
    assert simulate(machine, "copied", 1, n_short=150) < most


@pytest.mark.parametrize("n_slots", [1, 8])
@pytest.mark.parametrize("text", ["never right", "some code", "alternating"])
@pytest.mark.parametrize("machine", list(MACHINES))
def test_short_requests_lose_no_more(machine, text, n_slots):
    assert simulate(machine, text, n_slots, n_short=150) < 1.035


@pytest.mark.parametrize(("text", "most"), [("phases", 0.93), ("alternating", 0.9)])
def test_a_cpu_drafts_in_runs_and_not_between_them(text, most):
    """A change of the width costs a CPU nothing, so each step has the width that its text deserves just then."""
    assert simulate("cpu", text, 1) < most
