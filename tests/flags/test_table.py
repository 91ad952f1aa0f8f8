"""Owns the proof that the table is whole, contradicts neither itself nor Settings, and knows the old flags."""

from __future__ import annotations

import types
import typing
from typing import Any

import msgspec
import pytest

from llamad.flags.settings import DaemonSettings, ModelSettings
from llamad.flags.table import TABLE, Table
from llamad.flags.types.flag import Flag, Inert, Later, Preset, Ready, Request
from llamad.flags.types.kinds import Int, Inverse, Many, Switch, Text
from llamad.options.table import FIELDS, WITH_FLAG
from llamad.options.values import Biases, LogitBias


def words(text: str) -> list[str]:
    return text.split()


# Every spelling in llama.cpp's server documents of early 2024 ...
EARLY_2024 = words("""
--threads -t -tb --threads-batch --threads-http -m --model -mu --model-url -hfr --hf-repo -hff --hf-file
-a --alias -c --ctx-size -ngl --n-gpu-layers -mg --main-gpu -ts --tensor-split -b --batch-size -ub
--ubatch-size --mlock --no-mmap --numa --lora --lora-base -to --timeout --host --port --path --api-key
--api-key-file --embedding -np --parallel -cb --cont-batching -spf --system-prompt-file --mmproj
--grp-attn-n --grp-attn-w -n --n-predict --slots-endpoint-disable --metrics --slot-save-path
--chat-template --log-disable --log-format --ssl-key-file --ssl-cert-file
""")

# ... and of the middle of 2024.
MID_2024 = words("""
-h --help --usage --version -v --verbose --verbosity --verbose-prompt --no-display-prompt -co --color
-s --seed -t --threads -tb --threads-batch -td --threads-draft -tbd --threads-batch-draft --draft -ps
--p-split -lcs --lookup-cache-static -lcd --lookup-cache-dynamic -c --ctx-size -n --predict -b
--batch-size -ub --ubatch-size --keep --chunks -fa --flash-attn -p --prompt -f --file --in-file -bf
--binary-file -e --escape --no-escape -ptc --print-token-count --prompt-cache --prompt-cache-all
--prompt-cache-ro -r --reverse-prompt -sp --special -cnv --conversation -i --interactive -if
--interactive-first -mli --multiline-input --in-prefix-bos --in-prefix --in-suffix --spm-infill
--samplers --sampling-seq --ignore-eos --penalize-nl --temp --top-k --top-p --min-p --tfs --typical
--repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dynatemp-range --dynatemp-exp
--mirostat --mirostat-lr --mirostat-ent -l --logit-bias --cfg-negative-prompt --cfg-negative-prompt-file
--cfg-scale --chat-template --grammar --grammar-file -j --json-schema --pooling --attention
--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor
--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast -gan --grp-attn-n -gaw --grp-attn-w -dkvc
--dump-kv-cache -nkvo --no-kv-offload -ctk --cache-type-k -ctv --cache-type-v --all-logits --hellaswag
--hellaswag-tasks --winogrande --winogrande-tasks --multiple-choice --multiple-choice-tasks
--kl-divergence --kl-divergence-base --ppl-stride --ppl-output-type -dt --defrag-thold -np --parallel
-ns --sequences -cb --cont-batching --mmproj --image --rpc --mlock --no-mmap --numa --check-tensors
--override-kv --lora --lora-scaled --lora-base --control-vector --control-vector-scaled
--control-vector-layer-range -m --model -md --model-draft -mu --model-url -hfr --hf-repo -hff --hf-file
-hft --hf-token --host --port --path --embedding --embeddings --api-key --api-key-file --ssl-key-file
--ssl-cert-file --timeout --threads-http --system-prompt-file -spf --log-format --metrics --no-slots
--slot-save-path -sps --slot-prompt-similarity --lora-init-without-apply --simple-io -ld --logdir
--log-test --log-disable --log-enable --log-file --log-new --log-append --n-gpu-layers
""")

EARLY_2025 = words("""
--alias --embedding --lora --lora-init-without-apply --metrics --mmproj --parallel --pooling --props
--reranking --slot-save-path --slots
""")

