"""The flags that limit connections and requests. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import Float, Int, Size
from llamad.flags.types.option_flags import option_flag

HTTP, REQUESTS = "HTTP limits", "Requests"


class HttpLimits:
    """Limits of connections, and of the size and time of requests."""

    connections_max: int = flag(
        kind=Int(1, 1_000_000),
        default=10_000,
        help="Maximum open connections. Beyond it, the address with the most idle connections loses the one that was"
        " idle longest; if none is idle: 503.",
    )
    address_connections_max: int = flag(
        kind=Int(0, 1_000_000),
        default=0,
        help="Maximum open connections of one address (an IPv6 /64 counts as one). Beyond it, the address loses the"
        " connection that was idle longest; if none is idle: 503. 0: no limit. A proxy is one address.",
    )
    header_max_bytes: int = flag(
        kind=Size(1024, 2**30),
        default=32 * 1024,
        help="Maximum size of request line and headers; beyond it: 431.",
    )
    body_max_bytes: int = flag(
        kind=Size(1024),
        default=16 * 1024 * 1024,
        help="Maximum size of a request body; beyond it: 413. Decoding one may delay everyone by about 2 ms per"
        " megabyte of text.",
    )
    bodies_max_bytes: int = flag(
        kind=Size(1024),
        default=1024 * 1024 * 1024,
        help="Maximum memory that requests hold, from the first byte of a body to the end of the answer: bodies,"
        " decoded values, prompts, grammars. Beyond it the client that holds most gets a 503. The largest allowed"
        " body always fits.",
    )
    header_timeout: float = flag(
        kind=Float(above=0.0),
        default=10.0,
        metavar="SECONDS",
        help="Maximum time from a request's first byte to the end of its headers.",
    )
    body_timeout: float = flag(
        kind=Float(low=0.0),
        default=0.0,
        metavar="SECONDS",
        help="Maximum time from the headers to the end of the body; 0: no limit, but --timeout ends bodies that stall.",
    )
    keepalive_timeout: float = flag(
        kind=Float(above=0.0),
        default=75.0,
        metavar="SECONDS",
        help="How long an idle connection stays open.",
    )
    stream_buffer_bytes: int = flag(
        kind=Size(4096, 2**30),
        default=256 * 1024,
        help="Unsent bytes of a response before back-pressure pauses its slot.",
    )
    stall_seconds: float = flag(
        kind=Float(low=0.0),
        default=30.0,
        metavar="SECONDS",
        help="How long a client may stall its stream while others wait for a slot; 0: no limit.",
    )


class RequestLimits:
    """Limits of the values in a request, and of its whole time."""

    n_predict_max: int = flag(
        kind=Int(low=0),
        default=0,
        help="Cap on the tokens that a request may generate; 0: none.",
    )
    prompts_max: int = flag(
        kind=Int(low=1),
        default=128,
        help="Maximum prompts per request.",
    )
    inputs_max: int = flag(
        kind=Int(low=1),
        default=2048,
        help="Maximum texts to embed, rerank or classify per request.",
    )
    stop_max: int = flag(
        kind=Int(low=0),
        default=64,
        help="Maximum stop strings per request.",
    )
    n_max: int = flag(
        kind=Int(low=1, high=1024),
        default=8,
        help="Maximum completions per prompt (n).",
    )
    n_probs_max: int = flag(
        kind=Int(low=0, high=1024),
        default=100,
        help="Maximum top tokens reported per generated token (n_probs).",
    )
    answer_max_bytes: int = flag(
        kind=Size(1024),
        default=64 * 1024 * 1024,
        help="Maximum size of a response that is not streamed; beyond it generation stops (stop type limit), and the"
        " text of POST /tokenize is refused.",
    )
    engine_stall_seconds: float = flag(
        kind=Float(low=0.0),
        default=0.0,
        metavar="SECONDS",
        help="How long the engine may have work and finish no step before it is restarted; 0: by the steps seen, at"
        " least 120 s.",
    )
    resume_after_crash: int = flag(
        kind=Int(0, 1_000_000),
        default=1,
        help="How often a request goes on in the next engine after the engine that ran it ended unexpectedly; then, or"
        " with 0, it fails.",
    )
    request_timeout: float = flag(
        kind=Float(low=0.0),
        default=0.0,
        metavar="SECONDS",
        help="Time limit for a whole request, queueing included; 0: none.",
    )


HTTP_FLAGS = flags_of(HttpLimits, HTTP, reload=True)
REQUEST_FLAGS = (
    option_flag("n_predict", REQUESTS, "The default for requests."),
    *flags_of(RequestLimits, REQUESTS, reload=True),
)
