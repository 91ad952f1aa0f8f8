"""Plans for one model of several: each gets its part of the budget, and the same one whatever else is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from support.models.paper_devices import GIB, MIB, Paper, on_paper

from llamad.engine.fit import budget as budgets
from llamad.engine.fit import plan as fit
from llamad.engine.fit.measure import Device
from llamad.engine.fit.plan import Planner, UnfitLoadError
from llamad.engine.fit.planned import Plan
from llamad.engine.fit.usage import Usage, Use
from llamad.engine.loading import daemon_memory, memory
from llamad.flags.sources import Sources
from llamad.protocol.control_messages import Budget
from llamad.protocol.errors import MemoryShort

CONTEXT = budgets.CONTEXT_BYTES / GIB


@pytest.fixture(autouse=True)
def host(monkeypatch):
    """Sets the memory of the machine that is available, and the private memory of this daemon's processes."""

    def has(free: float, private: float = 0.0) -> None:
        monkeypatch.setattr(memory, "host_free", lambda with_files=False: int(free * GIB))
        monkeypatch.setattr(daemon_memory, "private_bytes", lambda: int(private * GIB))

    has(64.0)
    return has


def summed(needs: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(need[name] for need in needs) for name in needs[0]} if needs else {}


class Daemon:
    """Loads models on paper as the front would: an old one is unloaded if a new one does not fit."""

    def __init__(self, monkeypatch, path: str, totals: tuple[float, ...], folder: Path | None = None) -> None:
        self._monkeypatch = monkeypatch
        self._path = path
        self._totals = totals
        self._folder = folder
        self.loaded: dict[str, dict[str, int]] = {}
        self.capacity: dict[str, int] = {}

    def plan(
        self,
        *flags: str,
        layer: float = 0.25,
        share: float = 0.5,
        stranger: float = 0.0,
        kept=None,
        **values,
    ) -> Plan:
        ours = summed(list(self.loaded.values()))
        free = tuple(
            total - ours.get(f"GPU{i}", 0) / GIB - CONTEXT - stranger for i, total in enumerate(self._totals)
        )
        experts = values.pop("experts", 0.0)
        measurer = on_paper(free, self._totals, layer, experts)
        self._monkeypatch.setattr(fit, "Measurer", measurer)
        devices = {one.name: one for one in measurer(None, 1).devices()}
        self._monkeypatch.setattr(fit, "described", devices.__getitem__)
        budget = Budget(ours=ours, share=share, capacity=self.capacity, **values)
        settings = Sources(["-m", self._path, "-t", "1", *flags], {}).read().settings.model
        return Planner(settings, 1, self._folder, kept=kept, budget=budget).plan()

    def load(self, name: str, *flags: str, **given) -> Plan:
        plan = self.plan(*flags, **given)
        assert plan.usage is not None
        assert plan.available is not None
        self.capacity = plan.available.capacity
        need = plan.need(plan.usage)
        while any(
            n > self.capacity[name]
            for name, n in summed([need, *self.loaded.values()]).items()
            if name != "host"
        ):
            self.loaded.pop(next(iter(self.loaded)))
        self.loaded[name] = need
        return plan


@pytest.fixture
def daemon(monkeypatch, tiny):
    def make(*totals: float, folder: Path | None = None) -> Daemon:
        return Daemon(monkeypatch, tiny, totals, folder)

    return make


MODELS = {"small": {"layer": 0.1}, "middle": {"layer": 0.3}, "large": {"layer": 1.2}}


@pytest.mark.parametrize("totals", [(16.0,), (24.0,), (10.0, 16.0)], ids=str)
def test_every_order_of_loads_gives_the_same_choices(daemon, totals):
    choices = []
    for order in permutations(MODELS):
        fleet = daemon(*totals)
        plans = {name: fleet.load(name, **MODELS[name]) for name in (*order, *order)}
        choices.append({name: plans[name].settings for name in MODELS})
    assert all(one == choices[0] for one in choices)
    contexts = [choices[0][name].n_ctx or 65536 for name in MODELS]
    assert contexts == sorted(contexts, reverse=True)
    assert contexts[1] < 65536


def test_every_order_gives_the_same_choices_with_those_of_earlier_loads_stored(daemon, tmp_path):
    """The other models come and go, and so does some memory of other programs."""
    flags = {name: ("-b", str(1024 + i)) for i, name in enumerate(MODELS)}  # else all would be one model
    first: dict[str, Plan] = {}
    for k, order in enumerate(permutations(MODELS)):
        fleet = daemon(16.0, folder=tmp_path)
        for i, name in enumerate((*order, *order)):
            plan = fleet.load(name, *flags[name], **MODELS[name], stranger=0.05 * ((i + k) % 5))
            assert plan.settings == first.setdefault(name, plan).settings, (order, name)


