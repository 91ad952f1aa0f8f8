"""The names of the samplers: current names, other spellings, letters, and the default order.

Pure data, read from any thread. Must not know how a sampler works.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SAMPLERS_MAX = 32
# llama.cpp searches the whole vocabulary for every breaker when a DRY sampler is made, and uses 40 bytes of each.
BREAKERS_MAX = 64
BREAKER_BYTES_MAX = 1024

LETTERS: Mapping[str, str] = MappingProxyType(
    {
        "e": "penalties",
        "d": "dry",
        "s": "top_n_sigma",
        "k": "top_k",
        "f": "tfs_z",
        "y": "typ_p",
        "p": "top_p",
        "m": "min_p",
        "x": "xtc",
        "t": "temperature",
        "i": "infill",
        "a": "adaptive_p",
    }
)

# Penalties that are not neutral come first even if they are not listed.
_NOT_BY_DEFAULT = ("penalties", "infill", "adaptive_p")
DEFAULT_ORDER: tuple[str, ...] = tuple(name for name in LETTERS.values() if name not in _NOT_BY_DEFAULT)

_OTHER_SPELLINGS = {
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
    "temp": "temperature",
    "nucleus": "top_p",
    "tfs": "tfs_z",
    "top_nsigma": "top_n_sigma",
}


def _spellings() -> dict[str, str]:
    names = {name: name for name in LETTERS.values()} | _OTHER_SPELLINGS
    for spelling, name in list(names.items()):
        names.setdefault(spelling.replace("_", ""), name)
    return names


_NAMES: Mapping[str, str] = MappingProxyType(_spellings())


def present_name(text: str) -> str | None:
    """Return the sampler's current name for any known spelling (case, "-" and "_" do not matter), else None."""
    return _NAMES.get(text.lower().replace("-", "_"))
