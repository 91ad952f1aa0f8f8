"""The kind of --spec-type: how text is drafted.

Runs at start-up on the main thread. Must not know any flag.
"""

from __future__ import annotations

from typing import ClassVar

from llamad.flags.types.kinds import Kind, Many

NONE = "none"
NGRAM_CACHE = "ngram-cache"
NGRAM_TYPES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", NGRAM_CACHE)
# Types that draft with a model, or with heads of the served one. Older versions of llama-server named them without
# "draft-".
MODEL_TYPES = ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")
_OLDER_NAMES = ("draft", *(name.removeprefix("draft-") for name in MODEL_TYPES[1:]))


class SpecType(Kind[str], frozen=True):
    """One of llama-server's types of speculation that need no model."""

    metavar: ClassVar[str] = "TYPE"

    def read(self, text: str) -> str:
        if text in (NONE, *NGRAM_TYPES):
            return text
        if text in MODEL_TYPES or text in _OLDER_NAMES:
            raise ValueError(
                f"'{text}' needs a draft model or heads in the model, which this version of llamad does not use yet;"
                f" use {', '.join(NGRAM_TYPES)}"
            )
        raise ValueError(f"'{text}' is not one of {', '.join((NONE, *NGRAM_TYPES))}")


class SpecTypes(Many[str], frozen=True):
    """A list of types; one that contains "none" is empty."""

    def read(self, text: str) -> tuple[str, ...]:
        types = super().read(text)
        return () if NONE in types else types
