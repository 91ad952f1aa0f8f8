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

    holds: bool  # whether tokens without text are held back (held_tokens.py) until the next text or done()

    def begin(self, job: J) -> bytes:
        """Return the events before the first text of a stream."""

    def frame(self, part: P) -> TextFrame | None:
        """Return the bytes around a text if the events of this stream contain nothing else, or else None. With a frame,
        piece() is called only for texts with probabilities."""

    def piece(self, part: P, piece: TextEvent) -> bytes:
        """Return the events for a piece of a stream; they may be empty."""

    def progress(self, part: P, progress: dict[str, Any]) -> bytes:
        """Return the events for a prompt that is being prefilled, with `return_progress`."""

    def done(self, part: P) -> bytes:
        """Return the events at the end of one part, with the tokens of it that are held back."""

    def end(self, job: J) -> bytes:
        """Return the events at the end of the stream."""

    def whole(self, job: J) -> bytes:
        """Return the body of a response that is not streamed; every part is done and has its pieces."""

    def failed(self, error: ApiError) -> bytes:
        """Return the last event of a stream that failed."""

    def refused(self, error: ApiError) -> Response:
        """Return the error response."""
