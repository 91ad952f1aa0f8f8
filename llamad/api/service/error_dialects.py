"""Chooses the format of an error by path: Anthropic's under /v1/messages, OpenAI's everywhere else.

Runs on the event loop. Every error that is not formatted by a dialect goes through here.
"""

from __future__ import annotations

from llamad.api.request.errors import ApiError
from llamad.api.service import anthropic_errors as anthropic
from llamad.http.request import Request, Response


def worded(error: ApiError, request: Request | None) -> Response:
    """`request` is None if the error came before there was one."""
    if request is not None and (
        request.path == anthropic.PATH or request.path.startswith(anthropic.PATH + "/")
    ):
        return anthropic.response(error, request.request_id)
    return error.response()
