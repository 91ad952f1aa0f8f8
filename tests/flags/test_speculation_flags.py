"""The flags about drafts, and what is refused with which sentence."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.llama_server_flags import source_text

from llamad.engine.drafts.spec_types import automatic, ngram_map_k4v, ngram_mod, ngram_simple, rules_of
from llamad.flags.groups.speculative import DRAFT_MAX
from llamad.flags.parse import FlagError, parse
from llamad.flags.settings import ModelSettings
from llamad.flags.types.speculation import HEAD_TYPES, MODEL_TYPE, NGRAM_TYPES, NONE

EXT = Path(__file__).parents[2] / "ext" / "llamad"


def settings(line: str, environ: dict[str, str] | None = None) -> ModelSettings:
    result = parse(shlex.split(f"-m m.gguf {line}"), environ or {})
    assert result.warnings == []
    return result.settings.model


def complaint(line: str) -> str:
    with pytest.raises(FlagError) as caught:
        settings(line)
    return str(caught.value)


def test_nothing_is_drafted_by_default() -> None:
    model = settings("")
    assert (model.spec, model.spec_types, model.spec_fixed) == ("off", (), None)


@pytest.mark.parametrize(
    ("line", "types"),
    [
        ("--spec-type ngram-mod", ("ngram-mod",)),
        ("--spec-type ngram-mod,ngram-simple", ("ngram-mod", "ngram-simple")),
        ("--spec-type ngram-map-k --spec-type ngram-cache", ("ngram-map-k", "ngram-cache")),
        ("--spec-type none", ()),
        ("--spec-type ngram-mod,none,ngram-simple", ()),
        ("--spec-type none --spec-type ngram-map-k4v", ("ngram-map-k4v",)),
        ("--spec-type ngram-simple --spec-default", ("ngram-simple", "ngram-mod")),
    ],
)
def test_types(line: str, types: tuple[str, ...]) -> None:
    assert settings(line).spec_types == types


@pytest.mark.parametrize("flag", ["-lcs", "-lcd", "--lookup-cache-static", "--lookup-cache-dynamic"])
def test_a_lookup_cache_means_ngram_cache_unless_drafts_are_automatic(flag: str) -> None:
    def drafts(line: str) -> tuple[str, tuple[str, ...]]:
        model = settings(f"{flag} x.bin {line}")
        assert [model.lookup_cache_static, model.lookup_cache_dynamic].count("x.bin") == 1
        return model.spec, model.spec_types

    assert drafts("") == ("off", ("ngram-cache",))
    assert drafts("--spec-fixed 3 --spec-type ngram-mod") == ("off", ("ngram-mod", "ngram-cache"))
    assert drafts("--spec-type ngram-cache,ngram-simple") == ("off", ("ngram-cache", "ngram-simple"))
    assert drafts("--spec auto") == ("auto", ())
    assert drafts("--spec auto --spec-type ngram-mod") == ("auto", ("ngram-mod",))


def test_variables() -> None:
    model = settings("", {"LLAMA_ARG_SPEC_TYPE": "ngram-mod,ngram-cache", "LLAMA_ARG_SPEC": "auto"})
    assert (model.spec, model.spec_types) == ("auto", ("ngram-mod", "ngram-cache"))


def test_the_default_is_that_of_llama_server_and_later_flags_win() -> None:
    def mod(line: str) -> tuple[int, int, int]:
        one = settings(line)
        return one.spec_ngram_mod_n_match, one.spec_ngram_mod_n_min, one.spec_ngram_mod_n_max

    assert mod("--spec-ngram-mod-n-max 9 --spec-default") == (24, 48, 64)
    assert mod("--spec-default --spec-ngram-mod-n-min 2") == (24, 2, 64)


def test_a_flag_of_all_types_sets_those_without_their_own() -> None:
    model = settings("--spec-ngram-size-n 7 --spec-ngram-map-k-size-n 9 --spec-ngram-size-m 30")
    assert (model.spec_ngram_simple_size_n, model.spec_ngram_map_k_size_n) == (7, 9)
    assert (model.spec_ngram_map_k4v_size_n, model.spec_ngram_mod_n_match) == (7, 7)
    assert (model.spec_ngram_simple_size_m, model.spec_ngram_mod_n_max) == (30, 64)
    assert settings("--spec-ngram-min-hits 3").spec_ngram_map_k4v_min_hits == 3


@pytest.mark.parametrize("name", ["draft-eagle3", "draft-mtp", "draft-dspark", "mtp", "dflash"])
def test_types_that_need_heads_are_refused(name: str) -> None:
    assert complaint(f"--spec-type ngram-mod,{name}") == (
        f"--spec-type: '{name}' needs heads in the model, which this version of llamad does not use yet; use"
        " ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache, or draft-simple with a draft model"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--spec-type suffix", "--spec-type: 'suffix' is not one of none, ngram-simple, ngram-map-k, "),
        ("--spec on", "--spec: 'on' is not one of off, auto"),
        ("--spec auto --spec-fixed 64", "--spec-fixed: 64 is out of range; use 0 to 63"),
        ("--spec-fixed 3", "--spec-fixed needs drafts: add --spec auto, --spec-type or --spec-default"),
        ("--spec-fixed 3 --spec-type none", "--spec-fixed needs drafts"),
        ("--spec-ngram-mod-n-match 0", "--spec-ngram-mod-n-match: 0 is out of range; use 1 to 1024"),
        ("--spec-ngram-mod-n-max 1025", "--spec-ngram-mod-n-max: 1025 is out of range; use 0 to 1024"),
        ("--spec-ngram-simple-size-m 0", "--spec-ngram-simple-size-m: 0 is out of range; use 1 to 1024"),
        ("--spec-ngram-map-k4v-min-hits 0", "--spec-ngram-map-k4v-min-hits: 0 is out of range; use 1 "),
        (
            "-lcs x.bin --spec-type none",
            "--spec-type none: a lookup cache needs drafts; leave out one of the two",
        ),
    ],
)
def test_bad_values_stop_with_a_sentence(line: str, message: str) -> None:
    assert complaint(line).startswith(message)


def test_the_types_are_llama_servers() -> None:
    source = source_text("common/speculative.cpp")
    names = re.findall(r'\{"([\w-]+)",\s+COMMON_SPECULATIVE_TYPE_', source)
    assert {NONE, *NGRAM_TYPES, MODEL_TYPE, *HEAD_TYPES} == set(names)


def test_rules_have_the_settings_in_a_fixed_order() -> None:
    line = "--spec auto --spec-type ngram-mod,ngram-map-k4v --spec-type ngram-simple --spec-ngram-simple-size-m 9"
    rules = rules_of(settings(f"{line} --spec-ngram-mod-n-min 5 --spec-ngram-min-hits 2"))
    assert list(rules.items()) == [
        ("ngram-simple", ngram_simple(12, 9)),
        ("ngram-map-k4v", ngram_map_k4v(12, 48, 2)),
        ("ngram-mod", ngram_mod(24, 5, 64)),
        ("auto", automatic()),
    ]
    assert list(rules_of(settings(f"--spec-type {','.join(reversed(NGRAM_TYPES))}"))) == list(NGRAM_TYPES)
    assert rules_of(settings("--spec-default")) == {"ngram-mod": ngram_mod(24, 48, 64)}
    assert rules_of(settings("")) == {}


def test_the_longest_draft_is_the_engines() -> None:
    slots, board = (
        (EXT / path).read_text(encoding="utf-8") for path in ("engine/kv/slots.pxd", "protocol/board.pxd")
    )
    assert f"DRAFT_MAX = {DRAFT_MAX} " in slots
    assert f"n_accepted_at[{DRAFT_MAX}]" in board
