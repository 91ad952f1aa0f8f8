"""Reads the requests of /v1/responses. A worker reads a request that is large or refers to large stored responses.

Runs on the event loop. responses_request.py turns a request into a chat.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from llamad.api.openai import recall
from llamad.api.openai.responses_request import Given, ResponseRequest, into_chat
from llamad.api.service.body_reading import BODY_INLINE_MAX, in_worker, with_body
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange


class ReadRequest(NamedTuple):
    request: ResponseRequest  # converted into a chat
    given: Given
    n_bytes: int  # the size of the body and of what it refers to


def with_request(
    served: ServedModel, exchange: Exchange, then: Callable[[ReadRequest], None], only_counts: bool = False
) -> None:
    """Call `then` with the request: now, or, if it or what it refers to is large, later unless the client has
    disconnected by then."""
    key, n_body = exchange.request.key_name, len(exchange.request.body)

    def decode(body: bytes | memoryview) -> tuple[ResponseRequest, int]:
        request = served.defaults.decode(ResponseRequest, body)
        if only_counts:
            request.store = False
        n_stored = recall.n_bytes(request.previous_response_id, request.input, served.service.responses, key)
        return request, n_body + n_stored

    def convert(request: ResponseRequest, n_bytes: int) -> ReadRequest:
        return ReadRequest(request, into_chat(request, served.service.responses, key), n_bytes)

    def converted(decoded: tuple[ResponseRequest, int]) -> None:
        if decoded[1] <= BODY_INLINE_MAX:
            then(convert(*decoded))
        else:
            in_worker(served.service, exchange, partial(convert, *decoded), then)

    if n_body <= BODY_INLINE_MAX:
        with_body(served.service, exchange, decode, converted)
    else:
        with_body(served.service, exchange, lambda body: convert(*decode(body)), then)