VARIABLES = words("""
LLAMA_ARG_MODEL LLAMA_ARG_THREADS LLAMA_ARG_CTX_SIZE LLAMA_ARG_N_PARALLEL LLAMA_ARG_BATCH LLAMA_ARG_UBATCH
LLAMA_ARG_N_GPU_LAYERS LLAMA_ARG_THREADS_HTTP LLAMA_ARG_CHAT_TEMPLATE LLAMA_ARG_N_PREDICT
LLAMA_ARG_ENDPOINT_METRICS LLAMA_ARG_ENDPOINT_SLOTS LLAMA_ARG_EMBEDDINGS LLAMA_ARG_FLASH_ATTN
LLAMA_ARG_DEFRAG_THOLD
""")

# What the first version has to have working.
WORKING = words("""
-m -a -c -b -ub -t -tb --threads-sampling -ngl -sm -ts -mg -dev -fa -ctk -ctv -nkvo -kvu --swa-full --no-mmap
--mmap --mlock --numa --check-tensors --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale
--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --override-kv --pooling
--attention -np -cb -nocb --context-shift --no-context-shift --temp --temperature --top-k --top-p --min-p
--top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --typical --repeat-last-n --repeat-penalty
--presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length
--dry-penalty-last-n --dry-sequence-breaker --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr
--mirostat-ent --samplers --sampling-seq --sampler-seq --min-keep --ignore-eos -l --logit-bias -s --seed
-n --predict --n-predict --keep --host --port -to --api-key --api-key-file --slots --no-slots
--slots-endpoint-disable --metrics --props -sps -v --verbose --log-verbose --verbosity -lv --log-verbosity
--log-disable --log-enable --log-file --log-format --log-colors --log-prefix --log-timestamps --log-new
--log-append --verbose-prompt -e --escape --no-escape --version --warmup --no-warmup --cors-origins
--header-max-bytes --body-max-bytes --header-timeout --body-timeout --keepalive-timeout --connections-max
--queue-max --drain-seconds --request-timeout --n-predict-max --prompts-max --stop-max
--tfs --penalize-nl --no-penalize-nl --cache-prompt --no-cache-prompt -spf --system-prompt-file --no-system-prompt
--stream-buffer-bytes --step-tokens-max --step-trace --ping-seconds --ssl-key-file --ssl-cert-file
""")

INERT = words("""
-i -if -mli -cnv --in-prefix-bos --in-prefix --in-suffix --all-logits --hellaswag --hellaswag-tasks
--winogrande --winogrande-tasks --multiple-choice --multiple-choice-tasks --kl-divergence --ppl-stride
--ppl-output-type -p -f -bf --in-file -r --prompt-cache --prompt-cache-all --prompt-cache-ro --image -ptc
--color --simple-io -ld --cfg-negative-prompt --cfg-negative-prompt-file --cfg-scale -dkvc --chunks
--threads-http -dt --lora-base
""")


@pytest.mark.parametrize("name", sorted({*EARLY_2024, *MID_2024, *EARLY_2025}))
def test_every_documented_flag_is_known(name: str) -> None:
    assert name in TABLE.by_name


@pytest.mark.parametrize("name", VARIABLES)
def test_every_documented_variable_is_known(name: str) -> None:
    assert name in TABLE.by_env


@pytest.mark.parametrize("name", WORKING)
def test_the_working_flags_work(name: str) -> None:
    assert isinstance(TABLE.by_name[name][0].status, Ready)


@pytest.mark.parametrize("name", INERT)
def test_the_flags_of_other_tools_are_inert(name: str) -> None:
    assert isinstance(TABLE.by_name[name][0].status, Inert)


# No flag's own value.
DERIVED = ("options", "given", "keeps_ctx", "inputs_on_device", "wants_states")


def test_settings_has_exactly_the_dests_that_work() -> None:
    fields = [*msgspec.structs.fields(DaemonSettings), *msgspec.structs.fields(ModelSettings)]
    names = [field.name for field in fields if field.name not in DERIVED]
    assert sorted([*names, *WITH_FLAG]) == sorted({flag.dest for flag in TABLE.settings})
    assert all(field.default is msgspec.NODEFAULT for field in fields)
    assert all(field.default_factory is msgspec.NODEFAULT for field in fields)


