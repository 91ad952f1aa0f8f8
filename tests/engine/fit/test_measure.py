"""What is estimated before a load agrees with what llama.cpp has allocated after it, for every kind of model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import pytest
from support.live_daemon import model_path
from support.models import bert_reference, bert_weights
from support.models.tiny_adapters import write_lora
from support.models.tiny_kv_models import DELTA_NET, HYBRID_WINDOW, KINDS, N_EMBD, SINKS, write_model
from support.models.tiny_projectors import write_projector

from llamad._llama import ffi, lib

MIB = 1 << 20

# In a process of its own: a model's memory is measured in a fresh one, as an engine does.
PROGRAM = """
import json, sys
import msgspec
from llamad.engine.fit.bound import bound
from llamad.engine.fit.measure import context_usage, loaded_usage
from llamad.engine.fit.plan import Planner
from llamad.engine.loading.draft import load_draft, vet_draft
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading, vet
from llamad.flags.sources import Sources
settings = Sources(sys.argv[1:], {}).read().settings.model
vet(settings, Loading())
vet_draft(settings)
plan = Planner(settings, 1, always=True).plan()
loaded = load(plan.settings, 1, Loading())
usages = [plan.usage, loaded_usage(loaded.contexts)]
draft = load_draft(plan.settings, loaded, Loading())
n_draft = context_usage(draft.context).host.total if draft else 0
allocated = msgspec.to_builtins(usages[1].host) | {"draft": n_draft}
print(json.dumps([msgspec.to_builtins(usages[0].host), allocated, bound(settings)]))
"""


def measured(model: str | Path, *flags: str) -> tuple[dict[str, int], dict[str, int], int]:
    """The estimate, what was allocated, and the bound from the file alone."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "-m", str(model), "-t", "1", *flags], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    estimate, allocated, limit = json.loads(done.stdout.splitlines()[-1])
    return estimate, allocated, limit


def check(model: str | Path, *flags: str) -> dict[str, int]:
    estimate, allocated, limit = measured(model, *flags)
    for kind in ("weights", "cache", "compute", "draft"):
        assert estimate[kind] == pytest.approx(allocated[kind], rel=0.02, abs=MIB), kind
    assert sum(allocated[kind] for kind in ("weights", "cache", "compute", "draft")) <= limit
    return estimate


@pytest.mark.parametrize("kind", [*KINDS, SINKS, HYBRID_WINDOW])
def test_models_of_every_kind_of_memory(kind, tmp_path):
    estimate = check(write_model(tmp_path / "model.gguf", kind), "-c", "2048")
    assert min(estimate["weights"], estimate["cache"], estimate["compute"]) > 0


def test_states_that_drafts_are_taken_back_with(tmp_path):
    """llama.cpp keeps one more of each slot for each token."""
    model = write_model(tmp_path / "model.gguf", DELTA_NET)
    flags = ("-np", "64", "-c", "16384")
    plain, auto, fixed = (
        check(model, *flags, *more)["cache"]
        for more in ((), ("--spec", "auto"), ("--spec", "auto", "--spec-fixed", "9"))
    )
    assert auto > plain + MIB
    assert fixed - plain == 3 * (auto - plain)


@pytest.mark.parametrize(
    "flags",
    [
        ("-c", "8192"),
        ("-c", "8192", "-np", "4"),
        ("-c", "4096", "-ctkd", "f32", "-ctvd", "f32", "-ub", "128"),
        ("-np", "2"),
    ],
    ids=" ".join,
)
def test_draft_models(flags):
    estimate = check(model_path(), "-md", model_path(), *flags)
    assert estimate["draft"] > estimate["weights"] + estimate["compute"] / 2


def test_a_draft_model_with_a_window_has_a_cache_for_the_whole_context(tmp_path):
    path = write_model(tmp_path / "window.gguf", "gemma3")
    estimate = check(path, "-md", str(path), "-c", "65536")
    assert estimate["draft"] > 1.3 * estimate["cache"]


@pytest.mark.parametrize(
    "flags",
    [
        ("-np", "1"),
        ("-np", "3", "-c", "6144"),
        ("-ctk", "f32", "-fa", "off"),
        ("-b", "64", "-ub", "16"),
        ("--embedding", "--pooling", "mean"),
        ("--no-mmap",),
        ("--no-repack",),
    ],
    ids=" ".join,
)
def test_flags_that_change_it(tiny, flags):
    check(tiny, *flags)


def test_a_real_model_and_its_quantized_cache():
    full, small = (
        check(model_path(), *flags)["cache"] for flags in ((), ("-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"))
    )
    assert 0.5 < small / full < 0.6


def is_repacked() -> bool:
    """Return whether this CPU has a layout of its own for Q4_0: AMX, or llama.cpp's repacked one."""
    features = ffi.string(lib.llama_print_system_info()).decode()
    vectors = ("AMX_INT8", "AVX2", "DOTPROD", "RISCV_V")
    return "REPACK = 1" in features and any(f"{name} = 1" in features for name in vectors)


@pytest.mark.skipif(not is_repacked(), reason="this CPU has no layout of its own for Q4_0")
@pytest.mark.parametrize("flags", [(), ("--no-mmap",), ("--no-repack",)], ids=" ".join)
def test_repacked_weights_count_once(tmp_path, flags):
    """The file is mapped as a whole, but nothing reads what was repacked from it."""
    model = write_model(tmp_path / "model.gguf", "llama", gguf.GGMLQuantizationType.Q4_0)
    estimate, allocated, limit = measured(model, "-c", "256", *flags)
    for kind in ("weights", "repacked"):
        assert estimate[kind] == pytest.approx(allocated[kind], rel=0.02), kind
    share = estimate["repacked"] / estimate["weights"]
    assert share == 0 if "--no-repack" in flags else 0.5 < share < 1
    assert sum(allocated[kind] for kind in ("weights", "cache", "compute")) <= limit


def test_models_without_a_cache():
    estimate = check(bert_reference.cached_gguf(bert_weights.minilm()), "--embedding")
    assert estimate["cache"] == 0


def test_adapters_and_projectors_count(tiny, tmp_path):
    lora = write_lora(tmp_path / "lora.gguf", tiny, 5)
    assert measured(tiny, "--lora", str(lora))[0]["adapters"] == pytest.approx(os.path.getsize(lora), rel=0.5)
    model = write_model(tmp_path / "model.gguf", "llama")
    projector = write_projector(tmp_path / "mmproj.gguf", "janus_pro", N_EMBD)
    estimate = measured(model, "--mmproj", str(projector))[0]
    assert estimate["projector"] >= os.path.getsize(projector) * 0.5
