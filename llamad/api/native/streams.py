"""The endpoints of resumable streams: read on, look up, stop.

Runs on the event loop. api/generate/job.py writes the streams, and api/service/kept_streams.py keeps them. A key cannot
see the streams of another key.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.body_reading import with_body
from llamad.api.service.kept_streams import KeptStream
from llamad.api.service.service import Service
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response

OFFSET_DIGITS_MAX = 18
PARTS_MAX = 4
IDS_MAX = 10_000
# Each event is written to all readers of a stream in one turn of the event loop.
READERS_MAX = 64

_encode = msgspec.json.Encoder().encode


class LookupRequest(msgspec.Struct):
    conversation_ids: Annotated[list[Any], Meta(description="an array of strings")] = msgspec.field(
        default_factory=list
    )


_LOOKUP = Body(LookupRequest)


def read_on(service: Service, exchange: Exchange) -> None:
    """GET /v1/stream?conv_id=&from=: send the bytes of the stream from this offset on, and what follows."""
    request = exchange.request
    offset = _offset(request.query.get("from", ""))
    stream = service.kept_streams.find(request.key_name, _conversation(request))
    if stream is None:
        raise ApiError(404, "Stream not found or expired")
    if offset < stream.n_dropped:
        raise bad(f"Stream offset lost, please restart: the first {stream.n_dropped} bytes are gone")
    if request.method == "HEAD":
        exchange.send(Response(200, content_type=sse.CONTENT_TYPE))
        return
    if len(stream.readers) >= READERS_MAX:
        raise ApiError(429, f"The stream has {READERS_MAX} readers, the maximum; close one of them")
    reader = stream.attach(exchange, offset)
    reader.begin()
    reader.send()


def look_up(service: Service, exchange: Exchange) -> None:
    """POST /v1/streams/lookup: list which of these conversations have a stream. There is no list of all."""
    with_body(service, exchange, _asked, partial(_look_up, service, exchange))


def _asked(body: bytes | memoryview) -> dict[str, int]:
    """Return the ids and the position of each. Runs in a worker if they are many."""
    ids = _LOOKUP.decode(body).conversation_ids
    if len(ids) > IDS_MAX:
        raise bad(f'"conversation_ids" may have at most {IDS_MAX} entries, not {len(ids)}')
    named = dict.fromkeys(id for id in ids if isinstance(id, str) and id)
    return {id: i for i, id in enumerate(named)}


def _look_up(service: Service, exchange: Exchange, asked: dict[str, int]) -> None:
    """Send the streams of these ids. The time depends on the number of streams, not on the number of ids."""
    matches: list[tuple[int, KeptStream]] = []
    for stream in service.kept_streams.of_key(exchange.request.key_name):
        parts = stream.id.split("::", PARTS_MAX)
        for n in range(1, len(parts) + 1):  # an id may end in "::" and the name of a model
            place = asked.get("::".join(parts[:n]))
            if place is not None:
                matches.append((place, stream))
    matches.sort(key=itemgetter(0))
    exchange.send(Response(200, _encode([_stream_json(stream) for _, stream in matches])))


def _stream_json(stream: KeptStream) -> dict[str, Any]:
    return {
        "conversation_id": stream.id,
        "is_done": stream.is_ended,
        "total_bytes": stream.n_total,
        "started_at": stream.started_at,
        "completed_at": stream.completed_at,
    }


def stop(service: Service, exchange: Exchange) -> None:
    """DELETE /v1/stream?conv_id=: stop the generation and drop the stream, if there is one."""
    service.kept_streams.drop(exchange.request.key_name, _conversation(exchange.request))
    exchange.send(Response(204, content_type=""))


def _conversation(request: Request) -> str:
    id = request.query.get("conv_id", "")
    if not id:
        raise bad('"conv_id" is missing in the query')
    return id


def _offset(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > OFFSET_DIGITS_MAX:
        raise bad('"from" must be an offset in bytes')
    return int(text)
