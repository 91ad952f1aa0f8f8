"""Finds out which model a request names: in its query, in its JSON body or in a field of its form.

Small bodies are read on the event loop, others in a thread, as body_reading.py does it. The endpoint reads the body
again; only a server with several models looks into it here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from llamad.api.request.body import Body
from llamad.api.request.errors import bad
from llamad.api.service.body_reading import BODY_INLINE_MAX, in_worker
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.multipart import FormError, boundary_of, is_form, parts
from llamad.http.request import Request

NAME_MAX = 1024


class _Named(msgspec.Struct):
    model: Any = None


_NAMED = Body(_Named)


def with_name(service: Service, exchange: Exchange, then: Callable[[str | None], None]) -> None:
    """Call `then` with the name of the model, or with None if the request names none. Raises ApiError."""
    request = exchange.request
    name = request.query.get("model")
    if name is not None or not request.body:
        then(name or None)
    elif len(request.body) <= BODY_INLINE_MAX:
        then(_read(request))
    else:
        in_worker(service, exchange, partial(_read, request), then)


def _read(request: Request) -> str | None:
    content_type = request.headers.get("content-type", "")
    if is_form(content_type):
        return _in_form(request.body, content_type)
    if content_type.startswith("application/octet-stream"):
        return None
    return _checked(_NAMED.decode(request.body).model)


def _checked(name: Any) -> str | None:
    if name is None or name == "":
        return None
    if not isinstance(name, str) or len(name) > NAME_MAX:
        raise bad(f'"model" must be a string of at most {NAME_MAX} characters')
    return name


def _in_form(body: bytes | memoryview, content_type: str) -> str | None:
    try:
        for part in parts(body, boundary_of(content_type)):
            if part.name == "model" and not part.is_file:
                return _checked(str(part.data[: NAME_MAX + 1], "utf-8", "replace"))
    except FormError as error:
        raise bad(f"The form cannot be read: {error}") from None
    return None
