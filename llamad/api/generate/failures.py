"""The errors that clients get for tasks that failed in the engine.

Pure functions on the event loop. Must not know the format of the response.
"""

from __future__ import annotations

from llamad.api.request.errors import ApiError, engine_ended, too_long
from llamad.client.task import ENGINE_ABSENT
from llamad.protocol.messages import (
    FAILURE_ABORTED,
    FAILURE_DEADLINE,
    FAILURE_ENGINE,
    FAILURE_GRAMMAR,
    FAILURE_LOST,
    FAILURE_MEMORY,
    FAILURE_ROOM,
    SAMPLED_STUCK,
)


def failure_error(failure: int, code: int, n_ctx: int) -> ApiError:
    """Return the client's error for a failed task of a model with slots of n_ctx tokens."""
    if failure == FAILURE_DEADLINE:
        return ApiError(408, "The request exceeded --request-timeout")
    if failure == FAILURE_ABORTED:
        return ApiError(503, "The server is shutting down")
    if failure == FAILURE_ENGINE:
        return engine_ended(was_running=code != ENGINE_ABSENT)
    if failure == FAILURE_MEMORY:
        return ApiError(500, "The server is out of memory")
    if failure == FAILURE_ROOM:
        return too_long(code, n_ctx)
    if failure == FAILURE_LOST:
        return ApiError(
            503,
            "The engine no longer has an adapter, an image or a sound of this request; try again",
            headers=(("Retry-After", "1"),),
        )
    if failure == FAILURE_GRAMMAR and code == SAMPLED_STUCK:
        return ApiError(400, "No token of this model's vocabulary can continue the grammar")
    if failure == FAILURE_GRAMMAR:
        return ApiError(400, "The grammar is too ambiguous: it exceeds the work allowed for one request")
    return ApiError(500, f"llama.cpp failed to decode (code {code}); try again")
