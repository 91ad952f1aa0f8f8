"""Passes the settings of a model to its engine: as values by name, without the tables of flags and options.

An engine needs only the values, and importing the tables would take a fifth of the time that all of its imports take.
Must import little.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

FRONT_ONLY = ("options", "given")  # the defaults of requests
PROPERTIES = ("wants_drafts", "wants_vectors")  # computed from other settings


def pack(settings: ModelSettings) -> bytes:
    """Return the settings as bytes for unpack()."""
    names = [name for name in settings.__struct_fields__ if name not in FRONT_ONLY]
    return pickle.dumps({name: getattr(settings, name) for name in (*names, *PROPERTIES)})


def unpack(data: bytes) -> ModelSettings:
    """Return an object that has the attributes of the settings, except FRONT_ONLY."""
    values = pickle.loads(data)
    kind = msgspec.defstruct("EngineSettings", list(values), frozen=True, kw_only=True)
    return cast("ModelSettings", kind(**values))
