"""What a draft model costs, in a simulation: steps, drafts and reading take what they take on a GPU, and the model is
right as often as a test says. A model that is wrong must not lose more than 3 % against the same steps without it, also
where drafts from text are right; a good one must win."""

import itertools
import random

import pytest

from llamad.engine.testing.drafts_probe import AccountProbe

SWITCH_US = 6000.0
DRAFT_US, READ_US = 1300.0, 5.0
N_PROMPT, N_PREDICT = 700, 256
WIDTH = 4  # of steps with drafts of the model


def step_us(n_rows):
    return 4000.0 + 20 * n_rows


class Run:
    """Requests of n_slots at a time. share: of the model's tokens that are right when they are verified; trial_share:
    in trials, the same unless it is given. text: tokens that a step gives each slot with drafts from text."""

    def __init__(self, n_slots, share, *, trial_share=None, text=1.0, seed=1):
        self.n_slots, self.text = n_slots, text
        self.share, self.trial_share = share, share if trial_share is None else trial_share
        self.account = AccountProbe()
        self.draw = random.Random(seed)
        self.n_right = self.n_judged = 0.0
        self.us = self.plain_us = 0.0  # with the model and without it
        self.is_read = [False] * n_slots

    def judge(self, share):
        is_right = self.draw.random() < share
        self.n_right, self.n_judged = self.n_right * 0.99 + is_right, self.n_judged * 0.99 + 1
        return is_right

    def read(self, n_slots_max):
        """Read one prompt after the other as far as the account pays for it."""
        for i in range(self.n_slots):
            if n_slots_max and not self.is_read[i] and self.account.budget_us >= N_PROMPT * READ_US:
                n_slots_max -= 1
                self.is_read[i] = True
                self.account.pay(DRAFT_US + N_PROMPT * READ_US)
                self.us += DRAFT_US + N_PROMPT * READ_US

    def expected_us(self, n_ready, share=None):
        """What a token is expected to take if the model drafts for n_ready slots. share: of its tokens that are right,
        unless what was judged counts."""
        share = (self.n_right + 0.6) / (self.n_judged + 1) if share is None else share
        tokens = self.n_slots * self.text + n_ready * max(
            0.0, sum(share**i for i in range(WIDTH)) - self.text
        )
        return (step_us(self.n_slots * WIDTH) + (WIDTH - 1) * DRAFT_US) / tokens

    def step(self):
        """Take one step. Return how many tokens each slot got on average."""
        text_step_us = step_us(self.n_slots * (1 if self.text == 1 else 8))
        text_us = text_step_us / (self.n_slots * self.text)
        self.account.open(SWITCH_US, step_us(self.n_slots) / self.n_slots)
        if self.account.is_wanted:
            self.read(1)
        n_ready = sum(self.is_read)
        reading_us = (self.n_slots - n_ready) * N_PROMPT * READ_US
        best_us = self.expected_us(self.n_slots)
        self.account.want(text_us, best_us, self.n_slots, reading_us, SWITCH_US, self.n_judged >= 4)
        if self.account.use(text_us, self.expected_us(n_ready)):
            us = step_us(self.n_slots * WIDTH) + (WIDTH - 1) * DRAFT_US
            n_tokens = int(self.n_slots * self.text) if self.text > 1 else self.n_slots
            for _ in range(n_ready):
                for _ in range(WIDTH - 1):
                    if not self.judge(self.share):
                        break
                    n_tokens += 1
        else:
            us, n_tokens = text_step_us, int(self.n_slots * self.text)
            # As in model_step.pyx: a trial must be worth it.
            is_hoped = 1.05 * self.expected_us(self.n_slots, 0.9) <= text_us
            if is_hoped and self.account.tries(8 * DRAFT_US + N_PROMPT * READ_US):
                self.read(1 - min(1, n_ready))
                self.judge(self.trial_share)
                self.account.judged(1)
                self.account.pay(DRAFT_US)
                self.us += DRAFT_US
        self.account.step(us, n_tokens, 20 * SWITCH_US + 60 * step_us(self.n_slots))
        self.us += us
        self.plain_us += n_tokens * text_us
        return n_tokens / self.n_slots

    def round(self):
        """Answer a request in each slot. Return its speed against that without the model."""
        self.us = self.plain_us = n = 0.0
        self.is_read = [False] * self.n_slots
        while n < N_PREDICT:
            n += self.step()
        return self.plain_us / self.us