def test_the_choice_is_the_same_with_a_stored_one_and_small_changes(daemon, tmp_path):
    first = daemon(16.0, folder=tmp_path)
    settings = first.load("a", layer=0.3).settings
    for stranger in (0.0, 0.1, 0.2):
        assert daemon(16.0, folder=tmp_path).plan(layer=0.3, stranger=stranger).settings == settings
    assert first.plan(layer=0.3, stranger=0.3).settings == settings


def test_a_model_that_was_planned_before_is_not_opened(daemon, tmp_path, monkeypatch):
    fleet = daemon(16.0, folder=tmp_path)
    first = fleet.plan(layer=0.3)
    monkeypatch.setattr(Paper, "usage", lambda *_: pytest.fail("it was measured again"))
    monkeypatch.setattr(Paper, "shape", lambda _: pytest.fail("it was opened again"))
    assert fleet.plan(layer=0.3).settings == first.settings


def test_two_models_fit_side_by_side(daemon):
    fleet = daemon(16.0)
    first, second = fleet.load("a", layer=0.3), fleet.load("b", layer=0.3)
    assert list(fleet.loaded) == ["a", "b"]
    assert first.settings == second.settings
    assert 4096 < first.settings.n_ctx < 65536
    assert first.settings.n_gpu_layers == -1
    used = summed(list(fleet.loaded.values()))["GPU0"]
    assert 13 * GIB < used <= 15 * GIB  # the margin stays free


def test_a_share_of_one_takes_what_a_single_model_takes(daemon, monkeypatch, tiny):
    whole = daemon(16.0).plan(layer=0.3, share=1.0)
    monkeypatch.setattr(fit, "Measurer", on_paper((16.0 - CONTEXT,), layer=0.3))
    settings = Sources(["-m", tiny, "-t", "1"], {}).read().settings.model
    assert whole.settings == Planner(settings, 1, always=True).plan().settings


def test_a_model_that_needs_more_than_its_share_gets_all_of_the_room(daemon):
    plan = daemon(16.0).plan(layer=0.6)  # 10.2 GiB of weights
    assert plan.settings.n_gpu_layers == -1
    assert plan.usage.devices["GPU0"].total > 13 * GIB
    plan = daemon(16.0).plan(layer=1.2)
    assert plan.settings.n_ctx == 4096
    assert 0 < plan.settings.n_gpu_layers < 17
    plan = daemon(16.0).plan(layer=0.25, experts=1.0)
    assert plan.settings.n_gpu_layers == 17
    assert plan.settings.override_tensor


def test_the_share_ends_where_the_smallest_context_does_not_fit_any_more(daemon):
    """With 4,096 tokens the model takes 6.76 GiB. Half a percent less than that, and it has the whole device: a context
    of 0 is then that of its file, 65,536 tokens, because no smaller one had to be chosen."""
    fleet = daemon(16.0)
    inside, outside = fleet.plan(layer=0.3, share=0.455), fleet.plan(layer=0.3, share=0.45)
    assert inside.settings.n_ctx == 4608
    assert inside.need(inside.usage)["GPU0"] <= 0.455 * 15 * GIB
    smallest = fleet.plan("-c", "4096", layer=0.3)
    assert smallest.need(smallest.usage)["GPU0"] > 0.45 * 15 * GIB
    assert outside.settings == fleet.plan(layer=0.3, share=1.0).settings
    assert (outside.settings.n_ctx, outside.settings.n_gpu_layers) == (0, -1)
    assert outside.usage.devices["GPU0"].weights == int(17 * (0.3 * GIB + 65536 * 8192))


def test_a_context_that_the_user_set_is_never_changed(daemon):
    plan = daemon(16.0).plan("-c", "65536", layer=0.3)
    assert plan.settings.n_ctx == 65536
    assert plan.settings.n_gpu_layers == -1
    with pytest.raises(UnfitLoadError, match=r"of GPU0 .* are left for it; lower -c"):
        daemon(16.0).plan("-c", "65536", "-ngl", "17", layer=1.2)


def test_pinned_models_leave_less_room(daemon):
    fleet = daemon(16.0)
    free = fleet.plan(layer=0.1).settings.n_ctx
    fleet.load("pinned", layer=0.1)
    less = fleet.plan(layer=0.1, pinned=fleet.loaded["pinned"])
    assert less.settings.n_ctx < free
    assert less.available.capacity["GPU0"] == 16 * GIB


