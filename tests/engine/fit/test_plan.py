"""The plan of a load: what the flags leave open is chosen, what they set stays, and the same start gives the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_daemon import model_path
from support.models.paper_devices import Paper, on_paper
from support.models.tiny_model import write_tiny

from llamad.engine.fit import plan as fit
from llamad.engine.fit.bound import margins_of
from llamad.engine.fit.measure import Device, Measurer
from llamad.engine.fit.plan import Planner, UnfitLoadError
from llamad.engine.fit.planned import Kept, summary, with_choice
from llamad.engine.fit.search import Choice, Share
from llamad.engine.fit.usage import Usage, Use
from llamad.engine.loading import memory
from llamad.engine.loading.opening import Loading, vet
from llamad.flags.sources import Sources

MIB = 1 << 20
GIB = 1 << 30


def settings(*flags: str, model: str = "x.gguf"):
    return Sources(["-m", model, "-t", "1", *flags], {}).read().settings.model


@pytest.fixture
def host(monkeypatch):
    """Sets the memory that the machine has left."""

    def leave(n_bytes: int) -> None:
        monkeypatch.setattr(memory, "host_free", lambda: n_bytes)

    return leave


def planned(*flags: str, model: str, folder: Path | None = None, kept: Kept | None = None):
    wanted = settings(*flags, model=model)
    vet(wanted, Loading())
    return Planner(wanted, 1, folder, kept=kept).plan()


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A model that was trained for a million tokens."""
    return write_tiny(tmp_path_factory.mktemp("long") / "long.gguf", model_path(), n_ctx=1 << 20)


def test_a_small_model_is_not_measured(tiny):
    plan = planned(model=tiny)
    assert plan.usage is None
    assert not plan.is_changed
    assert summary(plan) == ""


def test_a_context_of_a_million_tokens_shrinks_to_the_memory(long, host):
    host(1200 * MIB)
    plan = planned(model=long)
    assert 4096 <= plan.settings.n_ctx < 1 << 20
    assert plan.usage.host.total <= 176 * MIB
    line = summary(plan)
    assert f"a context of {plan.settings.n_ctx} tokens (the model has 1048576)" in line
    assert "\n" not in line


def test_more_memory_means_a_longer_context(long, host):
    lengths = []
    for n in (1150, 1200, 1300):
        host(n * MIB)
        lengths.append(planned(model=long).settings.n_ctx)
    assert lengths == sorted(set(lengths))


@pytest.mark.parametrize("flags", [("-c", "0"), ("-c", "1048576"), ("--kv-unified-per-slot", "262144")])
def test_what_the_user_set_is_refused_with_its_sum(long, host, flags):
    host(1200 * MIB)
    with pytest.raises(
        UnfitLoadError, match=r"1048576 tokens takes .* of this machine .*KV cache .*lower -c"
    ):
        planned(*flags, model=long)


def test_without_fit_nothing_shrinks(long, host):
    host(1200 * MIB)
    with pytest.raises(UnfitLoadError):
        planned("--fit", "off", model=long)


def test_the_margin_and_the_smallest_context_are_flags(long, host):
    host(1200 * MIB)
    default = planned(model=long).settings.n_ctx
    assert planned("-fitt", "1100", model=long).settings.n_ctx < default
    few = planned("-fitt", "1190", "-fitc", "8192", model=long)
    assert few.settings.n_ctx == 8192
    assert "less memory free than --fit-target" in few.warnings[0]


def test_weights_that_do_not_fit_are_mapped_with_a_warning(host):
    host(60 * MIB)
    flags = ("-fitt", "0", "-fitc", "512", "-b", "64", "-ub", "16", "--no-repack")
    plan = planned(*flags, model=model_path())
    assert "read from the file again" in plan.warnings[0]
    with pytest.raises(UnfitLoadError, match="weights"):
        planned(*flags, "--no-mmap", model=model_path())


def test_repacked_weights_that_do_not_fit_are_refused(host, monkeypatch):
    """The system cannot read them from the file again."""
    use = Use(weights=92 * MIB, cache=10 * MIB, repacked=80 * MIB)
    monkeypatch.setattr(Measurer, "usage", lambda *_: Usage({}, use))
    host(95 * MIB)
    assert "read from the file again" in planned("-fitt", "0", "-c", "512", model=model_path()).warnings[0]
    host(85 * MIB)
    with pytest.raises(UnfitLoadError, match="weights"):
        planned("-fitt", "0", "-c", "512", model=model_path())


def test_the_next_start_chooses_alike_without_measuring(long, host, tmp_path, monkeypatch):
    host(1200 * MIB)
    first = planned(model=long, folder=tmp_path)
    host(1195 * MIB)  # never quite the same
    monkeypatch.setattr(Measurer, "usage", lambda *_: pytest.fail("it was measured again"))
    second = planned(model=long, folder=tmp_path)
    assert second.settings == first.settings


def test_much_more_memory_is_used(long, host, tmp_path):
    host(1200 * MIB)
    first = planned(model=long, folder=tmp_path)
    host(1400 * MIB)
    assert planned(model=long, folder=tmp_path).settings.n_ctx > 1.5 * first.settings.n_ctx


