"""Owns the tests of the flags that name a model to download: names, conflicts, llama-server's presets."""

from __future__ import annotations

import re
import shlex

import pytest
from support.llama_server_flags import source_text

from llamad.flags.groups import hub
from llamad.flags.parse import FlagError, parse
from llamad.flags.settings import Settings
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Preset

# As tutorials and model cards have them.
LINES = [
    "-hf ggml-org/gemma-3-1b-it-GGUF",
    "-hf ggml-org/gpt-oss-20b-GGUF -c 0 --jinja",
    "-hf unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M --jinja -ngl 99 -fa on --temp 0.6 --top-k 20 --top-p 0.95 --min-p 0",
    "--hf-repo bartowski/Llama-3.2-3B-Instruct-GGUF:q4_k_m -c 4096 --host 0.0.0.0",
    "-hfr TheBloke/Mistral-7B-Instruct-v0.2-GGUF -hff mistral-7b-instruct-v0.2.Q4_K_M.gguf",
    "-hf ggml-org/SmolVLM-500M-Instruct-GGUF --no-mmproj --offline",
    "-mu https://huggingface.co/TheBloke/phi-2-GGUF/resolve/main/phi-2.Q2_K.gguf -c 2048",
    "-m models/phi-2.gguf --model-url https://huggingface.co/TheBloke/phi-2-GGUF/resolve/main/phi-2.Q2_K.gguf",
    "-m m.gguf --mmproj-url https://host/mmproj.gguf",
]


def settings_of(line: str) -> Settings:
    return parse(shlex.split(line), {}).settings


@pytest.mark.parametrize("line", LINES)
def test_lines_of_tutorials_are_understood(line: str) -> None:
    parsed = parse(shlex.split(line), {})
    assert parsed.warnings == []
    assert parsed.settings.model.is_remote


@pytest.mark.parametrize(
    "name", ["gemma", "a/b/c", "../b", "a/..", "a/b:", "a/b:x/y", "-a/b", "a/b-", "https://a/b", "a/" * 200]
)
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(FlagError, match="is not USER/MODEL or USER/MODEL:QUANT"):
        parse([f"-hf={name}"], {})


def test_the_name_at_the_hub_is_the_models_unless_it_has_another() -> None:
    assert settings_of("-hf a/b:Q8_0").model.alias == "a/b:Q8_0"
    assert settings_of("-hf a/b -a mine").model.alias == "mine"
    assert settings_of("-m x.gguf").model.alias is None


def test_one_model_is_named() -> None:
    with pytest.raises(FlagError, match="--hf-repo and --model-url both name the model; leave one out"):
        settings_of("-hf a/b -mu http://host/x.gguf")
    with pytest.raises(FlagError, match="name that with --hf-repo"):
        settings_of("-m x.gguf -hff y.gguf")
    parsed = parse(["-hf", "a/b", "-m", "x.gguf"], {})
    assert parsed.warnings == ["-m is ignored: -hf names the model"]
    assert parsed.settings.model.hf_repo == "a/b"


def test_a_flag_that_names_a_model_wins_over_a_variable_that_names_another() -> None:
    parsed = parse(["-m", "x.gguf"], {"LLAMA_ARG_HF_REPO": "a/b", "LLAMA_ARG_HF_FILE": "y.gguf"})
    assert parsed.warnings == ["LLAMA_ARG_HF_REPO is ignored: -m names the model"]
    assert (parsed.settings.model.model, parsed.settings.model.is_remote) == ("x.gguf", False)
    parsed = parse(["-hf", "a/b"], {"LLAMA_ARG_MODEL": "x.gguf"})
    assert parsed.warnings == ["LLAMA_ARG_MODEL is ignored: -hf names the model"]
    assert parsed.settings.model.hf_repo == "a/b"


# Presets.

_FIELDS = {
    "model.hf_repo": "hf_repo",
    "model.hf_file": "hf_file",
    "port": "port",
    "n_ubatch": "n_ubatch",
    "n_batch": "n_batch",
    "n_parallel": "n_parallel",
    "n_ctx": "n_ctx",
    "verbose_prompt": "log_prompts",
    "embedding": "embeddings",
    "n_cache_reuse": "n_cache_reuse",
    "sampling.temp": "temperature",
    "sampling.top_p": "top_p",
    "sampling.top_k": "top_k",
    "sampling.min_p": "min_p",
    "use_jinja": "jinja",
    "speculative.draft.mparams.hf_repo": "hf_repo_draft",
}
# The repository of the draft model has only this file.
_UNUSED = "speculative.draft.mparams.hf_file"
_ASSIGNED = re.compile(r"params\.([\w.]+)\s*=\s*([^;]+);")


def theirs() -> dict[str, dict[str, object]]:
    """llama-server's presets: what each assigns, by our names."""
    source = source_text("common/arg.cpp")
    presets: dict[str, dict[str, object]] = {}
    for name, body in re.findall(r'\{"(--[\w.-]+-(?:default|spec))"\},(.*?)add_opt\(', source, re.DOTALL):
        values: dict[str, object] = {}
        for field, text in _ASSIGNED.findall(body):
            if field == _UNUSED:
                continue
            text = text.replace("params.n_parallel", str(values.get("n_parallel")))
            factors = [part.strip().rstrip("f") for part in text.split("*")]
            if text.startswith('"'):
                values[_FIELDS[field]] = text.strip('"')
            elif text in ("true", "false"):
                values[_FIELDS[field]] = text == "true"
            else:
                value = 1.0
                for factor in factors:
                    value *= float(factor)
                values[_FIELDS[field]] = value
        if values:
            presets[name] = values
    return presets


def test_presets_are_llama_servers() -> None:
    presets = {
        flag.title for flag in TABLE.flags if isinstance(flag.kind, Preset) and flag.group == hub.TITLE
    }
    assert sorted(presets) == sorted(theirs())
    for name, values in theirs().items():
        settings = settings_of(name)
        assert {dest: settings.get(dest) for dest in values} == values, name
        assert all(dest in values for dest in ("hf_repo", "port"))


def test_what_follows_a_preset_wins_over_it() -> None:
    settings = settings_of("--port 1 --gpt-oss-20b-default --temp 0.5")
    assert (settings.daemon.port, settings.model.options.temperature, settings.model.n_parallel) == (
        8013,
        0.5,
        2,
    )
    parsed = parse(["--gpt-oss-20b-default"], {"LLAMA_ARG_PORT": "1"})
    assert parsed.warnings == ["LLAMA_ARG_PORT is ignored: --gpt-oss-20b-default on the command line wins"]
    with pytest.raises(FlagError, match="--gpt-oss-20b-default takes no value"):
        settings_of("--gpt-oss-20b-default=1")
