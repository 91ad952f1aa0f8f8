"""Web pages: which of them may read answers, and whose requests are refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.http.cors import Cors

PREFLIGHT = "Access-Control-Request-Method: POST"
EVIL = [
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://evil.example:8080",
    "file://",
    "chrome-extension://abc",
    "http://localhost@evil.example",
    "https://evil.example, http://localhost",
    "app.evil:/x",
    "http://10.0.0.7:8080",
]
OURS = [
    "http://localhost",
    "http://localhost:3000",
    "https://127.0.0.1:5",
    "http://[::1]:8080",
    "http://tauri.localhost",
    "http://127.8.9.1",
    "HTTP://LocalHost:1",
]
DESKTOP = ("app://obsidian.md", "tauri://localhost", "vscode-webview://0a1b")


def cors_headers(reply: Any) -> dict[str, str]:
    return {k: v for k, v in reply.headers.items() if k.startswith("access-control") or k == "vary"}


def readable(reply: Any, origin: str) -> bool:
    return reply.headers.get("access-control-allow-origin") in (origin, "*")


def test_any_origin(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert cors_headers(c.get("/hello")) == {"access-control-allow-origin": "*"}
        for path in ("/stream", "/nowhere"):
            assert cors_headers(c.get(path, "Origin: https://a.example")) == {
                "access-control-allow-origin": "https://a.example",
                "access-control-expose-headers": "X-Request-Id, X-Llamad-Ignored, Retry-After, X-Should-Retry",
                "vary": "Origin",
            }
        assert c.post("/echo", b"x", "Origin: https://a.example").status == 200


def test_a_preflight_needs_no_route_and_no_key(serve: Any) -> None:
    h = serve(cors=Cors(["auto"], has_keys=True, hosts=["*"], methods="GET, POST, DELETE"))
    with h.connect() as c:
        for path in ("/private", "/hello", "/nowhere"):
            asked = "Access-Control-Request-Headers: authorization, content-type"
            reply = c.get(path, "Origin: https://a.example", PREFLIGHT, asked, method="OPTIONS")
            assert (reply.status, reply.body) == (200, b"")
            assert reply.headers["access-control-allow-origin"] == "https://a.example"
            assert "access-control-allow-credentials" not in reply.headers
            assert reply.headers["access-control-allow-methods"] == "GET, POST, DELETE"
            assert reply.headers["access-control-allow-headers"] == "authorization, content-type"
            assert int(reply.headers["access-control-max-age"]) > 0
    h.wait_quiet()
    assert [e for e in h.app.events if e[0] == "done"] == [
        ("done", "/private", 200),
        ("done", "/hello", 200),
        ("done", "/nowhere", 200),
    ]


def test_with_keys_any_origin_passes(serve: Any) -> None:
    h = serve(cors=Cors(["auto"], has_keys=True, hosts=["*"]))
    with h.connect() as c:
        for origin in (*EVIL[:4], *OURS, *DESKTOP):
            reply = c.post("/echo", b"x", f"Origin: {origin}")
            assert (reply.status, readable(reply, origin)) == (200, True)


@pytest.mark.parametrize("origin", EVIL)
def test_without_keys_a_foreign_page_can_neither_read_nor_do(serve: Any, origin: str) -> None:
    h = serve(cors=Cors(["auto"], hosts=["*"]))
    with h.connect() as c:
        for path in ("/echo", "/nowhere", "/private", "/items/x"):
            reply = c.post(path, b"{}", f"Origin: {origin}", "Content-Type: text/plain")
            assert reply.status == 403
            assert b"--cors-origins" in reply.body
            assert cors_headers(reply) == {"vary": "Origin"}
        for method in ("PUT", "DELETE", "PATCH"):
            assert c.get("/items/x", f"Origin: {origin}", method=method).status == 403
        assert ("request", "/echo") not in h.app.events
        for method in ("GET", "HEAD"):
            reply = c.get("/hello", f"Origin: {origin}", method=method)
            assert (reply.status, cors_headers(reply)) == (200, {"vary": "Origin"})
        for extra in ((PREFLIGHT,), ()):
            reply = c.get("/echo", f"Origin: {origin}", *extra, method="OPTIONS")
            assert (reply.status, cors_headers(reply)) == (200, {"vary": "Origin"})
        # A client that is no browser has no origin; the connection has lived through it all.
        assert c.post("/echo", b"x").body == b"x"


@pytest.mark.parametrize("origin", [*OURS, *DESKTOP])
def test_without_keys_pages_of_this_machine_pass(serve: Any, origin: str) -> None:
    h = serve(cors=Cors(["auto"], hosts=["*"]))
    with h.connect() as c:
        reply = c.post("/echo", b"x", f"Origin: {origin}")
        assert (reply.status, readable(reply, origin)) == (200, True)
        reply = c.get("/echo", f"Origin: {origin}", PREFLIGHT, method="OPTIONS")
        assert (reply.status, readable(reply, origin)) == (200, True)
        assert "POST" in reply.headers["access-control-allow-methods"]


def own(serve: Any, host: str, origin: str, **flags: Any) -> int:
    h = serve(cors=Cors(["auto"], **flags), host="0.0.0.0")
    with h.connect() as c:
        c.send(
            f"POST /echo HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\nContent-Length: 1\r\n\r\nx".encode()
        )
        return int(c.read("POST").status)


def test_the_servers_own_page_passes_where_its_name_is_sure(serve: Any) -> None:
    assert own(serve, "192.168.1.5:8080", "http://192.168.1.5:8080") == 200
    assert own(serve, "[fe80::1]:8080", "https://[fe80::1]:8080") == 200
    assert own(serve, "box.lan", "http://box.lan", hosts=["Box.LAN"]) == 200
    # A page of evil.example whose DNS record was changed to this machine sends exactly this.
    assert own(serve, "evil.example:8080", "http://evil.example:8080") == 421
    assert own(serve, "box.lan", "http://box.lan") == 403
    assert own(serve, "box.lan", "http://box.lan:81", hosts=["box.lan"]) == 403
    assert own(serve, "192.168.1.5:8080", "app2://192.168.1.5:8080") == 403


def test_a_list_of_origins(serve: Any) -> None:
    h = serve(cors=Cors(["https://a.example", "http://localhost:3000"], hosts=["*"]))
    with h.connect() as c:
        reply = c.get("/hello", "Origin: https://a.example")
        assert reply.headers["access-control-allow-origin"] == "https://a.example"
        assert reply.headers["vary"] == "Origin"
        assert c.post("/echo", b"x", "Origin: https://a.example").status == 200
        assert cors_headers(c.get("/hello", "Origin: https://evil.example")) == {"vary": "Origin"}
        assert cors_headers(c.get("/hello")) == {"vary": "Origin"}
        assert c.post("/echo", b"x", "Origin: https://evil.example").status == 403
        assert c.post("/echo", b"x", "Origin: http://localhost:3001").status == 403
        reply = c.get("/hello", "Origin: http://localhost:3000", PREFLIGHT, method="OPTIONS")
        assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert "access-control-allow-methods" in reply.headers
        reply = c.get("/hello", "Origin: https://evil.example", PREFLIGHT, method="OPTIONS")
        assert cors_headers(reply) == {"vary": "Origin"}


def test_the_word_localhost_and_the_word_star(serve: Any) -> None:
    h = serve(cors=Cors(["localhost"], hosts=["*"]))
    with h.connect() as c:
        assert c.post("/echo", b"x", "Origin: http://localhost:3000").status == 200
        assert c.post("/echo", b"x", "Origin: tauri://localhost").status == 403
        assert c.post("/echo", b"x", "Origin: https://a.example").status == 403
    h = serve(cors=Cors(["*"], hosts=["*"]))
    with h.connect() as c:
        assert c.post("/echo", b"x", "Origin: https://a.example").status == 200
        assert c.post("/echo", b"x", "Origin: null").status == 200


def test_no_origin(serve: Any) -> None:
    h = serve(cors=Cors([], hosts=["*"]))
    with h.connect() as c:
        assert cors_headers(c.get("/hello", "Origin: https://a.example")) == {}
        reply = c.get("/hello", "Origin: https://a.example", PREFLIGHT, method="OPTIONS")
        assert (reply.status, cors_headers(reply)) == (200, {})
        assert reply.headers["allow"] == "GET, HEAD, OPTIONS"
        assert c.post("/echo", b"x", "Origin: http://localhost").status == 403


def test_credentials_methods_and_headers(serve: Any) -> None:
    cors = Cors(["*"], hosts=["*"], methods="GET", headers="X-A, X-B", credentials=True)
    h = serve(cors=cors)
    with h.connect() as c:
        for reply in (
            c.get("/hello", "Origin: https://a.example"),
            c.get("/hello", "Origin: https://a.example", PREFLIGHT, method="OPTIONS"),
        ):
            assert reply.headers["access-control-allow-origin"] == "https://a.example"
            assert reply.headers["access-control-allow-credentials"] == "true"
        assert reply.headers["access-control-allow-methods"] == "GET"
        assert reply.headers["access-control-allow-headers"] == "X-A, X-B"


LOCAL_HOSTS = [
    "localhost",
    "LOCALHOST:8080",
    "127.0.0.1:1",
    "[::1]:8080",
    "x.localhost",
    "localhost.",
    "127.1",
    "192.168.1.5:8080",
    "0.0.0.0",
]


@pytest.mark.parametrize("has_keys", [False, True])
def test_on_loopback_a_foreign_host_is_refused(serve: Any, has_keys: bool) -> None:
    h = serve(cors=Cors(["auto"], has_keys=has_keys, hosts=["llm.example"]))
    with h.connect() as c:
        for host in (*LOCAL_HOSTS, "llm.example:443", "LLM.example."):
            c.send(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert c.read().status == 200, host
        for host in (
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "",
            "a:b:c",
            "1.2.3.4.evil",
        ):
            c.send(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            reply = c.read()
            assert reply.status == 421, host
            assert b"--allowed-hosts" in reply.body
            c.send(f"POST /echo HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\n\r\nx".encode())
            assert c.read().status == 421
        c.send(b"GET /hello HTTP/1.0\r\n\r\n")
        assert c.read().status == 200


NETWORK_HOSTS = [
    "gpu-box",
    "gpu-box.:8080",
    "llamad:8080",
    "Box.LAN",
    "box.local.",
    "box.home.arpa",
    "host.docker.internal:8080",
    "llamad.default.svc",
    "llamad-0.llamad-pods.llamad.svc.cluster.local",
    "gpu7.corp.example:8080",
    "llm.example",
]
STRANGE_HOSTS = [
    "evil.example",
    "evil.example:8080",
    "gpu7.corp.example.evil.example",
    "x.gpu7.corp.example",
    "local.evil.example",
    "xlan.example",
    "evil.notlan",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "",
    ".",
    "a:b:c",
]


def status_for(server: Any, host: str) -> Any:
    with server.connect() as c:
        c.send(f"GET /hello HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return c.read()


def test_on_the_network_without_keys_only_names_that_no_stranger_can_have_are_served(serve: Any) -> None:
    h = serve(cors=Cors(["auto"], own_name="gpu7.corp.example", hosts=["llm.example"]), host="0.0.0.0")
    for host in (*LOCAL_HOSTS, *NETWORK_HOSTS):
        assert status_for(h, host).status == 200, host
    for host in STRANGE_HOSTS:
        reply = status_for(h, host)
        assert reply.status == 421, host
        assert b"--allowed-hosts" in reply.body
        assert b"API keys" in reply.body
    with h.connect() as c:
        c.send(b"GET /hello HTTP/1.0\r\n\r\n")  # as health checks of proxies do
        assert c.read().status == 200


@pytest.mark.parametrize("flags", [{"has_keys": True}, {"hosts": ["*"]}])
def test_on_the_network_with_keys_any_host_is_served(serve: Any, flags: dict[str, Any]) -> None:
    h = serve(cors=Cors(["auto"], **flags), host="0.0.0.0")
    for host in (*LOCAL_HOSTS, *NETWORK_HOSTS, *STRANGE_HOSTS):
        assert status_for(h, host).status == 200, host


def test_on_a_unix_socket_any_host_is_served(serve: Any, tmp_path: Any) -> None:
    h = serve(cors=Cors(["auto"]), host=str(tmp_path / "h.sock"))
    for host in ("llm.example", *STRANGE_HOSTS):
        assert status_for(h, host).status == 200, host