def test_the_limit_of_the_user_counts_for_all_models(daemon):
    plan = daemon(64.0).plan(layer=0.2, bytes_max=12 * GIB)
    assert plan.available.capacity == {"GPU0": 12 * GIB, "host": 12 * GIB}
    assert 5 * GIB < plan.need(plan.usage)["GPU0"] <= 6 * GIB  # half of the limit: no margin is kept of it
    near = daemon(12.25).plan(layer=0.2, share=1.0, bytes_max=12 * GIB)  # which leaves a part of the margin
    assert 10.5 * GIB < near.need(near.usage)["GPU0"] <= 11.25 * GIB


def test_the_limit_of_the_user_gives_the_same_choice_on_every_load(daemon):
    fleet = daemon(16.0)
    first = fleet.load("a", layer=0.1, bytes_max=12 * GIB)
    assert fleet.load("b", layer=0.1, bytes_max=12 * GIB).settings == first.settings


def test_a_smaller_share_makes_a_new_choice(daemon, tmp_path):
    """A load that failed is tried again with less. Neither the last choice nor the kept one forces the old size."""
    fleet = daemon(16.0, folder=tmp_path)
    first = fleet.plan(layer=0.3, share=0.5)
    assert first.kept is not None
    again = fleet.plan(layer=0.3, share=0.5, kept=first.kept)
    smaller = fleet.plan(layer=0.3, share=0.47, kept=first.kept)
    assert again.settings == first.settings
    assert 4096 <= smaller.settings.n_ctx < first.settings.n_ctx
    assert fleet.plan(layer=0.3, share=0.5, kept=smaller.kept).settings == first.settings


@pytest.mark.parametrize("layer", [0.3, 0.6, 1.2])
def test_memory_to_spare_makes_a_smaller_choice(daemon, tmp_path, layer):
    """A load that failed is tried again with less, even if it needs more than its share."""
    fleet = daemon(16.0, folder=tmp_path)
    first = fleet.plan(layer=layer)
    smaller = fleet.plan(layer=layer, spare=2 * GIB, kept=first.kept)
    used = [plan.need(plan.usage)["GPU0"] for plan in (first, smaller)]
    assert used[1] <= used[0] - GIB // 2
    assert smaller.available.capacity == first.available.capacity
    assert fleet.plan(layer=layer).settings == first.settings


def test_a_load_in_progress_does_not_count_twice(daemon):
    """What it has reserved is still free."""
    fleet = daemon(16.0)
    alone = fleet.load("a", layer=0.3)
    reserved = dict(fleet.loaded.pop("a"))
    fleet._totals = (16.0,)
    settings = fleet.plan(layer=0.3).settings
    ours = Budget(ours=reserved, share=0.5, capacity=fleet.capacity)
    planner = Planner(Sources(["-m", fleet._path, "-t", "1"], {}).read().settings.model, 1, budget=ours)
    assert planner.plan().settings == settings == alone.settings


def test_memory_that_others_took_lowers_the_capacity(daemon):
    fleet = daemon(16.0)
    fleet.load("a", layer=0.3)
    assert fleet.plan(layer=0.3, stranger=0.4).available.capacity["GPU0"] == 16 * GIB  # the margin bears it
    assert fleet.plan(layer=0.3, stranger=4.0).available.capacity["GPU0"] == 12 * GIB


def test_devices_of_rpc_workers_have_names_that_all_engines_know(monkeypatch):
    def named(*workers: str) -> list[str]:
        devices = [Device("CUDA0", "a GPU", 0, 0)]
        devices += [Device(f"RPC{i}", worker, 0, 0) for i, worker in enumerate(workers)]
        monkeypatch.setattr(budgets, "all_devices", lambda: devices)
        usage = Usage({one.name: Use() for one in devices}, Use())
        return list(budgets.Available((), 0, ()).need(usage, True))

    assert named("a:1", "a:1", "b:1") == ["CUDA0", "RPC0[a:1]", "RPC1[a:1]", "RPC0[b:1]", "host"]
    assert named("b:1") == ["CUDA0", "RPC0[b:1]", "host"]


# --- the host


def test_the_hosts_capacity_is_the_same_whatever_is_loaded(daemon, host):
    """Private memory of engines is added; pages of mapped files are available already."""
    empty = daemon(16.0).plan().available.capacity["host"]
    host(60.0, private=4.0)
    assert daemon(16.0).plan().available.capacity["host"] == empty == 64 * GIB


