"""The API's errors: an exception that knows its HTTP status and its JSON.

Raised anywhere in api/, turned into a Response in one place (app.py). Must not know the engine.
"""

from __future__ import annotations

import msgspec

from llamad.base.memory_budget import BudgetFull
from llamad.http.request import Response

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    416: "invalid_request_error",
    417: "invalid_request_error",
    421: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
    507: "insufficient_storage_error",
}

# The SDKs of OpenAI and Anthropic, and Claude Code, repeat a request after any 5xx unless this header tells them not
# to.
_NO_RETRY = (("X-Should-Retry", "false"),)


class ApiError(Exception):
    """An error for the client. `extra` joins code, message and type inside the error object; `headers` are added to the
    response. `reason` is written to the log instead of a message that quotes a prompt."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        extra: dict[str, object] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason or message
        self.type = type or _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.extra = extra or {}
        self.headers = headers + _NO_RETRY if status == 501 else headers

    def fields(self) -> dict[str, object]:
        return {"code": self.status, "message": self.message, "type": self.type, **self.extra}

    def body(self) -> dict[str, object]:
        return {"error": self.fields()}

    def response(self) -> Response:
        return Response(
            self.status, msgspec.json.encode(self.body()), headers=self.headers, reason=self.reason
        )


def bad(message: str) -> ApiError:
    """Return the error for a wrong request."""
    return ApiError(400, message)


def queue_full() -> ApiError:
    return ApiError(
        429,
        "The queue is full; try again in a moment or start llamad with a larger --queue-max.",
        headers=(("Retry-After", "1"),),
    )


def share_full(flag: str = "--queue-max") -> ApiError:
    return ApiError(
        429,
        "Too many of your requests are waiting: the rest of the queue is kept for other clients; try again in a moment"
        f" or start llamad with a larger {flag}.",
        headers=(("Retry-After", "1"),),
    )


def memory_full(bytes_max: int) -> ApiError:
    """Return the error for a request when all memory for requests is used, most of it by its client."""
    return ApiError(503, str(BudgetFull(bytes_max)), headers=(("Retry-After", "1"),))


def shutting_down() -> ApiError:
    return ApiError(503, "The server is shutting down", headers=(("Retry-After", "5"),))


def engine_ended(*, was_running: bool = False) -> ApiError:
    """Return the error for a request whose engine has ended; `was_running`: the engine worked on the request."""
    if was_running:
        return ApiError(
            500, "The model's engine ended while it worked on this request; it is being started again"
        )
    return ApiError(
        503, "The model's engine ended and is being started again; try again", headers=(("Retry-After", "2"),)
    )


SHORTEN = "shorten the prompt or start llamad with a larger -c"


class PromptTooLongError(ApiError):
    """The error for a prompt that fills its slot's context. Each dialect has its own words for it
    (service/error_dialects.py), because clients compact a conversation when they read them."""

    def __init__(self, n_prompt: int, n_ctx: int, of_them: str, more_than: str) -> None:
        super().__init__(
            400,
            # Clients search for words in the middle: llama-server's, and OpenAI's after them.
            f"The prompt of {more_than}{n_prompt} tokens{of_them} exceeds the available context size of {n_ctx} tokens."
            f" This model's maximum context length is {n_ctx} tokens: {SHORTEN}.",
            type="exceed_context_size_error",
            extra={"n_prompt_tokens": n_prompt, "n_ctx": n_ctx},
        )
        self.n_prompt, self.n_ctx = n_prompt, n_ctx


def too_long(n_prompt: int, n_ctx: int, n_system: int = 0, *, is_more: bool = False) -> PromptTooLongError:
    """Return the error for a prompt that fills its slot's context; `n_system` of its tokens belong to the server's
    system prompt. `is_more`: the tokens were not counted to the end."""
    of_them = f", {n_system} of them of the system prompt," if n_system else ""
    return PromptTooLongError(n_prompt, n_ctx, of_them, "more than " if is_more else "")