@pytest.mark.parametrize("flag", TABLE.settings, ids=lambda flag: flag.title)
def test_settings_has_the_types_of_the_table(flag: Flag) -> None:
    hint = hint_of(flag.dest)
    assert fits(flag.default, hint)
    if isinstance(flag.kind, Switch):  # mypy checks the other kinds
        assert fits(flag.kind.on, hint)
        assert flag.kind.off is None or fits(flag.kind.off, hint)


def hint_of(dest: str) -> Any:
    """The annotation of a setting; of a list that is an option's, that of the tuple that it is."""
    if dest not in WITH_FLAG:
        (group,) = (
            one for one in DaemonSettings.__bases__ + ModelSettings.__bases__ if dest in one.__annotations__
        )
        return typing.get_type_hints(group)[dest]
    hint = FIELDS[dest].type
    if hint is Biases:
        return tuple[LogitBias, ...]
    return hint.__orig_bases__[0] if issubclass(hint, tuple) else hint


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type that an annotation says, exactly: True is no int, 1 no float."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in arguments
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(item, arguments[0]) for item in value)
    return type(value) is hint


def test_the_check_of_types_can_fail() -> None:
    assert not fits(True, int)
    assert not fits(1, float)
    assert not fits("x", typing.Literal["y"])
    assert not fits((1,), tuple[str, ...])


# Not the switches, which take no value, nor what is off by default, nor 1/0.
WITH_DEFAULT = [
    flag
    for flag in TABLE.settings
    if flag.default not in (None, "", ()) and not isinstance(flag.kind, Switch | Inverse)
]


@pytest.mark.parametrize("flag", WITH_DEFAULT, ids=lambda flag: flag.title)
def test_defaults_are_values_that_the_flag_accepts(flag: Flag) -> None:
    if isinstance(flag.kind, Many) and not flag.kind.cut:
        assert all(flag.kind.read(item) == (item,) for item in flag.default)
    else:
        assert flag.kind.read(flag.kind.write(flag.default)) == flag.default


def test_only_secrets_hold_keys() -> None:
    secret = {flag.dest for flag in TABLE.flags if flag.secret}
    paths = {"env_file", "api_key_file", "ssl_key_file", "slot_save_path", "log_prompts_dir", "cache_disk"}
    assert secret == {"api_keys", "hf_token", "model_url", "mmproj_url", *paths}


def test_every_setting_can_come_from_a_variable() -> None:
    without = {flag.dest for flag in TABLE.settings} - {flag.dest for flag in TABLE.settings if flag.env}
    assert without == {"log_file_mode"}


def test_names_look_like_flags() -> None:
    for name in TABLE.by_name:
        assert name.startswith("-")
        assert "_" not in name
        assert "=" not in name
        assert len(name.lstrip("-")) == 1 or not name[1:].lstrip("-").isdigit()


def test_dests_of_one_status_only() -> None:
    """A dest that works must not also be set by a flag that does nothing."""
    ready = {flag.dest for flag in TABLE.settings}
    others = {flag.dest for flag in TABLE.flags if isinstance(flag.status, Later | Inert)}
    assert not ready & others


def test_requests_are_no_settings() -> None:
    assert not any(isinstance(flag.kind, Request | Preset) for flag in TABLE.settings)


def row(name: str, **more: Any) -> Flag:
    values: dict[str, Any] = {"dest": "x", "kind": Int(), "default": 0, "group": "G", "help": "H."}
    return Flag(names=(name,), **(values | more))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([row("-x"), row("-x", dest="y")], "two flags are named -x"),
        ([row("-x", env=("E",)), row("-y", env=("E",))], "two flags read E"),
        ([row("-x"), row("-y", default=1)], "two defaults of x"),
        ([row("-x", off=("-y",))], "-x has a negation but is not a switch"),
        ([row("-x", repeat=True)], "-x is repeated but is not a list"),
        ([row("-x", neutral=(1,))], "-x has neutral values but works"),
        ([row("-x", help="")], "-x has no help"),
        ([Flag(names=(), dest="x", kind=Text(), default="", group="G", help="H.")], "x has no name"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(rows: list[Flag], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Table(rows)
