"""Reads request bodies: small ones at once on the event loop, others in threads of their own.

The decoder holds the GIL, so a thread alone would not keep the event loop going; body.py limits how long it takes. The
Python code that runs after it gives way every few milliseconds. Must not know what a body holds.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from llamad.api.request.errors import ApiError
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.base import json_shape
from llamad.http.exchange import Exchange

T = TypeVar("T")
G = TypeVar("G", bound=GenerationRequest)

# The largest body in bytes that is read on the event loop; it takes at most two milliseconds.
BODY_INLINE_MAX = 16384
# The most bytes of memory that one byte of JSON can take: it is reached by objects with one short key.
DECODED_MAX = 32


def with_body(
    service: Service,
    exchange: Exchange,
    read: Callable[[bytes | memoryview], T],
    then: Callable[[T], None],
    measure: Callable[[bytes | memoryview], int] = json_shape.decoded_bytes,
) -> None:
    """Call `then` with what `read` returns for the body. For a large body this happens later, unless the client has
    disconnected by then. `then` runs on the event loop; both may raise ApiError. `measure` returns the most memory that
    reading a large body takes; it may run in any thread."""
    body = exchange.request.body
    if len(body) <= BODY_INLINE_MAX:
        decoded = read(body)
        exchange.drop_body()
        exchange.count_decoded(len(body) * DECODED_MAX)
        then(decoded)
    else:
        service.spawn(exchange, _read_later(service, exchange, read, then, measure))


def with_options(
    served: ServedModel,
    exchange: Exchange,
    kind: type[G],
    then: Callable[[G], None],
    *,
    needs_engine: bool = True,
) -> None:
    """Call `then` with the body, decoded as a request of this kind, as with_body() does. Raises ApiError if the
    model is not ready, or without `needs_engine` if it was never loaded."""
    if needs_engine:
        served.ready()
    else:
        served.described_text()
    with_body(served.service, exchange, partial(served.defaults.decode, kind), then)


def in_worker(service: Service, exchange: Exchange, work: Callable[[], T], then: Callable[[T], None]) -> None:
    """Call `then` with what `work` returns in a worker, unless the client has disconnected by then."""
    service.spawn(exchange, _work_later(service, exchange, work, then))


async def _work_later(
    service: Service, exchange: Exchange, work: Callable[[], T], then: Callable[[T], None]
) -> None:
    decoded = await service.json_workers.run(service.client(exchange.request), partial(_without_gc, work))
    if not exchange.closed:
        then(decoded)


async def _read_later(
    service: Service,
    exchange: Exchange,
    read: Callable[[bytes | memoryview], T],
    then: Callable[[T], None],
    measure: Callable[[bytes | memoryview], int],
) -> None:
    request, claim, client = exchange.request, exchange.claim, service.client(exchange.request)
    n_decoded = await service.json_workers.run(client, partial(measure, request.body), claim)
    exchange.count_decoded(n_decoded)
    decoded = await service.json_workers.run(client, partial(_without_gc, partial(read, request.body)), claim)
    exchange.drop_body()
    if not exchange.closed:
        then(decoded)


def _without_gc(work: Callable[[], T]) -> T:
    """Run `work` without garbage collection, which would find nothing in a body and take longer than the reading. If
    `work` refuses the body, free here what the frames of the traceback hold, because that takes too long on the event
    loop."""
    gc.disable()
    try:
        return work()
    except ApiError as error:
        error.__context__ = None
        raise error.with_traceback(None) from None
    finally:
        gc.enable()
