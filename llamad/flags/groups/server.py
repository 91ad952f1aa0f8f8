"""The flags about the socket, access to it, and which endpoints are on. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Inert, Later, placeholder
from llamad.flags.types.kinds import File, Float, Int, Many, Switch, Text
from llamad.flags.types.network import Host, HostName, HttpTokens, Network, Origin, PathPrefix


class Server:
    """Settings about the socket, access to it, and which endpoints are on."""

    hosts: tuple[str, ...] = flag(
        names=("--host",),
        kind=Many(Host()),
        default=("127.0.0.1",),
        metavar="HOST,...",
        help="Addresses to listen on, or paths of Unix sockets (they start with / or end in .sock).",
    )
    port: int = flag(
        kind=Int(0, 65535),
        default=8080,
        help="Port to listen on; 0: any free port.",
    )
    reuse_port: bool = flag(
        default=False,
        help="Let other processes listen on the same port (SO_REUSEPORT); the kernel spreads connections over them.",
    )
    timeout: float = flag(
        names=("-to", "--timeout"),
        reload=True,
        kind=Float(above=0.0),
        default=600.0,
        metavar="SECONDS",
        help="How long a client may send nothing of a request that has begun, or take nothing of its response.",
    )
    api_keys: tuple[str, ...] = flag(
        names=("--api-key",),
        env=("LLAMA_API_KEY", "LLAMA_ARG_API_KEY"),
        reload=True,
        kind=Many(Text()),
        default=(),
        metavar="KEY,...",
        repeat=True,
        secret=True,
        help="API keys; a request must carry one of them. May be repeated.",
    )
    api_key_file: str | None = flag(
        reload=True,
        kind=File(),
        default=None,
        secret=True,
        help="File with more API keys, one per line; lines that start with # are comments.",
    )
    ssl_key_file: str | None = flag(
        reload=True,
        kind=File(),
        default=None,
        secret=True,
        help="TLS private key (PEM); needs --ssl-cert-file.",
    )
    ssl_cert_file: str | None = flag(
        reload=True,
        kind=File(),
        default=None,
        help="TLS certificate (PEM); needs --ssl-key-file.",
    )
    # Empty: none.
    cors_origins: tuple[str, ...] = flag(
        kind=Many(Origin(), none="none"),
        default=("auto",),
        metavar="ORIGIN,...",
        help="Origins allowed to use the server from a browser: a list, *: all, none, localhost: this machine; auto:"
        " all if there are API keys, else this machine and desktop programs.",
    )
    cors_methods: str = flag(
        kind=HttpTokens(),
        default="GET, POST, DELETE, OPTIONS",
        help="Methods allowed to pages of other origins.",
    )
    cors_headers: str = flag(
        kind=HttpTokens(),
        default="*",
        help="Headers allowed to pages of other origins; *: all.",
    )
    cors_credentials: bool = flag(
        off=("--no-cors-credentials",),
        default=False,
        help="Allow them cookies and HTTP authentication.",
    )
    allowed_hosts: tuple[str, ...] = flag(
        kind=Many(HostName()),
        default=(),
        metavar="NAME,...",
        repeat=True,
        help="Host names of the server, in addition to addresses and localhost; *: any. A server on loopback rejects"
        " other names (421), and one without API keys rejects names that could belong to a stranger.",
    )
    trusted_proxies: tuple[str, ...] = flag(
        kind=Many(Network()),
        default=(),
        metavar="NETWORK,...",
        repeat=True,
        help="Proxies to take a client's address from, for logs and limits: addresses, networks such as 10.0.0.0/8,"
        " unix: all clients of a Unix socket. Proxies send X-Forwarded-For or Forwarded.",
    )
    proxy_protocol: bool = flag(
        default=False,
        help="Connections from trusted proxies begin with the PROXY protocol, version 1 or 2; needs"
        " --trusted-proxies.",
    )
    # Starts with "/" and does not end with it; empty: none.
    api_prefix: str = flag(
        kind=PathPrefix(),
        default="",
        help="Path before that of every endpoint, for example /llm; other paths are a 404.",
    )
    endpoint_slots: bool = flag(
        names=("--slots",),
        off=("--slots-endpoint-disable", "--no-slots"),
        env=("LLAMA_ARG_ENDPOINT_SLOTS",),
        default=False,
        help="Enable GET /slots, slot states and sessions; they expose prompts.",
    )
    endpoint_metrics: bool = flag(
        names=("--metrics",),
        off=("--no-metrics",),
        env=("LLAMA_ARG_ENDPOINT_METRICS",),
        default=False,
        help="Enable GET /metrics, for Prometheus.",
    )
    metrics_public: bool = flag(
        default=False,
        help="GET /metrics needs no API key, for gateways that read it without one; needs --metrics.",
    )
    ui: bool = flag(
        names=("--webui", "--ui"),
        off=("--no-webui", "--no-ui"),
        env=("LLAMA_ARG_UI", "LLAMA_ARG_WEBUI"),
        default=True,
        help="Serve the page at / and its files.",
    )
    static_path: str | None = flag(
        names=("--path",),
        env=("LLAMA_ARG_STATIC_PATH",),
        kind=File(),
        default=None,
        metavar="FOLDER",
        help="Serve the files of this folder instead of llamad's page; /completion.js stays unless the folder has one.",
    )
    endpoint_props: bool = flag(
        names=("--props",),
        off=("--no-props",),
        env=("LLAMA_ARG_ENDPOINT_PROPS",),
        default=False,
        help="Enable POST /props, which sets the system prompt.",
    )
    ping_seconds: float = flag(
        names=("--sse-ping-interval", "--ping-seconds"),
        env=("LLAMA_ARG_SSE_PING_INTERVAL",),
        reload=True,
        kind=Float(low=-1.0),
        default=15.0,
        metavar="SECONDS",
        help="Send a comment on a stream that was silent for this long; 0 or less: off.",
    )
    drain_seconds: float = flag(
        reload=True,
        kind=Float(low=0.0),
        default=4.0,
        metavar="SECONDS",
        help="Grace period for running requests after SIGTERM or SIGINT.",
    )
    drain_delay_seconds: float = flag(
        reload=True,
        kind=Float(low=0.0),
        default=0.0,
        metavar="SECONDS",
        help="Keep serving for this long after SIGTERM or SIGINT, while /health is a 503 already, so that a gateway"
        " stops sending first.",
    )
    exit_on_load_failure: bool = flag(
        default=False,
        help="Exit when the model cannot be served, with a status that says why (docs/operations.md), instead of"
        " answering 500 with the reason; always so under systemd's Type=notify.",
    )


PAGE_SETTINGS = Inert("llamad's page keeps its settings in the browser")
SERVER_TOOLS = Later("server-side tools")

OTHER_FLAGS = (
    placeholder(
        "--webui-config",
        "--ui-config",
        env=("LLAMA_ARG_UI_CONFIG", "LLAMA_ARG_WEBUI_CONFIG"),
        kind=Text(),
        status=PAGE_SETTINGS,
    ),
    placeholder(
        "--webui-config-file",
        "--ui-config-file",
        env=("LLAMA_ARG_UI_CONFIG_FILE", "LLAMA_ARG_WEBUI_CONFIG_FILE"),
        kind=File(),
        status=PAGE_SETTINGS,
    ),
    placeholder(
        "--webui-mcp-proxy",
        "--ui-mcp-proxy",
        off=("--no-webui-mcp-proxy", "--no-ui-mcp-proxy"),
        env=("LLAMA_ARG_UI_MCP_PROXY", "LLAMA_ARG_WEBUI_MCP_PROXY"),
        kind=Switch(),
        default=False,
        status=Inert("llamad's page calls no MCP servers"),
    ),
    placeholder("--tools", env=("LLAMA_ARG_TOOLS",), kind=Text(), status=SERVER_TOOLS),
    placeholder(
        "--tools-runtime", env=("LLAMA_ARG_TOOLS_RUNTIME",), kind=Text(), status=Inert("llamad runs no tools")
    ),
    placeholder(
        "--mcp-servers-config", env=("LLAMA_ARG_MCP_SERVERS_CONFIG",), kind=File(), status=SERVER_TOOLS
    ),
    placeholder("--mcp-servers-json", env=("LLAMA_ARG_MCP_SERVERS_JSON",), kind=Text(), status=SERVER_TOOLS),
    placeholder(
        "-ag",
        "--agent",
        off=("-no-ag", "--no-agent"),
        env=("LLAMA_ARG_AGENT",),
        kind=Switch(),
        default=False,
        status=SERVER_TOOLS,
    ),
)

FLAGS = flags_of(Server, "Server") + OTHER_FLAGS
