"""The framing of server-sent events. Pure functions; they know nothing of a stream's state."""

from __future__ import annotations

CONTENT_TYPE = "text/event-stream"
# A comment line: clients ignore it, and it keeps the connection alive through proxies.
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


def format_event(data: bytes, event: bytes = b"") -> bytes:
    """Format one event. Data with newlines becomes several data lines, which the client joins again."""
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
    if event:
        return b"event: " + event + b"\ndata: " + data + b"\n\n"
    return b"data: " + data + b"\n\n"