def test_a_model_without_devices_shares_the_host(daemon, monkeypatch, host, tiny):
    def usage(self, wanted):
        n_ctx = wanted.n_ctx or 65536
        return Usage({}, Use(weights=2 * GIB, cache=n_ctx * 131072, compute=MIB))

    monkeypatch.setattr(fit, "Measurer", type("Host", (on_paper(()),), {"usage": usage}))
    host(8.0)
    settings = Sources(["-m", tiny, "-t", "1"], {}).read().settings.model
    half = Planner(settings, 1, budget=Budget(share=0.5)).plan()
    whole = Planner(settings, 1, budget=Budget(share=1.0)).plan()
    assert 4096 < half.settings.n_ctx < whole.settings.n_ctx
    assert 3 * GIB < half.need(half.usage)["host"] <= 3.5 * GIB
    assert half.available.capacity == {"host": 8 * GIB}


def test_mapped_weights_count_at_most_what_the_host_has(daemon, host):
    host(20.0)
    plan = daemon(8.0).plan(layer=2.0)  # 34 GiB of weights, most of them mapped on the host
    assert plan.usage.host.weights > 24 * GIB
    assert plan.need(plan.usage)["host"] == 20 * GIB
    with pytest.raises(UnfitLoadError, match="this machine"):
        daemon(8.0).plan("--no-mmap", layer=2.0)


# --- waiting


class Clock:
    """Lets memory become free after some time."""

    def __init__(self, monkeypatch, seconds: float, before: int, after: int) -> None:
        self.slept = 0.0
        described = type("Described", (), {})

        def free(name: str):
            one = described()
            one.free = after if self.slept >= seconds else before
            return one

        monkeypatch.setattr(budgets, "described", free)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


@pytest.mark.parametrize("seconds", [0.0, 0.5, 9.0])
def test_the_engine_waits_until_the_memory_is_free(monkeypatch, seconds):
    clock = Clock(monkeypatch, seconds, 1 * GIB, 4 * GIB)
    budgets.wait(Usage({"GPU0": Use(weights=4 * GIB)}, Use()), True, clock.sleep)
    assert seconds <= clock.slept < seconds + 0.2


def test_memory_that_stays_taken_is_an_error_in_time(monkeypatch):
    clock = Clock(monkeypatch, 1e9, 1 * GIB, 4 * GIB)
    with pytest.raises(MemoryShort, match=r"takes 4096 MiB of GPU0, and 1024 MiB are free"):
        budgets.wait(Usage({"GPU0": Use(weights=4 * GIB)}, Use()), True, clock.sleep)
    assert 9.9 < clock.slept < 10.2


def test_what_nearly_fits_is_tried(monkeypatch):
    clock = Clock(monkeypatch, 1e9, 4 * GIB - 60 * MIB, 0)
    budgets.wait(Usage({"GPU0": Use(weights=4 * GIB)}, Use()), True, clock.sleep)


def test_neither_mapped_weights_nor_the_projector_are_waited_for(monkeypatch, host):
    host(1.0)
    clock = Clock(monkeypatch, 0, GIB, GIB)
    usage = Usage({"GPU0": Use(weights=GIB, projector=GIB)}, Use(weights=8 * GIB, cache=MIB, projector=GIB))
    budgets.wait(usage, True, clock.sleep)
    assert clock.slept == 0
    with pytest.raises(MemoryShort, match="of host"):
        budgets.wait(usage, False, clock.sleep)


# --- the daemon's processes


def test_private_memory_of_this_process_is_counted():
    before = daemon_memory._private(os.getpid())
    held = bytearray(64 * MIB)
    held[::4096] = b"x" * len(held[::4096])
    after = daemon_memory._private(os.getpid())
    assert 60 * MIB < after - before < 80 * MIB


SIBLINGS = """
import subprocess, sys
held = subprocess.Popen(
    [sys.executable, "-c", "x = bytearray(96 << 20); x[::4096] = b'x' * len(x[::4096]); print(flush=True); input()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
)
held.stdout.readline()
program = "from llamad.engine.loading import daemon_memory; print(daemon_memory.private_bytes())"
for _ in range(2):
    print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip())
    held.kill(), held.wait()
"""


def test_private_memory_of_the_daemons_other_processes_is_counted():
    done = subprocess.run([sys.executable, "-c", SIBLINGS], capture_output=True, text=True, check=True)
    together, alone = map(int, done.stdout.split())
    assert 96 * MIB < together - alone < 128 * MIB
    assert alone < 64 * MIB
