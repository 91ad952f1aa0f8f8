"""Owns the types of slot actions: the request to the engine, and its result.

Made and read on the event loop. Must not know HTTP or JSON.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from llamad.protocol.blobs import Blob

# The adapter sets that computed a sequence, as in ext/llamad/protocol/adapter_span.pxd: set, base, n_base.
Span: TypeAlias = tuple[int, int, int]


class Action(msgspec.Struct, frozen=True):
    kind: int
    slot: int
    blob: Blob | None = None  # kept alive until the engine has answered
    nowait: bool = False
    owner: int = 0  # as in RequestContext
    n_tokens: int = 0  # of a state to restore
    n_bytes: int = 0  # likewise: at most as many as the blob has, which is only read
    n_keep: int = 0
    n_discard: int = 0
    adapters: Span = (0, 0, 0)  # of a state to restore


class Acted(msgspec.Struct, frozen=True):
    """In the order of the engine's event."""

    result: int
    n_tokens: int  # in the slot, or erased
    n_bytes: int
    stall_us: int  # how long the engine did nothing else
    n_processed: int
    adapters: Span = (0, 0, 0)  # that computed what was saved
