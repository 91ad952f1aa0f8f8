"""Owns the tests of variables and precedence, and of flags that are not built yet or have no effect."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llamad.flags.parse import FlagError, Parsed, parse
from llamad.flags.settings import Settings

MODEL = ["-m", "model.gguf"]


def settings(line: str, environ: Mapping[str, str] | None = None) -> Settings:
    return parsed(line, environ).settings


def parsed(line: str, environ: Mapping[str, str] | None = None) -> Parsed:
    return parse(MODEL + line.split(), environ or {})


def complaint(line: str | list[str], environ: Mapping[str, str] | None = None) -> str:
    arguments = line.split() if isinstance(line, str) else line
    with pytest.raises(FlagError) as caught:
        parse(MODEL + arguments, environ or {})
    message = str(caught.value)
    assert "\n" not in message
    return message


# The environment.


def test_the_flag_wins_over_the_variable_with_a_warning() -> None:
    result = parsed("-c 1", {"LLAMA_ARG_CTX_SIZE": "2"})
    assert result.settings.model.n_ctx == 1
    assert result.warnings == ["LLAMA_ARG_CTX_SIZE is ignored: -c on the command line wins"]


def test_a_variable_that_loses_is_not_even_read() -> None:
    assert parsed("-c 1", {"LLAMA_ARG_CTX_SIZE": "nonsense"}).settings.model.n_ctx == 1


def test_a_variable_alone_gives_no_warning() -> None:
    result = parsed("", {"LLAMA_ARG_CTX_SIZE": "2", "PATH": "/bin"})
    assert (result.settings.model.n_ctx, result.warnings) == (2, [])


def test_an_empty_variable_is_not_set() -> None:
    assert parsed("", {"LLAMA_ARG_CTX_SIZE": ""}).given == {"model"}


def test_another_flag_of_the_same_setting_wins_too() -> None:
    result = parsed("--log-format json", {"LLAMA_ARG_LOG_JSONL": "0"})
    assert result.settings.daemon.log_format == "json"
    assert result.warnings == ["LLAMA_ARG_LOG_JSONL is ignored: --log-format on the command line wins"]


def test_errors_name_the_variable() -> None:
    assert complaint("", {"LLAMA_ARG_PORT": "x"}) == "LLAMA_ARG_PORT: 'x' is not an integer"


@pytest.mark.parametrize("word", ["1", "true", "on", "enabled", "yes", "ON", "True"])
def test_yes_in_a_variable(word: str) -> None:
    assert settings("", {"LLAMA_ARG_ENDPOINT_SLOTS": word}).daemon.endpoint_slots is True
    assert settings("", {"LLAMA_ARG_NO_MMAP": word}).model.mmap is False


@pytest.mark.parametrize("word", ["0", "false", "off", "disabled", "no", "Off"])
def test_no_in_a_variable(word: str) -> None:
    assert settings("", {"LLAMA_ARG_CONT_BATCHING": word}).model.cont_batching is False
    assert settings("", {"LLAMA_ARG_NO_MMAP": word}).model.mmap is True


def test_two_variables_of_one_setting() -> None:
    result = parsed("", {"LLAMA_API_KEY": "a", "LLAMA_ARG_API_KEY": "b"})
    assert result.settings.daemon.api_keys == ("a",)
    assert result.warnings == ["LLAMA_ARG_API_KEY is ignored: LLAMA_API_KEY is set too and wins"]


def test_an_unknown_variable_gives_a_warning() -> None:
    result = parsed(
        "", {"LLAMA_ARG_CTX_SISE": "1", "LLAMA_ARG_QQQQQQ": "1", "LLAMA_CACHE": "x", "HF_TOKEN": "x"}
    )
    assert result.warnings == [
        "LLAMA_ARG_CTX_SISE is ignored: did you mean LLAMA_ARG_CTX_SIZE?",
        "LLAMA_ARG_QQQQQQ is ignored: llamad does not know it",
    ]


def test_given() -> None:
    result = parsed("-c 0 --threads-http 4 --ctx-size-draft 5", {"LLAMA_ARG_PORT": "1"})
    assert result.given == {"model", "n_ctx", "port"}


# Flags whose feature is not there.


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--mtp", "--mtp needs drafts from heads in the model, which"),
    ],
)
def test_a_missing_feature_stops_with_a_sentence(line: str, message: str) -> None:
    assert complaint(line) == f"{message} this version of llamad does not have yet; leave it out"


def test_a_missing_feature_in_a_variable() -> None:
    assert complaint("", {"LLAMA_ARG_AGENT": "1"}).startswith(
        "LLAMA_ARG_AGENT needs server-side tools, which"
    )
    assert parsed("", {"LLAMA_ARG_AGENT": "0"}).warnings == []


@pytest.mark.parametrize(
    "line",
    [
        "--ctx-size-draft 0",
        "--no-webui-mcp-proxy",
    ],
)
def test_a_missing_feature_at_a_neutral_value_is_no_matter(line: str) -> None:
    result = parsed(line)
    assert result.warnings == []
    assert result.given == {"model"}


def test_a_pair_needs_both_its_values() -> None:
    assert complaint("--control-vector-layer-range 1") == (
        "--control-vector-layer-range needs two values: --control-vector-layer-range FIRST LAST"
    )
    assert complaint("--lora-scaled a b") == "--lora-scaled: 'b' is not a number"


# Flags without effect.


@pytest.mark.parametrize(
    "line",
    [
        "--ui-config {}",
        "--spec-draft-p-split 0.2 -cd 4096",
        "--backend-sampling",
        "--mtmd-batch-max-tokens 1024 --video-fps 2",
        "--tools-runtime docker:x",
    ],
)
def test_a_hint_or_a_limit_starts_with_one_warning_each(line: str) -> None:
    result = parsed(line)
    assert result.given == {"model"}
    assert 1 <= len(result.warnings) <= sum(word.startswith("-") for word in line.split())
    assert all(" has no effect: " in warning for warning in result.warnings)


def test_a_hint_in_a_variable() -> None:
    assert parsed("", {"LLAMA_ARG_UI_MCP_PROXY": "1"}).warnings == [
        "LLAMA_ARG_UI_MCP_PROXY has no effect: llamad's page calls no MCP servers"
    ]
    assert parsed("", {"LLAMA_ARG_UI_MCP_PROXY": "0"}).warnings == []
    assert parsed("", {"LLAMA_ARG_OFFLINE": "1"}).warnings == []


def test_a_hint_still_needs_a_well_formed_value() -> None:
    assert complaint("--fit maybe") == "--fit: 'maybe' is not one of on, off"
    assert complaint("--ctx-checkpoints many") == "--ctx-checkpoints: 'many' is not an integer"


def test_inert_flags_warn_once() -> None:
    result = parsed("--threads-http 4 -i -i --color --interactive -p hello -cnv -no-cnv --color on")
    assert result.warnings == [
        "--threads-http has no effect: one event loop serves all connections",
        "-i has no effect: it is for llama.cpp's interactive tools",
        "--color has no effect: it is for llama.cpp's interactive tools; see --log-colors",
        "-p has no effect: it is for llama.cpp's command line tools; send the prompt in a request",
        "-cnv has no effect: it is for llama.cpp's interactive tools",
    ]
    assert result.given == {"model"}


def test_inert_values_may_be_anything() -> None:
    assert len(parse([*MODEL, "--in-prefix", "", "-dt", "whatever"], {}).warnings) == 2


def test_inert_variables_warn() -> None:
    assert parsed("", {"LLAMA_ARG_DEFRAG_THOLD": "0.1"}).warnings == [
        "LLAMA_ARG_DEFRAG_THOLD has no effect: llama.cpp's cache no longer needs defragmentation"
    ]


# Adapters.


def test_adapters_and_their_scales_stand_in_the_order_of_the_line() -> None:
    given = parsed(
        "--lora a.gguf,style=b.gguf --lora-scaled c.gguf 0.5 --lora-scaled x=d.gguf:2,e.gguf:-1"
    ).settings
    assert [tuple(one) for one in given.model.lora] == [
        ("a.gguf", 1.0, ""),
        ("b.gguf", 1.0, "style"),
        ("c.gguf", 0.5, ""),
        ("d.gguf", 2.0, "x"),
        ("e.gguf", -1.0, ""),
    ]


def test_two_adapters_of_one_name_are_refused() -> None:
    assert complaint("--lora x=a.gguf,x=b.gguf").startswith("--lora: two adapters are named 'x'")


def test_control_vectors_and_their_layers() -> None:
    given = parsed(
        "--control-vector a.gguf --control-vector-scaled b.gguf:0.5 --control-vector-layer-range 1 7"
    ).settings
    assert [tuple(one) for one in given.model.control_vector] == [("a.gguf", 1.0), ("b.gguf", 0.5)]
    assert given.model.control_vector_layer_range == (1, 7)
