"""The flags about draft models: which one drafts, when it does not, and all spellings of a flag."""

from __future__ import annotations

import shlex

import pytest

from llamad.flags.parse import FlagError, Parsed, parse
from llamad.flags.settings import ModelSettings
from llamad.flags.types.values import Placement


def parsed(line: str, environ: dict[str, str] | None = None) -> Parsed:
    return parse(shlex.split(f"-m m.gguf {line}"), environ or {})


def settings(line: str, environ: dict[str, str] | None = None) -> ModelSettings:
    result = parsed(line, environ)
    assert result.warnings == []
    return result.settings.model


@pytest.mark.parametrize(
    ("line", "types"),
    [
        ("-md d.gguf", ("draft-simple",)),
        ("-hfd user/model:Q8_0", ("draft-simple",)),
        ("-md d.gguf --spec-type draft-simple", ("draft-simple",)),
        ("-md d.gguf --spec-type draft", ("draft-simple",)),
        ("-md d.gguf --spec-type ngram-mod", ("ngram-mod", "draft-simple")),
        ("-md d.gguf --spec auto", ("draft-simple",)),
        ("-md d.gguf --spec auto --spec-type none", ("draft-simple",)),
        ("-md d.gguf --spec off", ("draft-simple",)),
        ("", ()),
    ],
)
def test_a_draft_model_is_used_without_further_flags(line: str, types: tuple[str, ...]) -> None:
    assert settings(line).spec_types == types


def test_no_type_means_that_it_is_not_used() -> None:
    result = parsed("-md d.gguf --spec-type none")
    model = result.settings.model
    assert (model.spec_types, model.model_draft) == ((), None)
    assert result.warnings == ["-md has no effect: --spec-type is none"]


def test_one_of_two_names_wins() -> None:
    result = parsed("-md d.gguf -hfd user/model")
    model = result.settings.model
    assert (model.model_draft, model.hf_repo_draft) == (None, "user/model")
    assert result.warnings == ["-md is ignored: -hfd names the draft model"]
    model = parsed("-md d.gguf", {"LLAMA_ARG_SPEC_DRAFT_HF_REPO": "user/model"}).settings.model
    assert (model.model_draft, model.hf_repo_draft) == ("d.gguf", None)


@pytest.mark.parametrize(
    ("names", "value", "setting", "expected"),
    [
        ("-md --model-draft --spec-draft-model", "d.gguf", "model_draft", "d.gguf"),
        ("-hfd -hfrd --hf-repo-draft --spec-draft-hf", "a/b", "hf_repo_draft", "a/b"),
        ("--draft --draft-n --draft-max --spec-draft-n-max", "9", "spec_draft_n_max", 9),
        ("--draft-min --draft-n-min --spec-draft-n-min", "2", "spec_draft_n_min", 2),
        ("--draft-p-min --spec-draft-p-min", "0.75", "spec_draft_p_min", 0.75),
        ("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl", "7", "n_gpu_layers_draft", 7),
        ("-ngld", "all", "n_gpu_layers_draft", 9999),
        ("-devd --device-draft --spec-draft-device", "CUDA1", "devices_draft", ("CUDA1",)),
        ("-ctkd --cache-type-k-draft --spec-draft-type-k", "q8_0", "cache_type_k_draft", "q8_0"),
        ("-ctvd --cache-type-v-draft --spec-draft-type-v", "bf16", "cache_type_v_draft", "bf16"),
        (
            "-otd --override-tensor-draft --spec-draft-override-tensor",
            "ffn=CPU",
            "override_tensor_draft",
            (Placement("ffn", "CPU"),),
        ),
        ("-ncmoed --n-cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe", "3", "n_cpu_moe_draft", 3),
        ("-td --threads-draft --spec-draft-threads", "2", "n_threads_draft", 2),
        ("-tbd --threads-batch-draft --spec-draft-threads-batch", "3", "n_threads_batch_draft", 3),
        ("-Cd --cpu-mask-draft --spec-draft-cpu-mask", "3", "cpu_mask_draft", (0, 1)),
        ("-Crd --cpu-range-draft --spec-draft-cpu-range", "1-2", "cpu_range_draft", (1, 2)),
        ("--cpu-strict-draft --spec-draft-cpu-strict", "1", "cpu_strict_draft", 1),
        ("--prio-draft --spec-draft-prio", "2", "prio_draft", 2),
        ("--poll-draft --spec-draft-poll", "0", "poll_draft", 0),
        ("-Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch", "1", "cpu_mask_batch_draft", (0,)),
        (
            "-Crbd --cpu-range-batch-draft --spec-draft-cpu-range-batch",
            "0-1",
            "cpu_range_batch_draft",
            (0, 1),
        ),
        ("--cpu-strict-batch-draft --spec-draft-cpu-strict-batch", "0", "cpu_strict_batch_draft", 0),
        ("--prio-batch-draft --spec-draft-prio-batch", "-1", "prio_batch_draft", -1),
        ("--poll-batch-draft --spec-draft-poll-batch", "100", "poll_batch_draft", 100),
    ],
)
def test_spellings(names: str, value: str, setting: str, expected: object) -> None:
    for name in names.split():
        model = parsed(f"-md d.gguf {name} {value}").settings.model
        assert getattr(model, setting) == expected, name


