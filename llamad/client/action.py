"""The type of a slot action, which the engine is asked to do: save, restore, erase, shift or read a slot.

Made and read on the event loop. Must not know HTTP or JSON.
"""

from __future__ import annotations

import msgspec

from llamad.client.events import Span
from llamad.protocol.blobs import Blob


class Action(msgspec.Struct, frozen=True):
    kind: int
    slot: int
    blob: Blob | None = None  # stays alive until the engine has answered
    nowait: bool = False
    owner: int = 0  # the same number as in RequestContext
    n_tokens: int = 0  # tokens of a state to restore
    n_bytes: int = 0  # bytes of a state to restore, at most the blob's size
    n_keep: int = 0
    n_discard: int = 0
    adapters: Span = (0, 0, 0)  # the adapter sets that computed a state to restore
