"""Sends a job's response to its client, or writes it into a kept stream that its client and later ones read.

Runs on the event loop. Must not know what the response contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llamad.api.service.kept_streams import KeptStream
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.http.request import Response

Headers = Iterable[tuple[str, str]]


class ResponseWriter:
    __slots__ = ("_content_type", "_kept", "exchange")

    def __init__(self, exchange: Exchange, content_type: str = sse.CONTENT_TYPE) -> None:
        self.exchange = exchange
        self._content_type = content_type  # of a stream
        self._kept: KeptStream | None = None

    def keep(self, kept: KeptStream, headers: Headers) -> None:
        """Make the client the first reader of this stream. It may disconnect."""
        self._kept = kept
        kept.attach(self.exchange, 0, headers)

    @property
    def is_kept(self) -> bool:
        return self._kept is not None

    @property
    def closed(self) -> bool:
        """Whether nobody can receive what is written."""
        return self.exchange.closed if self._kept is None else self._kept.is_ended

    @property
    def begun(self) -> bool:
        return self.exchange.begun if self._kept is None else self._kept.n_total > 0

    def begin(self, headers: Callable[[], Headers], data: bytes) -> None:
        if self._kept is None:
            self.exchange.begin(200, self._content_type, headers(), data)
        else:
            self._kept.append(data)

    def write(self, data: bytes) -> None:
        if self._kept is None:
            self.exchange.write(data)
        else:
            self._kept.append(data)

    def end(self, data: bytes = b"") -> None:
        """Complete the stream; `data` is its last piece."""
        if self._kept is None:
            self.exchange.end(data)
        else:
            self._kept.append(data)
            self._kept.end()

    def fail(self, last: bytes, refusal: Response) -> None:
        """End with an error: with `last` if the stream has begun, else with `refusal`."""
        exchange, is_refused = self.exchange, not self.begun and not self.exchange.closed
        if is_refused:
            exchange.send(refusal)
        else:
            exchange.failure = refusal.reason
            self.end(last)
        if is_refused and self._kept is not None:
            self._kept.discard()

    def cut_off(self, refusal: Response) -> None:
        """End after an exception, when the data written so far may be incomplete."""
        self.exchange.fail(refusal)
        if self._kept is not None:
            self._kept.discard()