@pytest.mark.parametrize("name", ["-cmoed", "--cpu-moe-draft", "--spec-draft-cpu-moe"])
def test_the_switch(name: str) -> None:
    assert settings(f"-md d.gguf {name}").cpu_moe_draft is True


def test_variables() -> None:
    new = {"SPEC_DRAFT_MODEL": "d.gguf", "SPEC_DRAFT_N_MAX": "4", "N_GPU_LAYERS_DRAFT": "1"}
    old = {"MODEL_DRAFT": "d.gguf", "DRAFT_MAX": "4", "N_GPU_LAYERS_DRAFT": "1"}
    for names in (new, old):
        model = settings("", {f"LLAMA_ARG_{name}": value for name, value in names.items()})
        assert (model.model_draft, model.spec_draft_n_max, model.n_gpu_layers_draft) == ("d.gguf", 4, 1)
        assert model.spec_types == ("draft-simple",)


def test_flags_that_tune_need_a_draft_model() -> None:
    result = parsed("--spec auto --draft-max 8 -ngld 9 -ctkd f16")
    assert result.warnings == [
        f"{name} has no effect: there is no draft model; add -md or -hfd" for name in ("--draft-max", "-ngld")
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--spec-type draft-simple",
            "--spec-type draft-simple needs a draft model: name one with -md or -hfd",
        ),
        ("-md d.gguf --draft-max -1", "--draft-max: -1 is out of range"),
        ("-md d.gguf --draft-p-min 1.5", "--draft-p-min: 1.5 is out of range"),
        ("-hfd model", "-hfd: 'model' is not USER/MODEL or USER/MODEL:QUANT"),
        ("-md d.gguf -ctkd q3", "-ctkd: 'q3' is not one of f32, f16"),
        ("-md d.gguf -fa off -ctvd q8_0", "--cache-type-v-draft q8_0 needs flash attention"),
    ],
)
def test_bad_values_stop_with_a_sentence(line: str, message: str) -> None:
    with pytest.raises(FlagError) as caught:
        settings(line)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("size", ["7b", "14b"])
def test_presets_with_a_draft_model(size: str) -> None:
    result = parse([f"--fim-qwen-{size}-spec"], {})
    model = result.settings.model
    assert model.hf_repo == f"ggml-org/Qwen2.5-Coder-{size.upper()}-Q8_0-GGUF"
    assert model.hf_repo_draft == "ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF"
    assert (model.spec_types, model.n_ubatch, model.options.n_cache_reuse) == (("draft-simple",), 1024, 256)
    assert (result.settings.daemon.port, result.warnings) == (8012, [])
