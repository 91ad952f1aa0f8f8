"""Owns the tests of values: words for numbers, optional values, switches, lists and the special kinds."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from llamad.flags.parse import FlagError, Parsed, parse, unescape
from llamad.flags.settings import Settings
from llamad.flags.types.values import KvOverride, Placement
from llamad.options.values import LogitBias

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


def test_words_for_numbers() -> None:
    assert settings("-ngl all").model.n_gpu_layers == 9999
    assert settings("-ngl AUTO").model.n_gpu_layers == -1
    assert settings("-ngl 0").model.n_gpu_layers == 0
    assert settings("-t -1 -tb auto").model.n_threads == 0


def test_slots_share_a_cache_unless_their_number_is_given() -> None:
    for line, wanted in (
        ("", (4, True)),
        ("-np auto", (4, True)),
        ("-np -1 -b 2", (2, True)),
        ("-no-kvu", (4, False)),
        ("-np 4", (4, False)),
        ("-np 4 -kvu", (4, True)),
    ):
        found = settings(line)
        assert (found.model.n_parallel, found.model.kv_unified) == wanted, line


def test_optional_values() -> None:
    assert settings("-fa").model.flash_attn == "on"
    assert settings("-fa -c 4").model.flash_attn == "on"
    assert settings("-fa --numa -c 4").model.numa == "distribute"
    assert settings("-fa off").model.flash_attn == "off"
    assert settings("-fa 1").model.flash_attn == "on"
    assert settings("--flash-attn=auto").model.flash_attn == "auto"
    assert settings("--numa isolate").model.numa == "isolate"
    assert settings("--numa").model.numa == "distribute"
    assert settings("--log-colors --log-prefix").daemon.log_colors == "on"
    assert settings("--log-colors off").daemon.log_colors == "off"


def test_switches() -> None:
    assert settings("-nkvo").model.kv_offload is False
    assert settings("-nocb").model.cont_batching is False
    assert settings("--slots").daemon.endpoint_slots is True
    assert settings("--slots --slots-endpoint-disable").daemon.endpoint_slots is False
    assert settings("--no-context-shift --no-warmup").model.context_shift is False
    assert settings("--log-disable").daemon.log_enabled is False
    assert settings("--mmap=off").model.mmap is False
    assert settings("--no-mmap=on").model.mmap is False
    assert settings("--no-mmap=off").model.mmap is True
    assert settings("--log-append").daemon.log_file_mode == "append"
    assert settings("--log-append --log-new").daemon.log_file_mode == "new"
    assert settings("--log-jsonl").daemon.log_format == "json"
    assert settings("--log-format json --no-log-jsonl").daemon.log_format == "text"
    assert settings("--verbosity 1 --verbose=off").daemon.verbosity == 1


def test_lists() -> None:
    assert settings("--api-key a,b --api-key c").daemon.api_keys == ("a", "b", "c")
    assert settings("-ts 3,1").model.tensor_split == (3.0, 1.0)
    assert settings("-ts 3/1").model.tensor_split == (3.0, 1.0)
    assert settings("-ts 3,1 -ts 1,1").model.tensor_split == (1.0, 1.0)
    assert settings("-dev CUDA0,CUDA1").model.devices == ("CUDA0", "CUDA1")
    assert settings("-dev none").model.devices == ("none",)
    assert settings("--cors-origins none").daemon.cors_origins == ()
    assert settings("--cors-origins localhost,*").daemon.cors_origins == ("localhost", "*")
    assert settings("--allowed-hosts a.b --allowed-hosts c").daemon.allowed_hosts == ("a.b", "c")
    assert settings("--cors-methods GET,PUT --cors-headers X-A").daemon.cors_methods == "GET,PUT"
    assert settings("--cors-origins https://a.b,http://c:1").daemon.cors_origins == (
        "https://a.b",
        "http://c:1",
    )


def test_names_and_tags() -> None:
    parsed = settings("-a one,two --alias three --tags a,b")
    assert (parsed.model.alias, parsed.model.aliases, parsed.model.tags) == (
        "one",
        ("one", "two", "three"),
        ("a", "b"),
    )
    assert settings("").model.alias is None


def test_the_prefix_of_paths() -> None:
    for text in ("/llm", "llm", "/llm/", "//llm"):
        assert settings(f"--api-prefix {text}").daemon.api_prefix == "/llm"
    assert parse([*MODEL, "--api-prefix", ""], {}).settings.daemon.api_prefix == ""
    assert settings("--api-prefix /").daemon.api_prefix == ""
    assert complaint("--api-prefix /a?b") == "--api-prefix: '/a?b' is not a path; write for example /llm"


def test_several_hosts() -> None:
    assert settings("--host 127.0.0.1,::1").daemon.hosts == ("127.0.0.1", "::1")
    assert settings("--host 0.0.0.0,/run/llamad.sock").daemon.hosts == ("0.0.0.0", "/run/llamad.sock")
    assert settings("--host a --host b").daemon.hosts == ("b",)


def test_sequence_breakers_replace_the_defaults_and_are_unescaped() -> None:
    assert settings(
        r"--dry-sequence-breaker \n --dry-sequence-breaker ;"
    ).model.options.dry_sequence_breakers == (
        "\n",
        ";",
    )
    assert settings(r"--dry-sequence-breaker \n --no-escape").model.options.dry_sequence_breakers == (r"\n",)
    assert settings("--dry-sequence-breaker none").model.options.dry_sequence_breakers == ()
    line = "--dry-sequence-breaker a --dry-sequence-breaker none --dry-sequence-breaker b"
    assert settings(line).model.options.dry_sequence_breakers == ("b",)


def test_lists_that_no_request_could_use_stop_the_start() -> None:
    assert "use at most 64" in complaint(" ".join(f"--dry-sequence-breaker {x}" for x in range(65)))
    assert "at most 1024 bytes" in complaint(f"--dry-sequence-breaker {'é' * 513}")
    assert "at most 1024 bytes" in complaint(r"--dry-sequence-breaker a\x00b")
    assert "name at most 32" in complaint(f"--samplers {';'.join(['top_k'] * 33)}")
    assert "use at most 32" in complaint(f"--sampling-seq {'k' * 33}")


def test_the_system_prompts_flags() -> None:
    assert settings("").model.system_prompt_field is True
    assert settings("--no-system-prompt").model.system_prompt_field is False
    assert settings("-spf a.json").model.system_prompt_file == "a.json"


def test_unescape() -> None:
    assert unescape(r"\n\r\t\'\"\\n\x41\q\x4") == "\n\r\t'\"\\nA\\q\\x4"


def test_logit_bias() -> None:
    biases = settings("-l 15043+1 --logit-bias 7-0.5 -l 2-inf").model.options.logit_bias
    assert biases == (LogitBias(15043, 1.0), LogitBias(7, -0.5), LogitBias(2, -math.inf))


def test_override_kv() -> None:
    line = "--override-kv a.b=bool:false,c=int:-7 --override-kv d=float:0.5 --override-kv e=str:x,y=z:1"
    assert settings(line).model.override_kv == (
        KvOverride("a.b", "bool", False),
        KvOverride("c", "int", -7),
        KvOverride("d", "float", 0.5),
        KvOverride("e", "str", "x,y=z:1"),
    )


def test_override_kv_fits_llama_cpps_record() -> None:
    """llama.cpp keeps key and text in 128 bytes each, NUL included; bytes count, not characters."""
    assert settings(f"--override-kv {'k' * 127}=str:{'v' * 127}").model.override_kv[0].value == "v" * 127
    assert "longer than 127 bytes" in complaint(f"--override-kv {'k' * 128}=int:1")
    assert "longer than 127 bytes" in complaint(f"--override-kv k=str:{'é' * 64}")
    assert "out of range" in complaint(f"--override-kv k=int:{2**63}")
    assert settings(f"--override-kv k=int:{-(2**63)}").model.override_kv[0].value == -(2**63)


def test_override_tensor() -> None:
    placements = settings(
        "-ot ffn_.*_exps=CPU,token_embd=CUDA0 --override-tensor a=b=c"
    ).model.override_tensor
    assert placements == (
        Placement("ffn_.*_exps", "CPU"),
        Placement("token_embd", "CUDA0"),
        Placement("a", "b=c"),
    )
    for text in ("ffn", "=CPU", "ffn=", "a=CPU,"):
        assert "is not PATTERN=BUFFER" in complaint(f"-ot {text}")


def test_sampler_spellings() -> None:
    samplers = settings("--samplers penalties;typical_p;Top-K;topp;temp;nucleus;tfs").model.options.samplers
    assert samplers == ("penalties", "typ_p", "top_k", "top_p", "temperature", "top_p", "tfs_z")
    assert settings("--sampling-seq kfypmt").model.options.samplers == (
        "top_k",
        "tfs_z",
        "typ_p",
        "top_p",
        "min_p",
        "temperature",
    )


def test_sizes() -> None:
    assert settings("--body-max-bytes 2048").daemon.body_max_bytes == 2048
    assert settings("--body-max-bytes 2k").daemon.body_max_bytes == 2048
    assert settings("--body-max-bytes 64MiB").daemon.body_max_bytes == 64 << 20
    assert settings("--body-max-bytes 1G").daemon.body_max_bytes == 1 << 30


def test_rope_scale_is_the_inverse() -> None:
    assert settings("--rope-scale 4").model.rope_freq_scale == 0.25
    assert complaint("--rope-scale 0") == "--rope-scale: 0 is out of range; use more than 0"


def test_the_width_of_self_extend_is_a_multiple_of_its_factor() -> None:
    assert parsed("-gan 4 -gaw 512").settings.model.grp_attn_n == 4
    assert complaint("-gan 3 -gaw 512") == "--grp-attn-w 512 must be a multiple of --grp-attn-n 3"
    assert complaint("-gan 0").startswith("-gan: ")
    assert parsed("-gan 1 -gaw 511").settings.model.grp_attn_w == 511
