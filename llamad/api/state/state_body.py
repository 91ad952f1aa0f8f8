"""Decides about the body of a state before it arrives: whether it is allowed, its maximum size, its buffer.

Runs on the event loop when the request's head is complete. Must not read the body.
"""

from __future__ import annotations

from llamad.api.request.errors import ApiError
from llamad.api.service.model_table import ModelTable
from llamad.api.state import slots
from llamad.api.state.action import need_layout, take_room
from llamad.http.request import Request
from llamad.http.router import SMALL_BODY
from llamad.protocol.blobs import Blob

# What a JSON body may contain besides the state, in bytes.
JSON_SPARE = 64 * 1024


class StateIntake:
    """The intake of POST /slots/{id_slot}."""

    def __init__(self, models: ModelTable) -> None:
        self._models = models

    def check(self, request: Request) -> None:
        """Reject a request whose head is wrong, before the client sends gigabytes."""
        if self._models.is_router and request.query.get("action") != slots.RESTORE_STATE:
            return  # its small body may name the model
        served = self._models.of(request)
        action, _ = slots.judge(served, request)
        if action == slots.RESTORE_STATE:
            need_layout(served.described_states())

    def limit(self, request: Request) -> int:
        if request.query.get("action") != slots.RESTORE_STATE:
            return min(SMALL_BODY, self._models.service.settings.body_max_bytes)
        n_bytes = self._models.of(request).described_states().bytes_max
        return n_bytes if slots.is_raw(request) else (n_bytes + 2) // 3 * 4 + JSON_SPARE

    def buffer(self, request: Request, length: int) -> memoryview | None:
        if request.query.get("action") != slots.RESTORE_STATE:
            return None
        # The state in a JSON body becomes a separate blob of three quarters of its size.
        n_bytes = length if slots.is_raw(request) else length + length * 3 // 4
        held = take_room(self._models.of(request), request, n_bytes)
        try:
            blob = Blob(length, self._models.of(request).described_states().arena)
        except MemoryError:
            raise ApiError(507, "Not enough memory for this state") from None
        blob.size = length
        held.blob = blob
        return memoryview(blob)
