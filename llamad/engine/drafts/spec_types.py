"""How llama-server's n-gram types of speculation are expressed as rules of the drafters.

llama-server has one search for each type. llamad has one match finder, which takes the longest match instead of the
most recent one of a fixed length, and continues a repetition beyond the text's end. What is left of a type is how long
a match must be, how long a draft is, and who decides if a match continues in several ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

PLACES_MAX = 16
CACHE_DRAFT_MAX = 8


class DraftRules(NamedTuple):
    """The fields of the struct in ext/llamad/engine/drafts/draft_rules.pxd, in its order."""

    n_match_min: int
    n_draft_min: int
    n_draft_max: int
    n_per_match: int = 0
    n_places_min: int = 1
    n_places_max: int = 1
    percent_min: int = 0


def ngram_simple(size_n: int = 12, size_m: int = 48) -> DraftRules:
    """Return the rules of ngram-simple: the most recent of the longest matches."""
    return DraftRules(size_n, 1, size_m)


def ngram_map_k(size_n: int = 12, size_m: int = 48) -> DraftRules:
    """Return the rules of ngram-map-k. Its limit to what was accepted the last time is left to the engine's widths,
    because a key whose draft was once wrong would never be used again."""
    return DraftRules(size_n, 1, size_m)


def ngram_map_k4v(size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> DraftRules:
    """Return the rules of ngram-map-k4v: two thirds of the places must agree. (66 % are at least two thirds of any
    number up to PLACES_MAX.)"""
    return DraftRules(size_n, 1, size_m, 0, min(min_hits, PLACES_MAX), PLACES_MAX, 66)


def ngram_mod(n_match: int = 24, n_min: int = 48, n_max: int = 64) -> DraftRules:
    """Return the rules of ngram-mod, which also takes earlier answers. (llama-server's pool mixes all clients.)"""
    return DraftRules(n_match, n_min, n_max)


def ngram_cache() -> DraftRules:
    """Return the rules of ngram-cache for a slot's own text. Its files have thresholds of their own
    (ext/llamad/engine/drafts/ngram_draft.pyx)."""
    return DraftRules(2, 1, CACHE_DRAFT_MAX, 0, 1, PLACES_MAX, 50)


def automatic(n_max: int = 64) -> DraftRules:
    """Return the rules of llamad's own drafts from text: any match, as far as half of the places agree. After a short
    match a draft is as long as after a long one, because the engine knows better how far it will be right."""
    return DraftRules(2, 1, n_max, 0, 1, PLACES_MAX, 50)


AUTO = "auto"
NGRAM_CACHE = "ngram-cache"
DRAFT_MODEL = "draft-simple"  # a draft model has no rules for text
# Their pool of llama-server outlives a request, so llamad uses earlier answers.
WITH_ANSWERS = frozenset([AUTO, "ngram-mod"])


def rules_of(settings: ModelSettings) -> dict[str, DraftRules]:
    """Return the rules that the settings name, in the order in which they are tried, which is llama-server's."""
    types = {
        "ngram-simple": ngram_simple(settings.spec_ngram_simple_size_n, settings.spec_ngram_simple_size_m),
        "ngram-map-k": ngram_map_k(settings.spec_ngram_map_k_size_n, settings.spec_ngram_map_k_size_m),
        "ngram-map-k4v": ngram_map_k4v(
            settings.spec_ngram_map_k4v_size_n,
            settings.spec_ngram_map_k4v_size_m,
            settings.spec_ngram_map_k4v_min_hits,
        ),
        "ngram-mod": ngram_mod(
            settings.spec_ngram_mod_n_match, settings.spec_ngram_mod_n_min, settings.spec_ngram_mod_n_max
        ),
        NGRAM_CACHE: ngram_cache(),
    }
    rules = {name: one for name, one in types.items() if name in settings.spec_types}
    return rules | ({AUTO: automatic()} if settings.spec == "auto" else {})
