"""Owns the property that any valid settings survive the way through a command line or an environment."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llamad.flags.groups.draft_model import DraftModel
from llamad.flags.groups.many_models import ManyModels
from llamad.flags.groups.speculative import OF_ALL_TYPES
from llamad.flags.parse import parse
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import Choice, Float, Int, Inverse, Kind, Many, Pair, Size, Switch, Text
from llamad.flags.types.model_files import Adapter, ControlVector, HubName, Overrides, Scaled
from llamad.flags.types.network import (
    Endpoint,
    Host,
    HostName,
    HttpTokens,
    Network,
    Origin,
    PathPrefix,
    Url,
)
from llamad.flags.types.placement import CpuMask, CpuRange, Placements
from llamad.flags.types.sampling import Bias, SamplerLetters, SamplerNames
from llamad.flags.types.speculation import NGRAM_TYPES, SpecType
from llamad.flags.types.values import AdapterFile, KvOverride, Placement, ScaledFile
from llamad.options.sampler_names import LETTERS
from llamad.options.values import LogitBias

PLAIN = st.one_of(
    # A command line cannot hold a zero byte.
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12),
    st.text("\\nrtx4'\"-= ", min_size=1, max_size=6),  # what escapes and arguments are made of
)
WORD = st.from_regex(r"[A-Za-z0-9_./-]{1,12}", fullmatch=True)
OVERRIDE_KEYS = st.from_regex(r"[a-z][a-z0-9_.]{0,126}", fullmatch=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def floats(kind: Float) -> st.SearchStrategy[float]:
    low = kind.above if kind.above is not None else kind.low
    return st.floats(
        min_value=low,
        max_value=kind.high,
        exclude_min=kind.above is not None,
        allow_nan=False,
        allow_infinity=False,
        width=32,
    )


def overrides() -> st.SearchStrategy[tuple[KvOverride, ...]]:
    one = st.one_of(
        st.builds(KvOverride, OVERRIDE_KEYS, st.just("int"), st.integers(-(2**63), 2**63 - 1)),
        st.builds(KvOverride, OVERRIDE_KEYS, st.just("float"), FINITE),
        st.builds(KvOverride, OVERRIDE_KEYS, st.just("bool"), st.booleans()),
        st.builds(KvOverride, OVERRIDE_KEYS, st.just("str"), WORD),
    )
    return st.lists(one, min_size=1, max_size=3).map(tuple)


ADAPTERS = st.builds(AdapterFile, WORD, st.just(1.0), st.sampled_from(["", "style", "a.b-c"]))
FILES = st.builds(ScaledFile, WORD, st.just(1.0))


def scaled(kind: Scaled) -> st.SearchStrategy[tuple[Any, ...]]:
    item = ADAPTERS if isinstance(kind.first, Adapter) else FILES
    one = st.builds(lambda file, scale: file._replace(scale=scale), item, floats(Float()))
    return st.lists(one, min_size=1, max_size=3).map(tuple)


STRATEGIES: dict[type[Kind[Any]], Callable[[Any], st.SearchStrategy[Any]]] = {
    Int: lambda kind: st.integers(kind.low, kind.high),
    Float: floats,
    # A multiple of a power of two, so that its inverse is exact.
    Inverse: lambda kind: st.integers(-20, 20).map(lambda power: 2.0**power),
    CpuMask: lambda kind: st.lists(st.integers(0, 511), min_size=1, unique=True).map(sorted).map(tuple),
    CpuRange: lambda kind: st.tuples(st.integers(0, 255), st.integers(1, 256)).map(
        lambda span: tuple(range(span[0], span[0] + span[1]))
    ),
    Choice: lambda kind: st.sampled_from(kind.options),
    Endpoint: lambda kind: st.builds(
        "{}:{}".format, st.sampled_from(["gpu-box.lan", "10.0.0.2"]), st.integers(1, 65535)
    ),
    Host: lambda kind: WORD,
    HostName: lambda kind: WORD.map(lambda word: word.replace("/", "")).filter(bool),
    HubName: lambda kind: st.sampled_from(["a/b", "org/model-2.5-GGUF:Q4_K_M"]),
    HttpTokens: lambda kind: st.lists(WORD.map(lambda word: word.replace("/", "x")), min_size=1).map(
        ", ".join
    ),
    Origin: lambda kind: WORD.map(lambda word: f"https://{word.replace('/', '')}x"),
    Network: lambda kind: st.sampled_from(["unix", "10.0.0.0/8", "192.168.1.7/32", "fd00::/8"]),
    PathPrefix: lambda kind: st.sampled_from(["/a", "/llm/v2.x"]),
    Size: lambda kind: st.integers(kind.low, kind.high),
    SpecType: lambda kind: st.sampled_from(NGRAM_TYPES),
    Url: lambda kind: WORD.map(lambda word: f"https://{word}"),
    SamplerNames: lambda kind: st.lists(
        st.sampled_from(sorted(LETTERS.values())), min_size=1, max_size=16
    ).map(tuple),
    SamplerLetters: lambda kind: st.lists(
        st.sampled_from(sorted(LETTERS.values())), min_size=1, max_size=16
    ).map(tuple),
    Adapter: lambda kind: ADAPTERS,
    ControlVector: lambda kind: FILES,
    Scaled: scaled,
    Pair: lambda kind: st.tuples(values(kind.first), values(kind.second)),
    Overrides: lambda kind: overrides(),
    Placements: lambda kind: st.lists(st.builds(Placement, WORD, WORD), min_size=1, max_size=3).map(tuple),
    Bias: lambda kind: st.builds(
        LogitBias, st.integers(0, 2**31 - 1), st.one_of(floats(Float()), st.just(-math.inf))
    ),
    Switch: lambda kind: st.sampled_from([value for value in (kind.on, kind.off) if value is not None]),
}


def values(kind: Kind[Any]) -> st.SearchStrategy[Any]:
    if isinstance(kind, Many):
        is_text = isinstance(kind.item, Text) and type(kind.item) not in STRATEGIES
        item = WORD if is_text and kind.cut else values(kind.item)
        item = item.filter(lambda text: text != kind.none)
        return st.lists(item, min_size=0 if kind.none else 1, max_size=3).map(tuple)
    if isinstance(kind, Text) and type(kind) not in STRATEGIES:
        return PLAIN
    return STRATEGIES[type(kind)](kind)


@st.composite
def chosen(draw: st.DrawFn) -> dict[str, tuple[Flag, Any]]:
    """Some flags with values, at most one for each setting, that may stand together."""
    flags = draw(st.lists(st.sampled_from(TABLE.settings), unique_by=lambda flag: flag.dest, max_size=12))
    found = {flag.dest: (flag, draw(values(flag.kind))) for flag in flags}
    for dest in ("ssl_key_file", "ssl_cert_file"):
        found.pop(dest, None)  # both or neither, which is tested elsewhere
    found.pop("proxy_protocol", None)  # with trusted proxies, which is tested elsewhere
    found.pop("metrics_public", None)  # with metrics, which is tested elsewhere
    for dest in ("hf_repo", "hf_file"):
        found.pop(dest, None)  # one name of the model, which is tested elsewhere
    for dest in ("spec_fixed", "lookup_cache_static", "lookup_cache_dynamic", *OF_ALL_TYPES):
        found.pop(dest, None)  # they need or set others, which is tested elsewhere
    for dest in DraftModel.__annotations__:
        found.pop(dest, None)  # they need a draft model, which is tested elsewhere
    for dest in ManyModels.__annotations__:
        found.pop(dest, None)  # they need a daemon without a model, which is tested elsewhere
    if found.get("flash_attn", (None, ""))[1] == "off":
        found.pop("cache_type_v", None)
    if "n_ctx" not in found:
        found.pop("kv_unified_per_slot", None)  # which would set it
    names = [one.name for one in found.get("lora", (None, ()))[1] if one.name]
    if len(set(names)) < len(names):
        found.pop("lora")  # names are unique, which is tested elsewhere
    found.pop("grp_attn_n", None)  # the width must be its multiple, which is tested elsewhere
    return found


def texts(flag: Flag, value: Any, escaped: bool) -> list[str]:
    """The texts that say a value: one, or for a list without a separator one for each item."""
    if isinstance(flag.kind, Many) and not flag.kind.cut and value:
        items = [flag.kind.item.write(item) for item in value]
        return [item.replace("\\", "\\\\") for item in items] if escaped else items
    return [flag.kind.write(value)]


def arguments(draw: st.DrawFn, flag: Flag, value: Any, escaped: bool) -> list[str]:
    if isinstance(flag.kind, Switch):
        names = flag.names if value == flag.kind.on else flag.off
        return [draw(st.sampled_from(names))] if names else [f"{flag.title}=off"]
    line: list[str] = []
    for text in texts(flag, value, escaped):
        name = draw(st.sampled_from(flag.names))
        must_join = (
            text.startswith("--") or text in TABLE.by_name or (flag.bare is not None and text[0] == "-")
        )
        line += [f"{name}={text}"] if must_join or draw(st.booleans()) else [name, text]
    return line


def escapes(found: dict[str, tuple[Flag, Any]]) -> bool:
    return bool(found["escape"][1]) if "escape" in found else True


def check(found: dict[str, tuple[Flag, Any]], line: list[str], environ: dict[str, str]) -> None:
    result = parse(["-m", "default.gguf", *line], environ) if "model" not in found else parse(line, environ)
    assert result.warnings == []
    assert result.given == {*found, "model"}
    # Without their number, the slots share a cache, which is tested elsewhere.
    skipped = {"model", *(("n_parallel", "kv_unified") if "n_parallel" not in found else ())}
    if "lora" in found:
        skipped.add("mmap")  # which it implies, unless that is given; tested elsewhere
    for flag in TABLE.settings:
        if flag.dest not in skipped or flag.dest in found:
            expected = found[flag.dest][1] if flag.dest in found else flag.default
            assert result.settings.get(flag.dest) == expected


@given(chosen(), st.data())
def test_through_a_command_line(found: dict[str, tuple[Flag, Any]], data: st.DataObject) -> None:
    escaped = escapes(found)

    @st.composite
    def lines(draw: st.DrawFn) -> list[str]:
        return [
            text
            for flag, value in found.values()
            for text in arguments(draw, flag, value, escaped and flag.escapes)
        ]

    check(found, data.draw(lines()), {})


@given(chosen())
def test_through_the_environment(found: dict[str, tuple[Flag, Any]]) -> None:
    escaped = escapes(found)
    kept: dict[str, tuple[Flag, Any]] = {}
    environ: dict[str, str] = {}
    for dest, (flag, value) in found.items():
        parts = texts(flag, value, escaped and flag.escapes)
        if flag.env and len(parts) == 1 and not (isinstance(flag.kind, Switch) and flag.kind.off is None):
            kept[dest] = (flag, value)
            environ[flag.env[0]] = parts[0]
    # --escape itself may have been left out above only if it has no variable, and it has one.
    check(kept, [], environ)


@given(st.sampled_from([flag for flag in TABLE.settings if flag.env_off]))
def test_through_a_negated_variable(flag: Flag) -> None:
    assert isinstance(flag.kind, Switch)
    result = parse(["-m", "x"], {flag.env_off[0]: "1"})
    assert result.settings.get(flag.dest) == flag.kind.off
