"""GET /models/sse: what happens to models, as server-sent events.

Runs on the event loop. A client that does not read is cut off, and can connect again and read the whole list.
"""

from __future__ import annotations

import msgspec

from llamad.api.request.errors import ApiError
from llamad.api.service.many_models import ManyModels
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.models.fleet.model_events import EVENTS_MAX, READERS_MAX, ModelEvent

_encode = msgspec.json.Encoder().encode


class EventStream:
    """One client of the events. `service.streams` sends its pings."""

    def __init__(self, models: ManyModels, exchange: Exchange) -> None:
        self._models = models
        self._exchange = exchange
        self._unsent: list[bytes] = []  # events that wait until the client has read what was sent
        self._t_written = 0.0
        exchange.on_abort = self.close
        exchange.on_resume = self._resume
        models.events.add(self.tell)
        models.service.streams.add(self)
        exchange.begin(200, sse.CONTENT_TYPE, (("Cache-Control", "no-store"),), sse.PING)

    def tell(self, event: ModelEvent) -> None:
        if self._exchange.closed:
            self.close()
            return
        data = sse.format_event(_encode(event))
        if not self._exchange.paused:
            self._exchange.write(data)
        elif len(self._unsent) < EVENTS_MAX:
            self._unsent.append(data)
        else:
            self._end()

    def tick(self, now: float) -> None:
        """Keep a silent connection alive."""
        seconds = self._models.service.settings.ping_seconds
        if self._exchange.closed:
            self.close()
        elif self._models.service.is_draining:
            self._end()
        elif 0 < seconds <= now - self._t_written and not self._exchange.paused:
            self._t_written = now
            self._exchange.write(sse.PING)

    def _resume(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._exchange.closed:
            self._exchange.write(b"".join(unsent))

    def _end(self) -> None:
        self.close()
        self._exchange.end()

    def close(self) -> None:
        self._models.events.remove(self.tell)
        self._models.service.streams.discard(self)


def handle(models: ManyModels, exchange: Exchange) -> None:
    """GET /models/sse."""
    if models.events.is_full:
        raise ApiError(429, f"{READERS_MAX} clients read the events already, the maximum; close one of them")
    EventStream(models, exchange)
