"""--cache-ram is one budget for all models: those that are loaded, and those that left prompts when their engine
ended."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from llamad.models.fleet import shares
from llamad.models.fleet.effects import Limits
from llamad.models.fleet.fleet import Fleet
from llamad.models.fleet.scheduler import Scheduler
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


@pytest.mark.parametrize("state", [State.SLEEPING, State.UNLOADED, State.LOADING])
def test_what_an_engine_holds_that_ends_or_loads_is_not_given_away(divided: Shares, state: State) -> None:
    """A model is asleep before its engine has ended, and loads with the prompts of its last engine. In between, the
    other model got all of --cache-ram, so both had nearly twice as much."""
    loaded, other = model(500, is_loaded=True), model(500, is_loaded=True)
    divided.divide([loaded, other])
    other.host.state = state
    divided.divide([loaded, other])
    assert (loaded.given, other.host.cache_memory.n_bytes) == ([500], 500 * MIB)


def test_the_prompts_of_an_engine_that_ends_are_its_own(divided: Shares) -> None:
    """They count, but only the engine may drop some. The others keep as little as possible until it has ended."""
    loaded, ending = model(is_loaded=True), model(1000, is_loaded=True)
    ending.host.state = State.UNLOADED
    divided.divide([loaded, ending])
    assert (loaded.given, ending.host.cache_memory.n_bytes) == ([0], 1000 * MIB)
    ending.host.has_engine = False
    divided.divide([loaded, ending])
    assert (loaded.given, ending.host.cache_memory.n_bytes) == ([0, 500], 500 * MIB)


def test_the_machine_is_divided_when_an_engine_has_ended(divided: Shares) -> None:
    """What the others may have depends on it: until then, the prompts of the model were its engine's."""

    class Ending(Host):
        def __init__(self) -> None:
            super().__init__(900, True, 8192)
            self.on_state: list[Any] = []
            self.label = self.error = ""
            self.measured: dict[str, int] = {}

        def set_state(self, state: State) -> None:
            self.state = state
            for call in self.on_state:
                call(self)

        async def load(self) -> None:
            self.set_state(State.READY)

        async def unload(self, state: State, _: float) -> None:
            self.set_state(state)
            await asyncio.sleep(0)
            self.has_engine = False

    async def run() -> list[list[int]]:
        fleet = Fleet(Scheduler(Limits()), divided)
        hosts: list[Any] = [Ending(), Ending()]
        for i, host in enumerate(hosts):
            fleet.add(str(i), str(i), host, is_pinned=False, sleep_seconds=-1.0, stop_seconds=1.0)
            fleet.load(str(i))
            await asyncio.sleep(0.01)
        fleet.unload("1")
        await asyncio.sleep(0.01)
        assert not hosts[1].has_engine
        assert hosts[1].cache_memory.n_bytes == 500 * MIB
        return [host.given for host in hosts]

    assert asyncio.run(run()) == [[1000, 500, 100, 500], [500]]


def test_a_model_has_no_more_than_its_own_settings_allow(divided: Shares) -> None:
    """What it may not have is for the others; -1 is no limit, and 0 switches the prompts of a model off."""
    models = [model(is_loaded=True, cache_ram=n) for n in (-1, 100, 8192, 0)]
    divided.divide(models)
    assert [one.given for one in models] == [[450], [100], [450], []]


def test_without_a_limit_nothing_is_divided() -> None:
    asleep = model(9000)
    Shares(-1).divide([model(is_loaded=True), asleep])
    assert asleep.host.cache_memory.n_bytes == 9000 * MIB
