"""--cache-ram is one budget for all models: those that are loaded, and those that left prompts when their engine
ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from llamad.models.fleet import shares
from llamad.models.fleet.shares import Shares
from llamad.models.host_state import State

MIB = 1 << 20


class Memory:
    """Prompts of a model without an engine. Those of the first tenth are pinned."""

    def __init__(self, n_mib: int) -> None:
        self.n_bytes = n_mib * MIB

    def shrink(self, n_bytes: int) -> int:
        self.n_bytes = max(n_bytes, self.n_bytes // 10)
        return self.n_bytes


class Host:
    """`given` are the parts that its engine got, in MiB."""

    def __init__(self, n_mib: int, is_loaded: bool, cache_ram: int) -> None:
        self.settings = SimpleNamespace(n_threads=1, n_threads_batch=1, cache_ram=cache_ram)
        self.state = State.READY if is_loaded else State.SLEEPING
        self.has_engine = is_loaded
        self.cache_memory = Memory(n_mib)
        self.given: list[int] = []

    def share(self, _: int, __: int, n_bytes: int) -> None:
        self.given.append(n_bytes // MIB)


def model(n_mib: int = 0, *, is_loaded: bool = False, cache_ram: int = 8192) -> Any:
    host = Host(n_mib, is_loaded, cache_ram)
    return SimpleNamespace(host=host, n_active=0, given=host.given)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> Shares:
    monkeypatch.setattr(shares, "host_free", lambda: 1 << 40)
    return Shares(1000)


def test_models_without_prompts_take_nothing(divided: Shares) -> None:
    loaded = [model(is_loaded=True), model(is_loaded=True)]
    divided.divide([*loaded, model(), model()])
    assert [one.given for one in loaded] == [[500], [500]]


def test_what_a_sleeping_model_holds_is_not_given_away_twice(divided: Shares) -> None:
    loaded, asleep = model(is_loaded=True), model(300)
    divided.divide([loaded, asleep])
    assert (loaded.given, asleep.host.cache_memory.n_bytes) == ([700], 300 * MIB)


def test_a_sleeping_model_keeps_no_more_than_its_part(divided: Shares) -> None:
    loaded, asleep = model(is_loaded=True), model(900)
    divided.divide([loaded, asleep])
    assert (loaded.given, asleep.host.cache_memory.n_bytes) == ([500], 500 * MIB)


def test_pinned_prompts_still_count(divided: Shares) -> None:
    loaded, asleep = model(is_loaded=True), model(9000)
    divided.divide([loaded, asleep])
    assert (loaded.given, asleep.host.cache_memory.n_bytes) == ([100], 900 * MIB)


def test_a_model_has_no_more_than_its_own_settings_allow(divided: Shares) -> None:
    """What it may not have is for the others; -1 is no limit, and 0 switches the prompts of a model off."""
    models = [model(is_loaded=True, cache_ram=n) for n in (-1, 100, 8192, 0)]
    divided.divide(models)
    assert [one.given for one in models] == [[450], [100], [450], []]


def test_without_a_limit_nothing_is_divided() -> None:
    asleep = model(9000)
    Shares(-1).divide([model(is_loaded=True), asleep])
    assert asleep.host.cache_memory.n_bytes == 9000 * MIB