def test_the_next_engine_of_a_daemon_keeps_the_context_while_it_fits(long, tiny, host):
    host(1200 * MIB)
    first = planned(model=long)
    assert first.kept is not None
    host(64 * GIB)  # as if the whole context fitted now
    assert planned(model=long, kept=first.kept).settings == first.settings
    assert not planned(model=tiny, kept=first.kept).is_changed  # another model's choice
    host(600 * MIB)
    assert planned(model=long, kept=first.kept).settings.n_ctx < first.settings.n_ctx


def test_what_is_kept_of_another_file_is_not_used(long, host, tmp_path):
    host(1200 * MIB)
    planned(model=long, folder=tmp_path / "kept")
    other = tmp_path / "other.gguf"
    other.write_bytes(Path(long).read_bytes())
    planned(model=str(other), folder=tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_broken_and_unwritable_folders_cost_nothing_else(long, host, tmp_path):
    host(1200 * MIB)
    expected = planned(model=long, folder=tmp_path).settings
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"{nonsense")
    assert planned(model=long, folder=tmp_path).settings == expected
    assert planned(model=long, folder=Path("/proc/none")).settings == expected


# --- devices on paper


@pytest.fixture
def paper(monkeypatch, tiny):
    def plan(*flags: str, free: tuple[float, ...], experts: float = 0.0):
        monkeypatch.setattr(fit, "Measurer", on_paper(free, experts=experts))
        return Planner(settings(*flags, model=tiny), 1, always=True).plan()

    return plan


def test_a_gpu_with_memory_to_spare_gets_a_larger_batch(paper):
    plan = paper(free=(20.0,))
    assert not plan.is_changed
    assert (plan.settings.n_ubatch, plan.settings.inputs_on_device) == (1024, True)
    plan = paper(free=(14.5,))
    assert not plan.is_changed
    assert (plan.settings.n_ubatch, plan.settings.inputs_on_device) == (512, False)


def test_a_smaller_gpu_gets_a_smaller_context_then_fewer_layers(paper):
    plan = paper(free=(8.0,))
    assert 4096 < plan.settings.n_ctx < 65536
    assert plan.settings.n_gpu_layers == -1
    plan = paper(free=(4.0,))
    assert plan.settings.n_ctx == 4096
    assert 0 < plan.settings.n_gpu_layers < 17
    assert "of 17 layers" in summary(plan)


def test_experts_go_to_the_host(paper):
    plan = paper(free=(10.0,), experts=1.0)
    assert plan.settings.n_gpu_layers == 17
    patterns = [one.pattern for one in plan.settings.override_tensor]
    assert all(one.buffer == "CPU" for one in plan.settings.override_tensor)
    assert patterns
    assert patterns[-1].startswith(r"blk\.15\.ffn_")  # the last ones


@pytest.mark.parametrize(
    "flags",
    [("-ngl", "17"), ("-ngl", "all"), ("-ts", "17"), ("-ot", "x=CPU"), ("-ncmoe", "1"), ("-sm", "row")],
)
def test_layers_that_the_user_placed_stay(paper, flags):
    with pytest.raises(UnfitLoadError, match="of GPU0"):
        paper("-c", "65536", *flags, free=(4.0,))


def test_several_gpus(paper):
    plan = paper(free=(3.0, 9.0))
    assert plan.settings.tensor_split
    assert sum(plan.settings.tensor_split) == plan.settings.n_gpu_layers
    assert plan.settings.tensor_split[0] < plan.settings.tensor_split[1]


def test_margins():
    assert margins_of(settings(), 3) == [GIB] * 3
    assert margins_of(settings("-fitt", "1,2"), 3) == [MIB, 2 * MIB, 2 * MIB]
    assert margins_of(settings("-fitt", "0"), 0) == [0]


def test_the_patterns_of_a_choice():
    chosen = with_choice(settings(), Choice(512, (Share(10, 2, "down"), Share(3))), 12)
    assert (chosen.n_ctx, chosen.n_gpu_layers, chosen.tensor_split) == (512, 13, (10.0, 3.0))
    assert [one.pattern for one in chosen.override_tensor] == [
        r"blk\.8\.ffn_down.*",
        r"blk\.9\.ffn_(up|down|gate_up|gate)_(ch|)exps",
    ]


@pytest.mark.parametrize("free", [1.0, 3.0])
def test_a_device_that_only_the_draft_model_uses_is_checked_too(monkeypatch, tiny, free):
    """-devd may name a device that the served model does not use."""

    class WithDraft(Paper):
        free = totals = (20.0,)

        def usage(self, wanted):
            return super().usage(wanted) + Usage({"GPU7": Use(draft=2 * GIB)}, Use())

    monkeypatch.setattr(fit, "Measurer", WithDraft)
    monkeypatch.setattr(fit, "described", lambda name: Device(name, "paper", int(free * GIB), 80 * GIB))
    planner = Planner(settings(model=tiny), 1, always=True)
    if free > 2:
        assert planner.plan().usage.devices["GPU7"].draft == 2 * GIB
        return
    with pytest.raises(
        UnfitLoadError, match=r"takes 2.00 GiB of GPU7 .*draft model 2.00 GiB.*1.00 GiB are free"
    ):
        planner.plan()
