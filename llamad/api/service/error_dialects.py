"""The format of an error: Anthropic's under /v1/messages, and under /v1/models for Anthropic's client; Ollama's under
/api; OpenAI's for all other requests. A prompt that is too long is said in the words that each dialect's clients know.

Pure functions on the event loop. Every error that a dialect does not format itself goes through worded(). The statuses
are llamad's own; only the names of the types are Anthropic's.
"""

from __future__ import annotations

import msgspec

from llamad.api.request.errors import SHORTEN, ApiError, PromptTooLongError
from llamad.http.request import Request, Response

_MESSAGES = "/v1/messages"
_OLLAMA = "/api/"
_RESPONSES = ("/v1/responses", "/responses")
_MODELS = "/v1/models"  # OpenAI and Anthropic have the same path for it
CONTEXT_LENGTH = "context_length_exceeded"  # by this code Codex knows that a prompt is too long
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def is_anthropic(request: Request) -> bool:
    """Return whether the request is in Anthropic's dialect."""
    path = request.path
    if path == _MESSAGES or path.startswith(_MESSAGES + "/"):
        return True
    is_models = path == _MODELS or path.startswith(_MODELS + "/")
    return is_models and "anthropic-version" in request.headers


def worded(error: ApiError, request: Request | None) -> Response:
    """Return the error as a response. `request` is None if the error came before there was a request."""
    if request is not None and is_anthropic(request):
        return anthropic_response(error, request.request_id)
    if request is not None and request.path.startswith(_OLLAMA):
        return ollama_response(error)
    if request is not None and request.path in _RESPONSES:
        return responses_response(error)
    return error.response()


def responses_body(error: ApiError) -> dict[str, object]:
    """Return the error object of OpenAI's responses, for a response or for the last event of a stream."""
    code = {"code": CONTEXT_LENGTH} if isinstance(error, PromptTooLongError) else {}
    return {"error": {**error.fields(), **code}}


def responses_response(error: ApiError) -> Response:
    body = msgspec.json.encode(responses_body(error))
    return Response(error.status, body, headers=error.headers, reason=error.reason)


def ollama_body(error: ApiError) -> bytes:
    """Return the whole error object, for a response or for the last line of a stream."""
    message = error.message
    if isinstance(error, PromptTooLongError):
        n_more = max(1, error.n_prompt - error.n_ctx)
        message = f"prompt too long; exceeded max context length by {n_more} tokens. {message}"
    return msgspec.json.encode({"error": message})


def ollama_response(error: ApiError) -> Response:
    return Response(error.status, ollama_body(error), headers=error.headers, reason=error.reason)


def anthropic_body(error: ApiError, request_id: str) -> bytes:
    """Return the whole error object, for a response or for the last event of a stream."""
    fallback = "api_error" if error.status >= 500 and error.status != 501 else "invalid_request_error"
    kind = _ANTHROPIC_TYPES.get(error.status, fallback)
    message = error.message
    if isinstance(error, PromptTooLongError):
        # A prompt as long as the context has no room for an answer.
        n_max = min(error.n_ctx, error.n_prompt - 1)
        message = f"prompt is too long: {error.n_prompt} tokens > {n_max} maximum; {SHORTEN}"
    details = {"type": kind, "message": message, **error.extra}
    return msgspec.json.encode({"type": "error", "error": details, "request_id": request_id})


def anthropic_response(error: ApiError, request_id: str) -> Response:
    headers = (*error.headers, ("request-id", request_id))
    return Response(error.status, anthropic_body(error, request_id), headers=headers, reason=error.reason)
