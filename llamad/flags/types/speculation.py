"""The kind of --spec-type: how tokens are drafted.

Runs at start-up on the main thread. Must not know any flag.
"""

from __future__ import annotations

from typing import ClassVar

from llamad.flags.types.kinds import Kind, Many

NONE = "none"
NGRAM_CACHE = "ngram-cache"
NGRAM_TYPES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", NGRAM_CACHE)
MODEL_TYPE = "draft-simple"
# Types that need heads in the served model, or a draft that reads its hidden states.
HEAD_TYPES = ("draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark")
# Older versions of llama-server named the types without "draft-".
_OLDER_NAMES = {"draft": MODEL_TYPE, **{name.removeprefix("draft-"): name for name in HEAD_TYPES}}


class SpecType(Kind[str], frozen=True):
    """One of llama-server's types of speculation."""

    metavar: ClassVar[str] = "TYPE"

    def read(self, text: str) -> str:
        name, known = _OLDER_NAMES.get(text, text), (NONE, *NGRAM_TYPES, MODEL_TYPE)
        if name in known:
            return name
        if name in HEAD_TYPES:
            raise ValueError(
                f"'{text}' needs heads in the model, which this version of llamad does not use yet; use"
                f" {', '.join(NGRAM_TYPES)}, or {MODEL_TYPE} with a draft model"
            )
        raise ValueError(f"'{text}' is not one of {', '.join(known)}")


class SpecTypes(Many[str], frozen=True):
    """A list of types; one that contains "none" is empty."""

    def read(self, text: str) -> tuple[str, ...]:
        types = super().read(text)
        return () if NONE in types else types