@pytest.mark.parametrize("n_slots", [1, 8, 64])
@pytest.mark.parametrize("text", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_wrong_model_loses_little_in_every_round(n_slots, text, share):
    run = Run(n_slots, share, text=text)
    assert min(run.round() for _ in range(20)) > 0.97


@pytest.mark.parametrize("n_slots", [1, 8, 64])
@pytest.mark.parametrize("text", [1.0, 2.0])
def test_a_model_that_is_right_in_trials_only_loses_little_over_all(n_slots, text):
    run = Run(n_slots, 0.0, trial_share=1.0, text=text)
    speeds = [run.round() for _ in range(40)]
    assert len(speeds) / sum(1 / speed for speed in speeds) > 0.97


@pytest.mark.parametrize(
    ("n_slots", "share", "least"), [(1, 1.0, 1.6), (1, 0.8, 1.2), (8, 1.0, 1.4), (64, 1.0, 1.04)]
)
def test_a_good_model_wins(n_slots, share, least):
    run = Run(n_slots, share)
    speeds = [run.round() for _ in range(10)]
    assert min(speeds) > 0.97
    assert sum(speeds) / len(speeds) > least


def test_a_model_is_not_tried_before_it_is_known_what_steps_take():
    account = AccountProbe()
    assert not account.tries(0)
    account.open(SWITCH_US, 0)
    assert not account.tries(0)
    account.open(SWITCH_US, 4000)
    for _ in range(8):
        assert not account.tries(0)
        account.step(4000, 1, 1e9)
    assert account.tries(0)


def test_pauses_between_trials_become_longer():
    account, begins = AccountProbe(), []
    account.open(SWITCH_US, 4000)
    for i in range(20_000):
        if account.tries(0):
            begins.append(i)
            account.judged(8)
        account.step(4000, 1, 1e9)
    pauses = [b - a for a, b in itertools.pairwise(begins)]
    assert pauses[:5] == [256, 512, 1024, 2048, 4096]
    assert max(pauses) == 4096


def test_a_trial_whose_model_drafts_nothing_ends():
    account = AccountProbe()
    account.open(SWITCH_US, 4000)
    n_steps = 0
    for _ in range(200):
        n_steps += account.tries(0)
        account.step(4000, 1, 1e9)
    assert n_steps == 64


def test_what_text_wins_does_not_pay_for_the_model():
    """A step with drafts of the model is compared with what drafts from text would have given."""
    account = AccountProbe()
    account.open(SWITCH_US, 4000)
    assert account.want(1000, 900, 1, 0, 0, True)
    assert account.use(1000, 900)
    before = account.budget_us
    account.step(5000, 4, 1e9)
    assert account.budget_us == pytest.approx(before + 1.01 * 4 * 1000 - 5000)


def test_the_loan_pays_for_the_first_trial_only():
    account = AccountProbe()
    account.open(SWITCH_US, 4000)
    assert account.budget_us == 20 * 4000
    for _ in range(9):
        is_tried = account.tries(10_000)
        account.step(4000, 1, 1e9)
    assert is_tried
    account.pay(10_000)
    account.judged(8)
    assert account.budget_us == 0
    # Later trials take 1 % of the time, and do not give it back.
    for _ in range(300):
        account.step(4000, 1, 1e9)
    assert account.budget_us == pytest.approx(300 * 40)
    assert not account.tries(300 * 40 + 1)
    assert account.tries(300 * 40)
    account.judged(8)
    assert account.budget_us == pytest.approx(300 * 40)
