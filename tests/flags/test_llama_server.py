"""Owns the proof that llamad knows every flag of the pinned llama-server, with the same values and variables.

The list is read from llama.cpp's sources at test time, so a new pin shows what is missing.
"""

from __future__ import annotations

import pytest
from support.llama_server_flags import ServerFlag, documented_defaults, server_flags

from llamad.flags.parse import FlagError, parse
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Flag, Preset, Request
from llamad.flags.types.kinds import Float, Int, Pair, Switch


def ours(name: str) -> Flag:
    return TABLE.by_name[name][0]


def every(flags: tuple[ServerFlag, ...]) -> list[tuple[ServerFlag, str]]:
    return [(flag, name) for flag in flags for name in flag.names + flag.off]


def test_the_sources_are_understood() -> None:
    flags = {name: flag for flag, name in every(server_flags())}
    assert len(server_flags()) > 200
    assert flags["--ctx-size"].value == "integer"
    assert flags["--temp"].value == "number"
    assert flags["--no-mmproj"].off == ("--no-mmproj", "--no-mmproj-auto")
    assert flags["--control-vector-layer-range"].value == "two texts"
    assert flags["--ctx-size"].variables == ("LLAMA_ARG_CTX_SIZE",)
    assert flags["--no-slots"].variables == ("LLAMA_ARG_ENDPOINT_SLOTS", "LLAMA_ARG_NO_ENDPOINT_SLOTS")
    assert flags["--flash-attn"].words == ("on", "1", "off", "0", "auto", "-1")
    assert "--perplexity" not in flags
    assert "--server-base" not in flags  # of the chat program only


def test_every_flag_is_known() -> None:
    assert [name for _, name in every(server_flags()) if name not in TABLE.by_name] == []


def test_every_variable_is_known() -> None:
    variables = {name for flag in server_flags() for name in flag.variables}
    assert sorted(variables - set(TABLE.by_env)) == []


def test_all_spellings_of_a_flag_are_one_flag() -> None:
    apart = []
    for theirs in server_flags():
        dests = {ours(name).dest for name in theirs.names + theirs.off}
        dests |= {TABLE.by_env[name][0].dest for name in theirs.variables}
        if len(dests) > 1:
            apart.append((theirs.names, dests))
    assert apart == []


def test_negations_negate() -> None:
    for theirs in server_flags():
        for name in theirs.off:
            assert TABLE.by_name[name][1] != TABLE.by_name[theirs.names[0]][1], name


def takes_the_same(theirs: ServerFlag, flag: Flag) -> bool:
    kind = flag.kind
    if theirs.value == "switch":
        return isinstance(kind, Switch | Request | Preset)
    if theirs.value == "integer":
        return isinstance(kind, Int | Float)  # more is no harm
    if theirs.value == "number":
        return isinstance(kind, Float)
    if isinstance(kind, Pair):  # A B, or A:B, which is one text
        return theirs.value == "two texts" or kind.split("a:1") is not None
    return kind.takes == (2 if theirs.value == "two texts" else 1)


def test_values_have_the_same_number_and_type() -> None:
    other = [
        f"{name} is a {theirs.value}, not {ours(name).kind}"
        for theirs, name in every(server_flags())
        if not takes_the_same(theirs, ours(name))
    ]
    assert other == []


def test_words_are_the_same() -> None:
    refused = []
    for theirs in server_flags():
        flag = ours(theirs.names[0])
        for word in theirs.words:
            try:
                flag.kind.read(word)
            except ValueError as error:
                refused.append(f"{flag.title} {word}: {error}")
    assert refused == []


@pytest.mark.parametrize(
    ("theirs", "other"),
    [
        ("--ctx-size", "--slots"),
        ("--temp", "--ctx-size"),
        ("--flash-attn", "--slots"),
        ("--slots", "--flash-attn"),
        ("--control-vector-layer-range", "--flash-attn"),
    ],
)
def test_the_check_of_types_can_fail(theirs: str, other: str) -> None:
    flag = next(flag for flag, name in every(server_flags()) if name == theirs)
    assert takes_the_same(flag, ours(theirs))
    assert not takes_the_same(flag, ours(other))


ON, OFF = ("enabled", "true"), ("disabled", "false")


def written_out(theirs: ServerFlag, default: str) -> list[str] | None:
    """The arguments that state a default; None if it has no spelling."""
    if theirs.value == "switch":
        names = theirs.names if default in ON else theirs.off if default in OFF else ()
        return [names[-1]] if names else None
    if default in (*ON, *OFF, "none", "unused", "unset", "follows") or default.startswith("--"):
        return None
    return [theirs.names[-1], default]


def test_every_default_written_out_starts() -> None:
    """A value that is llama-server's own default asks for nothing."""
    refused, n_tried = [], 0
    for theirs in server_flags():
        default = documented_defaults().get(theirs.names[0])
        arguments = None if default is None else written_out(theirs, default)
        if arguments is None:
            continue
        n_tried += 1
        try:
            warnings = parse(["-m", "model.gguf", *arguments], {}).warnings
        except FlagError as error:
            refused.append(str(error))
        else:
            assert len(warnings) <= 1
    assert refused == []
    assert n_tried > 100


def test_every_negation_starts() -> None:
    refused = []
    for theirs in server_flags():
        for name in theirs.off:
            try:
                parse(["-m", "model.gguf", name], {})
            except FlagError as error:
                refused.append(str(error))
    assert refused == []
