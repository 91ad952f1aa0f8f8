"""Owns the tests of parsing: the shapes of arguments, requests, errors, and that nothing else comes out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.flags.parse import FlagError, Parsed, parse
from llamad.flags.settings import Settings
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Action

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


# The first command lines of the documents start.


@pytest.mark.parametrize(
    "line",
    [
        "-m models/7B/ggml-model.gguf -c 2048",
        "-m models/7B/ggml-model.gguf -c 512 --host 0.0.0.0 --port 8080",
        "-m models/7B/ggml-model.gguf -c 512 --host 0.0.0.0 --port 8080 --n-gpu-layers 99",
    ],
)
def test_documented_commands(line: str) -> None:
    result = parse(line.split(), {})
    assert result.settings.model.model == "models/7B/ggml-model.gguf"
    assert result.warnings == []


def test_contract_defaults() -> None:
    defaults = settings("")
    daemon, model = defaults.daemon, defaults.model
    options = model.options
    assert (options.temperature, options.top_k, options.top_p, options.min_p) == (0.8, 40, 0.95, 0.05)
    assert (options.repeat_penalty, options.repeat_last_n, options.dry_penalty_last_n) == (1.0, 64, -1)
    assert ";".join(options.samplers) == "dry;top_n_sigma;top_k;tfs_z;typ_p;top_p;min_p;xtc;temperature"
    assert (model.n_ctx, model.n_batch, model.n_ubatch, model.n_parallel) == (
        0,
        2048,
        -1,
        4,
    )
    assert (daemon.endpoint_slots, daemon.endpoint_metrics, daemon.endpoint_props) == (
        False,
        False,
        False,
    )
    assert (model.context_shift, model.cont_batching, model.warmup, model.mmap) == (
        True,
        True,
        True,
        True,
    )
    assert (daemon.hosts, daemon.port, daemon.timeout) == (("127.0.0.1",), 8080, 600.0)
    assert (model.slot_prompt_similarity, options.n_predict, options.seed) == (0.5, -1, -1)
    assert (model.n_gpu_layers, model.flash_attn, model.cache_type_k, model.numa) == (
        -1,
        "auto",
        "f16",
        None,
    )
    assert (daemon.drain_seconds, model.queue_max, daemon.cors_origins) == (
        4.0,
        512,
        ("auto",),
    )
    assert options.dry_sequence_breakers == ("\n", ":", '"', "*")


# Shapes of arguments.


def test_value_after_equals() -> None:
    assert settings("--ctx-size=4096 -ngl=7 --alias=a=b").model.n_ctx == 4096
    assert settings("--alias=a=b").model.aliases == ("a=b",)
    assert settings("-ngl=7").model.n_gpu_layers == 7


def test_underscores_in_long_names() -> None:
    assert settings("--ctx_size 4096").model.n_ctx == 4096
    assert settings("--ctx_size=4096 --alias=a_b").model.aliases == ("a_b",)


def test_negative_numbers_are_values() -> None:
    options = settings("-n -2 --seed -1 --keep -1 --top-n-sigma -1.5 --yarn-ext-factor -1").model.options
    assert (options.n_predict, options.seed, options.n_keep, options.top_n_sigma) == (-2, -1, -1, -1.5)


def test_last_wins() -> None:
    assert settings("-c 1 --ctx-size 2").model.n_ctx == 2
    assert settings("--mmap --no-mmap").model.mmap is False
    assert settings("--no-mmap --mmap").model.mmap is True
    assert settings("--verbosity 1 -v").daemon.verbosity == 10
    assert settings("-v --verbosity 1").daemon.verbosity == 1
    assert settings("--samplers top_k --sampling-seq mt").model.options.samplers == ("min_p", "temperature")
    assert settings("--rope-scale 4 --rope-freq-scale 0.5").model.rope_freq_scale == 0.5


def test_a_value_may_begin_with_a_dash_but_not_be_a_flag() -> None:
    assert settings("--alias -strange").model.aliases == ("-strange",)
    assert complaint("--alias --port 80") == "--alias needs a value; if it is '--port', write --alias=--port"
    assert settings("--alias=--port").model.aliases == ("--port",)
    assert complaint("--alias -c 80") == "--alias needs a value: --alias NAME,..."


def test_plain_arguments_are_refused() -> None:
    assert complaint("model2.gguf") == "'model2.gguf' is not a flag; give the model's path with -m"
    assert complaint("-") == "'-' is not a flag; give the model's path with -m"


# Requests.


@pytest.mark.parametrize("name", ["-h", "--help", "--usage"])
def test_help_is_asked_for(name: str) -> None:
    result = parse(["-c", "4", name, "--nonsense"], {})
    assert result.action is Action.HELP
    assert result.settings.model.n_ctx == 0


def test_version_is_asked_for() -> None:
    assert parse(["--version"], {}).action is Action.VERSION


def test_running_is_the_default_action() -> None:
    assert parsed("").action is Action.RUN


def test_requests_take_no_value() -> None:
    assert complaint("--help=me") == "--help takes no value; leave out '=me'"


# The model.


def test_the_default_model() -> None:
    result = parse([], {})
    assert result.settings.model.model == "models/7B/ggml-model-f16.gguf"
    assert result.given == frozenset()


def test_the_model_may_come_from_the_environment() -> None:
    assert parse([], {"LLAMA_ARG_MODEL": "x.gguf"}).settings.model.model == "x.gguf"


# Errors.


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--ctx-sise 4", "unknown flag --ctx-sise; did you mean --ctx-size?"),
        ("--prallel=4", "unknown flag --prallel; did you mean --parallel?"),
        ("-nlg 4", "unknown flag -nlg; did you mean -ngl?"),
        ("--zzzzzzzz", "unknown flag --zzzzzzzz; see --help"),
        ("-c", "-c needs a value: -c N"),
        ("-c ten", "-c: 'ten' is not an integer"),
        ("-c 1.5", "-c: '1.5' is not an integer"),
        ("-c 1_000", "-c: '1_000' is not an integer"),
        ("-c -1", "-c: -1 is out of range; use 0 to 2147483647"),
        ("-c 99999999999", "-c: 99999999999 is out of range; use 0 to 2147483647"),
        ("--port 65536", "--port: 65536 is out of range; use 0 to 65535"),
        ("-np 0", "-np: 0 is out of range; use 1 to 256, auto"),
        ("-np 257", "-np: 257 is out of range; use 1 to 256, auto"),
        ("-ngl some", "-ngl: 'some' is not an integer, auto, all"),
        ("--temp warm", "--temp: 'warm' is not a number"),
        ("--temp nan", "--temp: 'nan' is not a finite number"),
        ("--temp 1e39", "--temp: 1e39 is out of range; use a smaller number"),
        ("--top-p 1.5", "--top-p: 1.5 is out of range; use 0 to 1"),
        ("--repeat-penalty 0", "--repeat-penalty: 0 is out of range; use more than 0"),
        ("-ctk q3", "-ctk: 'q3' is not one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"),
        ("--numa spread", "--numa: 'spread' is not one of distribute, isolate, numactl"),
        ("-fa maybe", "-fa: 'maybe' is not one of on, off, auto"),
        ("--mmap=perhaps", "--mmap: 'perhaps' is not yes or no; use 1 or 0, on or off, true or false"),
        ("-ts 1,,2", "-ts: '1,,2' has an empty entry"),
        ("-ts 1,-2", "-ts: -2 is out of range; use 0 or more"),
        ("-l 5", "-l: '5' is not TOKEN+BIAS or TOKEN-BIAS; use for example 15043+1 or 15043-inf"),
        ("-l 5+inf", "-l: '5+inf' would force one token forever; use a finite bias or -inf"),
        ("--body-max-bytes 5Q", "--body-max-bytes: '5Q' is not a size; use bytes, or for example 64K, 64M, 1G"),
        ("--header-max-bytes 1", "--header-max-bytes: 1 is out of range; use 1024 to 1073741824 bytes"),
        ("--cors-origins a.example", "--cors-origins: 'a.example' is not an origin; use for example "
         "http://localhost:3000"),
        ("--host a,,b", "--host: 'a,,b' has an empty entry"),
        ("--sampling-seq kz", "--sampling-seq: 'z' is not a sampler letter; use e penalties, d dry, "
         "s top_n_sigma, k top_k, f tfs_z, y typ_p, p top_p, m min_p, x xtc, t temperature, i infill, "
             "a adaptive_p"),
        ("--override-kv a=int", "--override-kv: 'a=int' is not KEY=TYPE:VALUE, for example "
         "tokenizer.ggml.add_bos_token=bool:false"),
        ("--override-kv a=long:1", "--override-kv: 'long' is not a type; use int, float, bool or str"),
        ("--override-kv a=bool:2", "--override-kv: '2' is not true or false"),
        ("--override-kv a=int:x", "--override-kv: 'x' is not an integer"),
        ("--override-kv a=float:inf", "--override-kv: 'inf' is not a finite number"),
        ("--ssl-key-file k.pem", "TLS needs both --ssl-key-file and --ssl-cert-file"),
        ("--proxy-protocol", "--proxy-protocol needs --trusted-proxies, which names the proxies to trust"),
        (
            "--proxy-protocol --trusted-proxies unix --ssl-key-file k.pem --ssl-cert-file c.pem",
            "--proxy-protocol does not work with TLS; let the proxy terminate it and leave out --ssl-cert-file",
        ),
        (
            "--trusted-proxies 10.0.0.1/8",
            "--trusted-proxies: '10.0.0.1/8' is not an address, a network or unix; write for example 10.0.0.0/8",
        ),
        (
            "--trusted-proxies localhost",
            "--trusted-proxies: 'localhost' is not an address, a network or unix; write for example 10.0.0.0/8",
        ),
        ("-fa off -ctv q8_0", "--cache-type-v q8_0 needs flash attention: leave out --flash-attn off, or use f16"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(line: str, message: str) -> None:
    assert complaint(line) == message


def test_unknown_samplers_list_the_known() -> None:
    assert complaint("--samplers top_k;topq").startswith("--samplers: 'topq' is not a sampler; use penalties")


def test_empty_values() -> None:
    assert complaint(["--alias", ""]) == "--alias: the value is empty"
    assert complaint(["--samplers", ";"]) == "--samplers: the list is empty; name at least one sampler"
    assert complaint(["--host", ""]).startswith("--host: '' is not an address")


def test_errors_never_quote_a_key() -> None:
    message = complaint(["--api-key", "hunter2,,hunter3"])
    assert message == "--api-key: the value is empty or has an empty entry"
    assert "hunter2" not in complaint(["--hf-token=hunter2", "--hf-repo", "a"])
    assert "hunter2" not in "".join(parsed("--hf-token=hunter2", {"HF_TOKEN": "hunter2"}).warnings)
    assert complaint(["-mu", "me:hunter2@host/x"]) == "-mu: the address must begin with http:// or https://"


def test_errors_stay_on_one_line() -> None:
    assert complaint(["--temp", "a\nb"]) == r"--temp: 'a\nb' is not a number"


def test_a_very_long_number_is_out_of_range() -> None:
    assert "is out of range" in complaint(["-c", "9" * 10_000])


# Anything at all.

WORDS = st.one_of(
    st.sampled_from(sorted(TABLE.by_name)),
    st.sampled_from(
        ["1", "-1", "0.5", "on", "none", "", "a,b", "f16", "x=int:1", "5+1", "--", "=", "\n", "é"]
    ),
    st.text(max_size=6),
)


@given(st.lists(WORDS, max_size=6), st.dictionaries(st.sampled_from(sorted(TABLE.by_env)), WORDS, max_size=3))
def test_nothing_but_an_answer_or_a_flag_error(line: list[str], environ: dict[str, str]) -> None:
    try:
        result = parse(line, environ)
    except FlagError as error:
        message = str(error)
    else:
        assert result.action is not Action.RUN or result.settings.model.model
        return
    assert message
    assert message.isprintable()
