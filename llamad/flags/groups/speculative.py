"""The flags about speculation: which drafts, those from text, lookup caches. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag, Inert, Preset, placeholder
from llamad.flags.types.kinds import File, Int, Text
from llamad.flags.types.speculation import SpecType, SpecTypes

TITLE = "Speculation"
DRAFT_MAX = 63  # tokens that a step can verify

_SIZE = Int(1, 1024)
_LENGTH = Int(0, 1024)
_HITS = Int(low=1)


class Speculation:
    """Settings about speculation, and about drafts from text."""

    spec: Literal["off", "auto"] = flag(
        default="off",
        metavar="off|auto",
        help="auto: draft the next tokens from what followed the same text before, in the prompt, the answer and"
        " earlier answers of the same API key, and with the draft model, if there is one; verify several in one step,"
        " as many as pay.",
    )
    spec_types: tuple[str, ...] = flag(
        names=("--spec-type",),
        kind=SpecTypes(SpecType(), none="none"),
        default=(),
        repeat=True,
        metavar="TYPES",
        help="Draft as llama-server's types do: from text with ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod,"
        " ngram-cache, tried in this order, or draft-simple with a draft model; separated by commas. none: no type. May"
        " be repeated.",
    )
    spec_fixed: int | None = flag(
        kind=Int(0, DRAFT_MAX),
        default=None,
        help="Verify this many drafted tokens in every step that has a draft, instead of as many as pay, which depends"
        " on time.",
    )
    spec_ngram_mod_n_match: int = flag(
        kind=_SIZE,
        default=24,
        help="ngram-mod: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_mod_n_min: int = flag(
        kind=_LENGTH,
        default=48,
        help="ngram-mod: minimum length of a draft.",
    )
    spec_ngram_mod_n_max: int = flag(
        kind=_LENGTH,
        default=64,
        help="ngram-mod: maximum length of a draft.",
    )
    spec_ngram_simple_size_n: int = flag(
        kind=_SIZE,
        default=12,
        help="ngram-simple: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_simple_size_m: int = flag(
        kind=_SIZE,
        default=48,
        help="ngram-simple: maximum length of a draft.",
    )
    spec_ngram_map_k_size_n: int = flag(
        kind=_SIZE,
        default=12,
        help="ngram-map-k: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_map_k_size_m: int = flag(
        kind=_SIZE,
        default=48,
        help="ngram-map-k: maximum length of a draft.",
    )
    spec_ngram_map_k4v_size_n: int = flag(
        kind=_SIZE,
        default=12,
        help="ngram-map-k4v: tokens at the end of the text that must have occurred before.",
    )
    spec_ngram_map_k4v_size_m: int = flag(
        kind=_SIZE,
        default=48,
        help="ngram-map-k4v: maximum length of a draft.",
    )
    spec_ngram_map_k4v_min_hits: int = flag(
        kind=_HITS,
        default=1,
        help="ngram-map-k4v: how often they must have occurred.",
    )
    lookup_cache_static: str | None = flag(
        names=("-lcs", "--lookup-cache-static"),
        kind=File(),
        default=None,
        help="Draft from this file of n-grams, which llama-lookup-create has made; without --spec auto it implies"
        " --spec-type ngram-cache.",
    )
    lookup_cache_dynamic: str | None = flag(
        names=("-lcd", "--lookup-cache-dynamic"),
        kind=File(),
        default=None,
        help="The same with a file that learns the n-grams of all answers; it is made if it is missing. With API keys"
        " it needs --share-prefixes.",
    )
    # These flags set several settings (OF_ALL_TYPES).
    spec_ngram_size_n: int | None = flag(
        kind=_SIZE,
        default=None,
        help="All types: tokens at the end of the text that must have occurred before, unless the type's own flag is"
        " given.",
    )
    spec_ngram_size_m: int | None = flag(
        kind=_SIZE,
        default=None,
        help="ngram-simple, ngram-map-k and ngram-map-k4v: maximum length of a draft, unless the type's own flag is"
        " given.",
    )
    spec_ngram_min_hits: int | None = flag(
        kind=_HITS,
        default=None,
        help="The same as --spec-ngram-map-k4v-min-hits, if that is not given.",
    )


# The settings that a flag of all types sets.
OF_ALL_TYPES = {
    "spec_ngram_size_n": (
        "spec_ngram_mod_n_match",
        "spec_ngram_simple_size_n",
        "spec_ngram_map_k_size_n",
        "spec_ngram_map_k4v_size_n",
    ),
    "spec_ngram_size_m": (
        "spec_ngram_simple_size_m",
        "spec_ngram_map_k_size_m",
        "spec_ngram_map_k4v_size_m",
    ),
    "spec_ngram_min_hits": ("spec_ngram_map_k4v_min_hits",),
}

SPEC_DEFAULT = Flag(
    group=TITLE,
    names=("--spec-default",),
    dest="spec_default",
    kind=Preset(
        tuple(
            "--spec-type ngram-mod --spec-ngram-mod-n-match 24 --spec-ngram-mod-n-min 48"
            " --spec-ngram-mod-n-max 64".split()
        )
    ),
    default=False,
    help="As in llama-server: --spec-type ngram-mod with a match of 24 tokens and drafts of 48 to 64.",
)

_SYNTHETIC = Inert("llamad does not pretend that drafts were right, because the text would be wrong")
_UNUSED = Inert("llama-server does not use it either")

OTHER_FLAGS: tuple[Flag, ...] = (
    *(
        placeholder(
            f"--spec-synth-{name}",
            env=(f"LLAMA_ARG_SPEC_SYNTH_{name.upper()}",),
            kind=Text(),
            status=_SYNTHETIC,
        )
        for name in ("len", "rates")
    ),
    *(
        placeholder(f"--spec-ngram-{name}-min-hits", kind=_HITS, default=1, status=_UNUSED)
        for name in ("simple", "map-k")
    ),
)

FLAGS: tuple[Flag, ...] = (
    *flags_of(Speculation, TITLE),
    SPEC_DEFAULT,
    *OTHER_FLAGS,
)
