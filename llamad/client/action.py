"""Owns the type of a slot action: what the engine is asked to do.

Made and read on the event loop. Must not know HTTP or JSON.
"""

from __future__ import annotations

import msgspec

from llamad.client.events import Span
from llamad.protocol.blobs import Blob


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
