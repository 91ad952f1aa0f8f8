"""Chooses the format of an error: Anthropic's under /v1/messages, and under /v1/models for Anthropic's client; OpenAI's
everywhere else.

Runs on the event loop. Every error that a dialect does not format itself goes through here.
"""

from __future__ import annotations

from llamad.api.request.errors import ApiError
from llamad.api.service import anthropic_errors as anthropic
from llamad.http.request import Request, Response

_MODELS = "/v1/models"  # OpenAI and Anthropic have the same path for it


def is_anthropic(request: Request) -> bool:
    """Whether the request is in Anthropic's dialect."""
    path = request.path
    if path == anthropic.PATH or path.startswith(anthropic.PATH + "/"):
        return True
    is_models = path == _MODELS or path.startswith(_MODELS + "/")
    return is_models and "anthropic-version" in request.headers


def worded(error: ApiError, request: Request | None) -> Response:
    """Return the error as a response. `request` is None if the error came before there was a request."""
    if request is not None and is_anthropic(request):
        return anthropic.response(error, request.request_id)
    return error.response()
