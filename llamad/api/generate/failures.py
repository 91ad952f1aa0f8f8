"""The errors that clients get for tasks that failed in the engine.

Pure functions on the event loop. Must not know the format of the response.
"""

from __future__ import annotations

from llamad.api.request.errors import ApiError, engine_ended, too_long
from llamad.client.task import ENGINE_ABSENT
from llamad.protocol import messages


def failure_error(failure: int, code: int, n_ctx: int) -> ApiError:
    """Return the client's error for a failed task of a model with slots of n_ctx tokens."""
    if failure == messages.FAILURE_DEADLINE:
        return ApiError(408, "The request exceeded --request-timeout")
    if failure == messages.FAILURE_ABORTED:
        return ApiError(503, "The server is shutting down")
    if failure == messages.FAILURE_ENGINE:
        return engine_ended(was_running=code != ENGINE_ABSENT)
    if failure == messages.FAILURE_MEMORY:
        return ApiError(500, "The server is out of memory")
    if failure == messages.FAILURE_ROOM:
        return too_long(code, n_ctx)
    if failure == messages.FAILURE_LOST:
        return ApiError(
            503,
            "The engine no longer has an adapter, an image or a sound of this request; try again",
            headers=(("Retry-After", "1"),),
        )
    if failure == messages.FAILURE_GRAMMAR and code == messages.SAMPLED_STUCK:
        return ApiError(400, "No token of this model's vocabulary can continue the grammar")
    if failure == messages.FAILURE_GRAMMAR:
        return ApiError(400, "The grammar is too ambiguous: it exceeds the work allowed for one request")
    return ApiError(500, f"llama.cpp failed to decode (code {code}); try again")
