"""The response format of an endpoint, as job.py uses it; what most formats share is the default here. Must not know how
a request is run."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from llamad.api.generate.stream_event import TextFrame, write_event
from llamad.api.request.errors import ApiError
from llamad.client.text_event import TextEvent
from llamad.http import sse
from llamad.http.request import Response

J = TypeVar("J", contravariant=True)  # a job
P = TypeVar("P", contravariant=True)  # one of its parts


class Dialect(Protocol[J, P]):
    """Formats one response."""

    # Whether tokens without text are held back (held_tokens.py) until the next text or done(). Not if a parser decides
    # what an event is.
    holds: bool = False
    # The content type of a stream. Only streams of server-sent events can be resumed.
    content_type: str = sse.CONTENT_TYPE

    def begin(self, job: J) -> bytes:
        """Return the events before the first text of a stream."""
        return b""

    def frame(self, part: P) -> TextFrame | None:
        """Return the bytes around a text if the events of this stream contain nothing else, or else None, as where only
        a parser knows what is content. With a frame, piece() is called only for texts with probabilities."""
        return None

    def piece(self, part: P, piece: TextEvent) -> bytes:
        """Return the events for a piece of a stream; they may be empty."""

    def progress(self, part: P, fields: dict[str, Any]) -> bytes:
        """Return the events for a prompt that is being prefilled, with `return_progress`. The fields are
        `prompt_progress` and, if the request asks for it, `timings`."""

    def ping(self, job: J) -> bytes:
        """Return what keeps the connection of a silent stream alive and means nothing."""
        return sse.PING

    def done(self, part: P) -> bytes:
        """Return the events at the end of one part, with the tokens of it that are held back."""

    def end(self, job: J) -> bytes:
        """Return the events at the end of the stream."""
        return sse.DONE

    def whole(self, job: J) -> bytes:
        """Return the body of a response that is not streamed; every part is done and has its pieces."""

    def failed(self, error: ApiError) -> bytes:
        """Return the last event of a stream that failed."""
        return write_event(error.body())

    def refused(self, error: ApiError) -> Response:
        """Return the error response."""
        return error.response()
