"""The format of Anthropic's errors.

Pure functions on the event loop. The statuses are llamad's own; only the names of the types are Anthropic's.
"""

from __future__ import annotations

import msgspec

from llamad.api.request.errors import ApiError
from llamad.http.request import Response

PATH = "/v1/messages"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def body(error: ApiError, request_id: str) -> bytes:
    """Return the whole error object, for a response or for the last event of a stream."""
    fallback = "api_error" if error.status >= 500 and error.status != 501 else "invalid_request_error"
    kind = _TYPES.get(error.status, fallback)
    return msgspec.json.encode(
        {
            "type": "error",
            "error": {"type": kind, "message": error.message, **error.extra},
            "request_id": request_id,
        }
    )


def response(error: ApiError, request_id: str) -> Response:
    headers = (*error.headers, ("request-id", request_id))
    return Response(error.status, body(error, request_id), headers=headers, reason=error.reason)
