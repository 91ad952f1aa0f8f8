"""Owns the flags that limit connections and requests. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import Float, Int, Switch
from llamad.flags.types.option_flags import option_flag
from llamad.flags.types.special import Size

http = partial(Flag, group="HTTP limits")
request = partial(Flag, group="Requests")

HTTP_FLAGS: tuple[Flag, ...] = (
    http(
        names=("--connections-max",),
        env=("LLAMA_ARG_CONNECTIONS_MAX",),
        dest="connections_max",
        reload=True,
        kind=Int(1, 1_000_000),
        default=10_000,
        help="Open connections. Beyond it the address with most idle ones loses its longest idle; without any: 503.",
    ),
    http(
        names=("--address-connections-max",),
        env=("LLAMA_ARG_ADDRESS_CONNECTIONS_MAX",),
        dest="address_connections_max",
        reload=True,
        kind=Int(0, 1_000_000),
        default=0,
        help="Open connections of one address (an IPv6 /64 counts as one), handled likewise; 0: no limit of its own."
        " A proxy is one address.",
    ),
    http(
        names=("--header-max-bytes",),
        env=("LLAMA_ARG_HEADER_MAX_BYTES",),
        dest="header_max_bytes",
        reload=True,
        kind=Size(1024, 2**30),
        default=32 * 1024,
        help="Maximum size of request line and headers; beyond it: 431.",
    ),
    http(
        names=("--body-max-bytes",),
        env=("LLAMA_ARG_BODY_MAX_BYTES",),
        dest="body_max_bytes",
        reload=True,
        kind=Size(1024),
        default=16 * 1024 * 1024,
        help="Maximum size of a request body; beyond it: 413. Decoding one may delay everyone by about 2 ms per"
        " megabyte of text.",
    ),
    http(
        names=("--bodies-max-bytes",),
        env=("LLAMA_ARG_BODIES_MAX_BYTES",),
        dest="bodies_max_bytes",
        reload=True,
        kind=Size(1024),
        default=1024 * 1024 * 1024,
        help="Maximum memory that requests hold, from the first byte of a body to the end of the answer: bodies,"
        " decoded values, prompts, grammars. Beyond it the client that holds most gets a 503. The largest allowed"
        " body always fits.",
    ),
    http(
        names=("--header-timeout",),
        env=("LLAMA_ARG_HEADER_TIMEOUT",),
        dest="header_timeout",
        reload=True,
        kind=Float(above=0.0),
        default=10.0,
        metavar="SECONDS",
        help="Maximum time from a request's first byte to the end of its headers.",
    ),
    http(
        names=("--body-timeout",),
        env=("LLAMA_ARG_BODY_TIMEOUT",),
        dest="body_timeout",
        reload=True,
        kind=Float(low=0.0),
        default=0.0,
        metavar="SECONDS",
        help="Maximum time from the headers to the end of the body, however steadily it comes; 0: none, --timeout"
        " ends bodies that stall.",
    ),
    http(
        names=("--keepalive-timeout",),
        env=("LLAMA_ARG_KEEPALIVE_TIMEOUT",),
        dest="keepalive_timeout",
        reload=True,
        kind=Float(above=0.0),
        default=75.0,
        metavar="SECONDS",
        help="How long an idle connection stays open.",
    ),
    http(
        names=("--stream-buffer-bytes",),
        env=("LLAMA_ARG_STREAM_BUFFER_BYTES",),
        dest="stream_buffer_bytes",
        reload=True,
        kind=Size(4096, 2**30),
        default=256 * 1024,
        help="Unsent bytes of a response before back-pressure pauses its slot.",
    ),
)

REQUEST_FLAGS: tuple[Flag, ...] = (
    option_flag("n_predict", "Requests", "The default for requests."),
    request(
        names=("--n-predict-max",),
        env=("LLAMA_ARG_N_PREDICT_MAX",),
        dest="n_predict_max",
        reload=True,
        kind=Int(low=0),
        default=0,
        help="Cap on the tokens that a request may generate; 0: none.",
    ),
    request(
        names=("--prompts-max",),
        env=("LLAMA_ARG_PROMPTS_MAX",),
        dest="prompts_max",
        reload=True,
        kind=Int(low=1),
        default=128,
        help="Maximum prompts per request.",
    ),
    request(
        names=("--inputs-max",),
        env=("LLAMA_ARG_INPUTS_MAX",),
        dest="inputs_max",
        reload=True,
        kind=Int(low=1),
        default=2048,
        help="Maximum texts to embed, rerank or classify per request.",
    ),
    request(
        names=("--stop-max",),
        env=("LLAMA_ARG_STOP_MAX",),
        dest="stop_max",
        reload=True,
        kind=Int(low=0),
        default=64,
        help="Maximum stop strings per request.",
    ),
    request(
        names=("--n-max",),
        env=("LLAMA_ARG_N_MAX",),
        dest="n_max",
        reload=True,
        kind=Int(low=1, high=1024),
        default=8,
        help="Maximum completions per prompt (n).",
    ),
    request(
        names=("--n-probs-max",),
        env=("LLAMA_ARG_N_PROBS_MAX",),
        dest="n_probs_max",
        reload=True,
        kind=Int(low=0, high=1024),
        default=100,
        help="Maximum top tokens reported per generated token (n_probs).",
    ),
    request(
        names=("--answer-max-bytes",),
        env=("LLAMA_ARG_ANSWER_MAX_BYTES",),
        dest="answer_max_bytes",
        reload=True,
        kind=Size(1024),
        default=64 * 1024 * 1024,
        help="Maximum size of a response that is not streamed; beyond it generation stops (stop type limit), and the"
        " text of POST /tokenize is refused.",
    ),
    request(
        names=("--stall-seconds",),
        env=("LLAMA_ARG_STALL_SECONDS",),
        dest="stall_seconds",
        reload=True,
        kind=Float(low=0.0),
        default=30.0,
        metavar="SECONDS",
        help="How long a client may stall its stream while others wait for a slot; 0: no limit.",
    ),
    request(
        names=("--engine-stall-seconds",),
        env=("LLAMA_ARG_ENGINE_STALL_SECONDS",),
        dest="engine_stall_seconds",
        reload=True,
        kind=Float(low=0.0),
        default=0.0,
        metavar="SECONDS",
        help="How long the engine may have work and finish no step before it is restarted; 0: by the steps seen, at"
        " least 120 s.",
    ),
    request(
        names=("-sp", "--special"),
        env=("LLAMA_ARG_SPECIAL",),
        dest="special",
        kind=Switch(),
        default=False,
        help="Include special tokens in the generated text.",
    ),
    request(
        names=("--request-timeout",),
        env=("LLAMA_ARG_REQUEST_TIMEOUT",),
        dest="request_timeout",
        reload=True,
        kind=Float(low=0.0),
        default=0.0,
        metavar="SECONDS",
        help="Time limit for a whole request, queueing included; 0: none.",
    ),
)

FLAGS: tuple[Flag, ...] = HTTP_FLAGS + REQUEST_FLAGS
