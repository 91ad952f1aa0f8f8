"""Legal requests: versions, keep-alive, pipelining, bodies, methods, targets and what every answer carries."""

from __future__ import annotations

import re
from typing import Any

import pytest

from llamad.http.head_cache import HEADS_MAX, PIECE_MAX
from llamad.http.request import Response

HOST = b"Host: test\r\n"


def test_keep_alive_serves_many_requests_on_one_connection(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        for i in range(50):
            reply = c.get(f"/hello?name={i}")
            assert (reply.status, reply.body) == (200, f"hello {i}".encode())
            assert "connection" not in reply.headers
        assert h.server.n_connections == 1
        assert h.on_loop(lambda: h.server.n_active) == 0


def test_every_answer_carries_the_common_headers(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        for reply in (c.get("/hello"), c.get("/stream"), c.get("/nowhere"), c.get("/boom"), c.get("/empty")):
            assert reply.headers["server"] == "llamad"
            assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", reply.headers["date"]), (
                reply.headers
            )
            assert reply.headers["x-request-id"]
            assert reply.headers["access-control-allow-origin"] == "*"
    with h.connect() as c:
        c.send(b"nonsense\r\n\r\n")
        reply = c.read()
        assert reply.status == 400
        assert reply.headers["x-request-id"]
        assert reply.headers["connection"] == "close"


def test_request_id_is_taken_if_sane_and_made_otherwise(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.get("/hello", "X-Request-Id: abc-1").headers["x-request-id"] == "abc-1"
        assert c.get("/hello", "X-Request-Id: " + "a" * 128).headers["x-request-id"] == "a" * 128
        made = [
            c.get("/hello").headers["x-request-id"],
            c.get("/hello", "X-Request-Id: " + "a" * 129).headers["x-request-id"],
            c.get("/hello", "X-Request-Id: a b").headers["x-request-id"],
            c.get("/hello", "X-Request-Id: \xe9").headers["x-request-id"],
            c.get("/hello", "X-Request-Id:").headers["x-request-id"],
        ]
        assert len(set(made)) == len(made)
        assert all(re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]{6,}", m) for m in made)


@pytest.mark.parametrize(
    ("version", "header", "said", "stays"),
    [
        (b"1.1", b"", None, True),
        (b"1.1", b"Connection: close\r\n", "close", False),
        (b"1.1", b"Connection: keep-alive\r\n", None, True),
        (b"1.1", b"Connection: x, Close\r\n", "close", False),
        (b"1.0", b"", "close", False),
        (b"1.0", b"Connection: keep-alive\r\n", "keep-alive", True),
    ],
)
def test_connection_header(serve: Any, version: bytes, header: bytes, said: str | None, stays: bool) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"GET /hello HTTP/" + version + b"\r\n" + HOST + header + b"\r\n")
        reply = c.read()
        assert (reply.status, reply.headers.get("connection")) == (200, said)
        if stays:
            assert c.get("/hello").status == 200
        else:
            assert c.at_end()


def test_http10_needs_no_host_and_its_streams_end_by_closing(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        reply = c.read()
        assert "transfer-encoding" not in reply.headers
        assert "content-length" not in reply.headers
        assert reply.headers["connection"] == "close"
        assert reply.body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


def test_a_stream_is_chunked_and_keeps_the_connection(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        for n in (0, 1, 100):
            reply = c.get(f"/stream?n={n}")
            assert reply.headers["transfer-encoding"] == "chunked"
            assert reply.headers["content-type"] == "text/event-stream"
            assert reply.headers["cache-control"] == "no-cache"
            assert reply.headers["x-accel-buffering"] == "no"
            assert reply.headers["x-extra"] == "1"
            assert reply.body == b"".join(b"data: %d\n\n" % i for i in range(n))
            assert reply.whole


def test_only_event_streams_say_no_cache(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert "cache-control" not in c.get("/flood?n=1").headers


def test_head_has_the_headers_of_get_and_no_body(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        reply = c.get("/hello?name=you", method="HEAD")
        assert (reply.status, reply.headers["content-length"]) == (200, "9")
        reply = c.get("/stream", method="HEAD")
        assert (reply.status, reply.headers["transfer-encoding"]) == (200, "chunked")
        assert c.get("/nowhere", method="HEAD").status == 404
        assert c.get("/hello").body == b"hello "
    h.wait_quiet()
    assert [line.split()[5] for line in h.lines] == ["0", "0", "0", "6"]


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body(serve: Any, status: int) -> None:
    h = serve()
    with h.connect() as c:
        reply = c.get(f"/empty?status={status}")
        assert reply.status == status
        assert "content-length" not in reply.headers
        assert c.get("/hello").body == b"hello "


def test_unknown_path_and_method(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.get("/nowhere").status == 404
        reply = c.get("/echo")
        assert (reply.status, reply.headers["allow"]) == (405, "OPTIONS, POST")
        assert c.get("/hello", method="DELETE").headers["allow"] == "GET, HEAD, OPTIONS"
        reply = c.get("/hold", method="OPTIONS")
        assert (reply.status, reply.headers["allow"]) == (200, "GET, HEAD, OPTIONS, POST")
        assert c.get("*", method="OPTIONS").status == 200
        assert c.get("/hello").status == 200


def test_request_fields(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.get("/items/a%20b%C3%A9?x=1&y=a+b%26&flag&x=2&=z", "X-Two: a", "x-two:b  ", "X-Empty:")
        request = h.app.requests[-1]
        assert (request.method, request.path) == ("GET", "/items/a b\xe9")
        assert request.query == {"x": "2", "y": "a b&", "flag": "", "": "z"}
        assert request.headers["x-two"] == "a, b"
        assert request.headers["x-empty"] == ""
        assert request.headers["host"] == "test"
        assert request.params == {"name": "a b\xe9"}
        assert request.route is not None
        assert request.route.pattern == "/items/{name}"
        assert re.fullmatch(r"127\.0\.0\.1:\d+", request.peer)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://example.org:80/hello?name=a", "/hello", {"name": "a"}),
        (b"/hello?name=a#frag", "/hello", {"name": "a"}),
        (b"/hello?", "/hello", {}),
        (b"/%68ello?na%6De=%FF", "/hello", {"name": "\ufffd"}),
        (b"/hello?a=%zz", "/hello", {"a": "%zz"}),
    ],
)
def test_targets(serve: Any, target: bytes, path: str, query: dict[str, str]) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        assert c.read().status == 200
        assert (h.app.requests[-1].path, h.app.requests[-1].query) == (path, query)


def test_bodies_by_length_and_in_chunks(serve: Any) -> None:
    h = serve()
    big = bytes(range(256)) * 8192
    with h.connect() as c:
        assert c.post("/echo", b"").body == b""
        assert c.post("/echo", b"abc").body == b"abc"
        assert c.post("/echo", big).body == big
        c.send(b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(big), 100_000):
            piece = big[i : i + 100_000]
            c.send(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece))
        c.send(b"0\r\nX-Trailer: no\r\n\r\n")
        assert c.read().body == big
        assert "x-trailer" not in h.app.requests[-1].headers
        assert c.get("/hello").status == 200
        assert "x-trailer" not in h.app.requests[-1].headers


@pytest.mark.parametrize("chunked", [False, True])
def test_expect_continue(serve: Any, chunked: bool) -> None:
    h = serve()
    framing = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: 3\r\n"
    with h.connect() as c:
        c.send(b"POST /echo HTTP/1.1\r\n" + HOST + framing + b"Expect: 100-Continue\r\n\r\n")
        assert c.read().status == 100
        c.send(b"3\r\nabc\r\n0\r\n\r\n" if chunked else b"abc")
        assert c.read().body == b"abc"
        assert c.get("/hello").status == 200


@pytest.mark.parametrize(
    ("path", "length", "expect", "status"),
    [
        (b"/private", b"3", b"100-continue", 401),
        (b"/nowhere", b"3", b"100-continue", 404),
        (b"/small", b"11", b"100-continue", 413),
        (b"/echo", b"3", b"200-ok", 417),
    ],
)
def test_no_continue_for_what_is_refused(
    serve: Any, path: bytes, length: bytes, expect: bytes, status: int
) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"POST " + path + b" HTTP/1.1\r\n" + HOST)
        c.send(b"Content-Length: " + length + b"\r\nExpect: " + expect + b"\r\n\r\n")
        reply = c.read()
        # The client may send the body or leave it: its next bytes would be ambiguous, so the server closes.
        assert (reply.status, reply.headers["connection"]) == (status, "close")
        assert c.at_end()


def test_http10_ignores_expect(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"POST /echo HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
        assert c.read().body == b"abc"


def test_an_early_answer_keeps_the_connection_when_the_body_is_small(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"POST /private HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nGET /")
        assert c.read().status == 401
        c.send(b"hello")
        assert c.get("/hello").status == 200
        h.wait_event("done", "/private", 401)
        assert ("request", "/private") not in h.app.events


@pytest.mark.parametrize("framing", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
def test_an_early_answer_to_a_large_or_endless_body_closes(serve: Any, framing: bytes) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"POST /private HTTP/1.1\r\n" + HOST + framing + b"\r\n\r\n" + b"x" * 100_000)
        reply = c.read()
        assert (reply.status, reply.headers["connection"]) == (401, "close")
        assert c.at_end()


def test_pipelined_requests_are_answered_in_order(serve: Any) -> None:
    h = serve()
    n = 200
    with h.connect() as c:
        one = b"GET /hello?name=%d HTTP/1.1\r\n" + HOST + b"\r\n"
        two = b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\n\r\n%04d"
        c.send(b"".join(one % i + two % i for i in range(n)))
        for i in range(n):
            assert c.read().body == b"hello %d" % i
            assert c.read().body == b"%04d" % i


def test_the_next_handler_waits_for_the_answer_before(serve: Any, until: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send((b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n") * 2 + b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n")
        first = h.held()
        assert len(h.app.held) == 1
        h.on_loop(lambda: first.begin(200, "text/plain"))
        h.on_loop(lambda: first.write(b"one"))
        assert len(h.app.held) == 1
        h.on_loop(first.end)
        assert c.read().body == b"one"
        second = h.held(2)
        assert ("request", "/hello") not in h.app.events
        h.on_loop(lambda: second.send(Response(200, b"two")))
        assert c.read().body == b"two"
        assert c.read().body == b"hello "


def test_pipelined_bytes_are_bounded_and_a_client_that_leaves_is_still_noticed(
    serve: Any, until: Any
) -> None:
    h = serve(write_timeout=30)
    with h.connect() as c:
        c.send(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n")
        h.held()
        c.sock.setblocking(False)
        sent = 0
        try:
            while sent < 100_000_000:
                sent += c.sock.send(b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n" * 1000)
        except BlockingIOError:
            pass
        assert sent < 100_000_000
        connection = h.connection()
        until(lambda: connection.flow.read_paused, "paused reading")
        assert h.on_loop(lambda: len(connection._stash)) < 1_000_000
        c.reset()
        h.wait_event("abort", "/hold")
        h.wait_event("done", "/hold", 499)


def test_paused_reading_does_not_hide_an_orderly_end(serve: Any, until: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n")
        h.held()
        connection = h.connection()

        def push() -> bool:
            c.send(b"\r\n" * 5000)
            return bool(connection.flow.read_paused)

        until(push, "paused reading")
    h.wait_event("abort", "/hold")
    h.wait_event("done", "/hold", 499)


def test_paused_reading_resumes_and_loses_nothing(serve: Any, until: Any) -> None:
    h = serve()
    body = b"z" * 300_000
    request = b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 300000\r\n\r\n" + body
    with h.connect() as c:
        c.send(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n" + request + request)
        exchange = h.held()
        connection = h.connection()
        until(lambda: connection.flow.read_paused, "paused reading")
        h.on_loop(lambda: exchange.send(Response(200, b"now")))
        assert c.read().body == b"now"
        assert c.read().body == body
        assert c.read().body == body
        assert c.get("/hello").status == 200


@pytest.mark.parametrize("body", [b"", b"abc"])
def test_an_upgrade_is_ignored_and_the_body_read(serve: Any, body: bytes) -> None:
    # The parser takes everything behind an Upgrade header for another protocol: a body must not become a request.
    h = serve()
    with h.connect() as c:
        c.send(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        reply = c.read()
        assert (reply.status, reply.body) == (200, body)
        assert c.get("/hello").status == 200
        assert [e[1] for e in h.app.events if e[0] == "request"] == ["/echo", "/hello"]


def test_blank_lines_between_requests_are_ignored(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.get("/hello").status == 200
        c.send(b"\r\n\r\n\n")
        assert c.get("/hello").status == 200


def test_equal_heads_are_requests_of_their_own(serve: Any) -> None:
    """The bytes of a head are read once, however often they come; everything else belongs to one request."""
    h = serve()
    with h.connect() as c:
        for n in range(3):
            assert c.post("/echo", b"abc"[:n] + b"x").body == b"abc"[:n] + b"x"
            assert c.post("/echo", b"abc").body == b"abc"
        ids = [c.get("/hello").headers["x-request-id"] for _ in range(3)]
        assert len(set(ids)) == 3
        assert [c.get("/hello", "X-Request-Id: mine").headers["x-request-id"] for _ in range(2)] == [
            "mine"
        ] * 2
        names = [c.get("/items/a").body, c.get("/items/b").body, c.get("/items/a").body]
        assert names == [b"a", b"b", b"a"]
        assert [c.get("/private").status for _ in range(2)] == [401, 401]
        assert [c.get("/nothing").status for _ in range(2)] == [404, 404]


def test_more_heads_than_are_remembered(serve: Any) -> None:
    h = serve()
    n = HEADS_MAX + 10
    with h.connect() as c:
        for turn in range(2):
            c.send(b"".join(b"GET /hello?name=%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(n)))
            assert [c.read().body for _ in range(n)] == [b"hello %d" % i for i in range(n)], turn
        long = "X-Long: " + "a" * (PIECE_MAX + 1)
        assert [c.get("/hello?name=b", long).body for _ in range(2)] == [b"hello b"] * 2
