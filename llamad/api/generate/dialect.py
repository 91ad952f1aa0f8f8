"""The response format of an endpoint, as job.py uses it. Must not know how a request is run."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from llamad.api.generate.stream_event import TextFrame
from llamad.api.request.errors import ApiError
from llamad.client.text_event import TextEvent
from llamad.http.request import Response

J = TypeVar("J", contravariant=True)  # a job
P = TypeVar("P", contravariant=True)  # one of its parts


class Dialect(Protocol[J, P]):
    """Formats one response."""

    holds: bool  # whether tokens without text are held back (held_tokens.py), for the next text or done()

    def begin(self, job: J) -> bytes:
        """Events before the first text of a stream."""

    def frame(self, part: P) -> TextFrame | None:
        """The bytes around a text, if this stream's events carry nothing else; piece() is then called only for texts
        with probabilities."""

    def piece(self, part: P, piece: TextEvent) -> bytes:
        """Events for a piece of a stream; may be empty."""

    def progress(self, part: P, progress: dict[str, Any]) -> bytes:
        """Events for a prompt that is being prefilled, with `return_progress`."""

    def done(self, part: P) -> bytes:
        """Events at the end of one part, with what is held of it."""

    def end(self, job: J) -> bytes:
        """Events at the end of the stream."""

    def whole(self, job: J) -> bytes:
        """The body of a response that is not streamed; every part is done and has its pieces."""

    def failed(self, error: ApiError) -> bytes:
        """The last event of a stream that failed."""

    def refused(self, error: ApiError) -> Response:
        """The error response."""
