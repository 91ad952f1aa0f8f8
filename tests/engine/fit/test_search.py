"""The choice of context, experts and layers, over devices and models that exist on paper only."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.fit.search import CELLS_STEP, Choice, Freedom, Machine, Need, Share, UnfitError, fit

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Paper:
    """A model on paper: bytes of a layer without its experts, of those, of the output, of a token in a layer's cache,
    and of the compute buffers of each device in use."""

    n_layers: int = 32
    dense: int = 200 * MIB
    experts: int = 0
    output: int = 300 * MIB
    token: int = 4096
    compute: int = 300 * MIB
    n_ctx_train: int = 131072
    n_devices: int = 1

    def default(self) -> tuple[Share, ...]:
        """All layers, split evenly over the devices, as llama.cpp does if they are alike."""
        n = self.n_layers + 1
        return tuple(
            Share((i + 1) * n // self.n_devices - i * n // self.n_devices) for i in range(self.n_devices)
        )

    def measure(self, choice: Choice) -> Need:
        n_ctx = choice.n_ctx or self.n_ctx_train
        shares = choice.shares or (self.default() if self.n_devices else ())
        n_host = self.n_layers + 1 - sum(share.n_layers for share in shares)
        host = 64 * MIB + n_host * self.token * n_ctx
        if not self.n_devices:
            host += self.n_layers * (self.dense + self.experts) + self.output
        devices, weights = [], 0
        for i, share in enumerate(shares):
            has_output = i == self.n_devices - 1 and share.n_layers > 0
            n = share.n_layers - has_output
            kept = {"experts": 0, "gate and down": 1, "down": 2}[share.part] if share.n_part else 0
            own = n * self.dense + (n - share.n_part) * self.experts + kept * self.experts // 3
            own += self.output * has_output
            weights += own
            devices.append(own + n * self.token * n_ctx + (self.compute if share.n_layers else 0))
        return Need(tuple(devices), host, weights)

    def freedom(self, n_ctx_min: int = 4096, *, may_place: bool = True, is_sized: bool = False) -> Freedom:
        return Freedom(
            n_ctx_min=self.n_ctx_train if is_sized else min(n_ctx_min, self.n_ctx_train),
            n_ctx_max=self.n_ctx_train,
            n_streams=1,
            n_layers=self.n_layers,
            has_experts=self.experts > 0,
            may_place=may_place,
        )

    def choose(self, *devices: float, host: float = 1000, **freedom: bool) -> Choice:
        """Choose for devices of so many GiB."""
        machine = Machine(tuple(int(one * GIB) for one in devices), int(host * GIB))
        return fit(machine, self.freedom(**freedom), self.measure)


def test_nothing_is_chosen_where_everything_fits():
    assert Paper().choose(80) == Choice()


def test_the_context_shrinks_first():
    paper = Paper()
    choice = paper.choose(16)
    assert choice.shares == ()
    assert 4096 < choice.n_ctx < paper.n_ctx_train
    assert choice.n_ctx % CELLS_STEP == 0
    more = Choice(choice.n_ctx + CELLS_STEP)
    assert paper.measure(choice).devices[0] <= 16 * GIB < paper.measure(more).devices[0]


def test_layers_go_to_the_host_once_the_context_is_smallest():
    paper = Paper()
    choice = paper.choose(4)
    assert choice.n_ctx == 4096
    (share,) = choice.shares
    assert 0 < share.n_layers < 33
    one_more = Choice(4096, (Share(share.n_layers + 1),))
    assert paper.measure(choice).devices[0] <= 4 * GIB < paper.measure(one_more).devices[0]


def test_a_context_that_the_user_set_stays():
    choice = Paper().choose(16, is_sized=True)
    assert choice.n_ctx == 0
    assert 0 < choice.n_layers < 33


def test_what_may_not_change_is_refused_with_its_sum():
    with pytest.raises(UnfitError) as caught:
        Paper().choose(4, is_sized=True, may_place=False)
    assert caught.value.choice == Choice()
    assert caught.value.need == Paper().measure(Choice())


def test_experts_go_to_the_host_before_layers():
    paper = Paper(experts=2 * GIB, dense=50 * MIB)
    choice = paper.choose(24)
    (share,) = choice.shares
    assert choice.n_ctx == 4096
    assert share.n_layers == 33
    assert 0 < share.n_part < 32
    one_less = Choice(4096, (Share(33, share.n_part - 1),))
    assert paper.measure(choice).devices[0] <= 24 * GIB < paper.measure(one_less).devices[0]


def test_a_part_of_one_more_layers_experts_fills_the_rest():
    paper = Paper(experts=3 * GIB, dense=50 * MIB, token=0)
    whole = Paper.measure(paper, Choice(4096, (Share(33, 30),))).devices[0]
    for room, part in ((0, "experts"), (1.1, "gate and down"), (2.1, "down")):
        machine = Machine((whole + int(room * GIB),), 1000 * GIB)
        assert fit(machine, paper.freedom(), paper.measure).shares == (Share(33, 30, part),)


def test_layers_go_to_the_host_where_not_even_the_rest_of_them_fits():
    paper = Paper(experts=2 * GIB)
    (share,) = paper.choose(4).shares
    assert 0 < share.n_layers < 33
    assert share.n_part == share.n_layers - 1  # all experts, but the output has none


def test_without_devices_the_context_fits_host_memory():
    paper = Paper(n_devices=0)
    choice = paper.choose(host=16)
    assert choice.shares == ()
    assert paper.measure(choice).host <= 16 * GIB < paper.measure(Choice(choice.n_ctx + CELLS_STEP)).host
    with pytest.raises(UnfitError):
        paper.choose(host=2)


def test_several_devices_share_what_one_cannot_hold():
    paper = Paper(n_devices=2)
    choice = paper.choose(10, 10)
    assert 4096 < choice.n_ctx < paper.n_ctx_train
    assert choice.n_layers in (0, 33)  # all of them, by llama.cpp's own split or by ours


def test_unequal_devices_are_filled_from_the_last_one():
    paper = Paper(n_devices=2)
    choice = paper.choose(20, 3)
    assert choice.n_layers == 33
    assert choice.shares[0].n_layers > choice.shares[1].n_layers > 0
    assert all(n <= m * GIB for n, m in zip(paper.measure(choice).devices, (20, 3), strict=True))


def test_experts_of_several_devices():
    paper = Paper(n_devices=3, experts=2 * GIB, dense=50 * MIB)
    choice = paper.choose(16, 16, 8)
    assert choice.n_layers == 33
    assert 0 < choice.n_part < 32
    assert all(n <= m * GIB for n, m in zip(paper.measure(choice).devices, (16, 16, 8), strict=True))


sizes = st.floats(0.5, 40)


@given(
    n_layers=st.integers(1, 100),
    dense=st.integers(1, 800),
    experts=st.integers(0, 3000),
    token=st.integers(0, 20000),
    devices=st.lists(sizes, max_size=4),
    host=st.floats(1, 200),
)
def test_every_choice_fits_and_the_same_question_has_the_same_answer(
    n_layers, dense, experts, token, devices, host
):
    paper = Paper(n_layers, dense * MIB, experts * MIB, token=token, n_devices=len(devices))
    machine = Machine(tuple(int(one * GIB) for one in devices), int(host * GIB))
    n_asked = 0

    def measure(choice: Choice) -> Need:
        nonlocal n_asked
        n_asked += 1
        return paper.measure(choice)

    try:
        choice = fit(machine, paper.freedom(), measure)
    except UnfitError as error:
        choice = error.choice
        is_fit = False
    else:
        is_fit = True
        assert choice == fit(machine, paper.freedom(), paper.measure)
        assert choice.n_ctx % CELLS_STEP == 0
    assert machine.holds(paper.measure(choice)) == is_fit
    assert 0 <= choice.n_layers <= n_layers + 1
    assert all(0 <= share.n_part <= share.n_layers for share in choice.shares)
    assert n_asked < 60 + 100 * len(devices)
