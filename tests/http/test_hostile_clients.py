"""Bytes that no good client sends, and the limits. Every input is fed once whole and once byte by byte,
and the answers must be the same; afterwards the server must still serve."""

from __future__ import annotations

import time
from typing import Any

import pytest

HOST = b"Host: test\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"GET /hello?name=last HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
END = (200, b"hello last")
HEADER_MAX = 2000
BODY_MAX = 3000


def long_head(n: int) -> bytes:
    """A head of exactly n bytes."""
    start = b"GET /hello HTTP/1.1\r\n" + HOST + b"Connection: close\r\nX: "
    return start + b"a" * (n - len(start) - 4) + b"\r\n\r\n"


# name: (bytes, the statuses answered before the server closes)
REFUSED: dict[str, tuple[bytes, list[int]]] = {
    "noise": (b"\x00\x01\x02\xff\xfe\r\n\r\n", [400]),
    "tls on a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [400]),
    "unknown method": (b"FOO /hello HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "lower-case method": (b"get /hello HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "bare line feeds": (b"GET /hello HTTP/1.1\nHost: test\n\n", [400]),
    "bare carriage return": (b"GET /hello HTTP/1.1\r\nHost: test\rX: 1\r\n\r\n", [400]),
    "no version": (b"GET /hello\r\n\r\n", [505]),
    "HTTP/2": (b"GET /hello HTTP/2.0\r\n" + HOST + b"\r\n", [505]),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400]),
    "HTTP/1.2": (b"GET /hello HTTP/1.2\r\n" + HOST + b"\r\n", [400]),
    "no host": (b"GET /hello HTTP/1.1\r\n\r\n", [400]),
    "two hosts": (b"GET /hello HTTP/1.1\r\n" + HOST + HOST + b"\r\n", [400]),
    "space in a name": (b"GET /hello HTTP/1.1\r\nHo st: test\r\n\r\n", [400]),
    "space before the colon": (b"GET /hello HTTP/1.1\r\nHost : test\r\n\r\n", [400]),
    "folded header": (b"GET /hello HTTP/1.1\r\nHost: test\r\nX: 1\r\n 2\r\n\r\n", [400]),
    "NUL in a value": (b"GET /hello HTTP/1.1\r\nHost: te\x00st\r\n\r\n", [400]),
    "raw bytes in the target": (b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "relative target": (b"GET hello HTTP/1.1\r\n" + HOST + b"\r\n", [400]),
    "connect": (b"CONNECT a:443 HTTP/1.1\r\n" + HOST + b"\r\nxyz", [501]),
    "two lengths": (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", [400]),
    "length list": (POST + b"Content-Length: 3, 3\r\n\r\nabc", [400]),
    "signed length": (POST + b"Content-Length: +3\r\n\r\nabc", [400]),
    "empty length": (POST + b"Content-Length: \r\n\r\n", [400]),
    "absurd length": (POST + b"Content-Length: 99999999999999999999999\r\n\r\n", [400]),
    "length and chunks": (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", [400]),
    "chunks and length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", [400]),
    "unknown coding": (POST + b"Transfer-Encoding: gzip\r\n\r\n", [400]),
    "two codings": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", [501]),
    "two coding lines": (POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", [501]),
    "chunks of HTTP/1.0": (b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400]),
    "upgrade and coding": (
        POST + b"Connection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: gzip\r\n\r\n" + LAST,
        [501],
    ),
    "chunk size not hex": (CHUNKED + b"xyz\r\n", [400]),
    "chunk size signed": (CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n", [400]),
    "chunk size 0x": (CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n", [400]),
    "chunk size empty": (CHUNKED + b"\r\nabc", [400]),
    "chunk size of 17 digits": (CHUNKED + b"00000000000000003\r\nabc\r\n0\r\n\r\n", [400]),
    "chunk line with line feed": (CHUNKED + b"3\nabc\r\n0\r\n\r\n", [400]),
    "chunk longer than its size": (CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", [400]),
    "chunk line too long": (CHUNKED + b"3;" + b"a" * 5000 + b"\r\nabc\r\n0\r\n\r\n", [400]),
    "chunk extension with NUL": (CHUNKED + b"3;a=\x00\r\nabc\r\n0\r\n\r\n", [400]),
    "trailer with line feed": (CHUNKED + b"0\r\nX: 1\n\r\n", [400]),
    "endless trailers": (CHUNKED + b"0\r\n" + b"X: 1\r\n" * 20_000, [400]),
    "endless extensions": (CHUNKED + (b"1;" + b"a" * 4000 + b"\r\nx\r\n") * 20, [400]),
    "chunks too large together": (CHUNKED + b"bb8\r\n" + b"a" * 3000 + b"\r\n1\r\nb\r\n0\r\n\r\n", [413]),
    "one chunk too large": (CHUNKED + b"ffffffffffffffff\r\n", [413]),
    "length too large": (POST + b"Content-Length: 3001\r\n\r\n" + b"a" * 3001, [413]),
    "head too large": (long_head(HEADER_MAX + 1), [431]),
    "target too large": (b"GET /" + b"a" * 5000, [431]),
    "header name too large": (b"GET / HTTP/1.1\r\n" + b"a" * 5000, [431]),
    "too many header lines": (b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 257 + b"\r\n", [431]),
    "wrong before it is too large": (b"GET / HTTP/1.1\r\na b: 1\r\nX: " + b"a" * 5000, [400]),
    "good, then noise": (b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n\x00\x00", [200, 400]),
    "good, then closed, then more": (LAST + LAST + b"\x00", [200]),
    "refused body, then noise": (
        b"POST /private HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc\x00",
        [401, 400],
    ),
}

# name: (bytes, the statuses and bodies answered before the last request, which is added)
LEGAL: dict[str, tuple[bytes, list[tuple[int, bytes]]]] = {
    "nothing else": (b"", []),
    "blank lines first": (b"\r\n\r\n\n\r\n", []),
    "head of the largest size": (
        long_head(HEADER_MAX).replace(b"Connection: close", b"Connection: a-b-c"),
        [(200, b"hello ")],
    ),
    "body of the largest size": (POST + b"Content-Length: 3000\r\n\r\n" + b"a" * 3000, [(200, b"a" * 3000)]),
    "chunks of the largest size": (
        CHUNKED + b"bB8\r\n" + b"a" * 3000 + b"\r\n0\r\n\r\n",
        [(200, b"a" * 3000)],
    ),
    "tiny chunks": (CHUNKED + b"1\r\nx\r\n" * 3000 + b"0\r\n\r\n", [(200, b"x" * 3000)]),
    "chunk extensions": (CHUNKED + b'3 ; a="b"\r\nabc\r\n0;x\r\n\r\n', [(200, b"abc")]),
    "end marks inside a chunk": (CHUNKED + b"8\r\n0\r\n\r\n\r\n\r\r\n0\r\n\r\n", [(200, b"0\r\n\r\n\r\n\r")]),
    "a request inside a body": (POST + b"Content-Length: %d\r\n\r\n%b" % (len(LAST), LAST), [(200, LAST)]),
    "a request inside a chunk": (CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(LAST), LAST), [(200, LAST)]),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nX: 1\r\nHost: evil\r\n\r\n", [(200, b"abc")]),
    "empty body": (POST + b"Content-Length: 0\r\n\r\n", [(200, b"")]),
    "empty chunked body": (CHUNKED + b"0\r\n\r\n", [(200, b"")]),
    "body of GET": (b"GET /hello HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc", [(200, b"hello ")]),
    "spaces around a value": (POST + b"Content-Length:  3  \r\n\r\nabc", [(200, b"abc")]),
    "upgrade": (
        POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
        [(200, b"abc")],
    ),
    "upgrade with chunks": (
        POST
        + b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        [(200, b"abc")],
    ),
    "absolute form": (b"GET http://a/hello?name=x HTTP/1.1\r\n" + HOST + b"\r\n", [(200, b"hello x")]),
    "early answer": (
        b"POST /private HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nabcde",
        [(401, b'{"error":{"code":401,"message":"Invalid API Key"}}')],
    ),
    "stream": (b"GET /stream?n=2 HTTP/1.1\r\n" + HOST + b"\r\n", [(200, b"data: 0\n\ndata: 1\n\n")]),
    "256 header lines": (
        b"GET /hello HTTP/1.1\r\n" + HOST + b"a:\r\n" * 255 + b"\r\n",
        [(200, b"hello ")],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(serve: Any, name: str) -> None:
    data, statuses = REFUSED[name]
    seen = []
    for bytewise in (False, True):
        h = serve(bytewise=bytewise, header_max_bytes=HEADER_MAX, body_max_bytes=BODY_MAX)
        with h.connect() as c:
            c.send(data)
            replies = [c.read() for _ in statuses]
            assert c.at_end()
            assert [r.status for r in replies] == statuses
            assert replies[-1].headers["connection"] == "close"
            seen.append([r.body for r in replies])
        with h.connect() as c:
            assert c.get("/hello").status == 200
        h.wait_quiet()
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", LEGAL)
def test_legal(serve: Any, name: str) -> None:
    data, answers = LEGAL[name]
    for bytewise in (False, True):
        h = serve(bytewise=bytewise, header_max_bytes=HEADER_MAX, body_max_bytes=BODY_MAX)
        with h.connect() as c:
            c.send(data + LAST)
            replies = [c.read() for _ in (*answers, END)]
            assert [(r.status, r.body) for r in replies] == [*answers, END]
            assert c.at_end()
        h.wait_quiet()


def test_limits_are_stated(serve: Any) -> None:
    h = serve(header_max_bytes=HEADER_MAX, body_max_bytes=BODY_MAX)
    with h.connect() as c:
        c.send(long_head(HEADER_MAX + 1))
        assert b"2000 bytes (--header-max-bytes)" in c.read().body
    with h.connect() as c:
        # Decided on the length alone: not one byte of the body was sent.
        c.send(POST + b"Content-Length: 3001\r\n\r\n")
        reply = c.read()
        assert reply.status == 413
        assert b"3000 bytes" in reply.body
        assert b"--body-max-bytes" in reply.body
    with h.connect() as c:
        # The application's own limit for this path.
        c.send(b"POST /small HTTP/1.1\r\n" + HOST + b"Content-Length: 11\r\n\r\n")
        reply = c.read()
        assert b"10 bytes" in reply.body
        assert b"--body-max-bytes" not in reply.body
    h.wait_quiet()
    assert [e[2] for e in h.app.events if e[0] == "done"] == [431, 413, 413]


def test_a_large_refused_body_does_not_lose_the_answer(serve: Any) -> None:
    # Closing with unread bytes would reset the connection, and the reset could overtake the 413.
    h = serve(body_max_bytes=BODY_MAX)
    with h.connect() as c:
        c.send(POST + b"Content-Length: 20000000\r\n\r\n")
        c.send(b"a" * 20_000_000)
        assert c.read().status == 413


def trickle(client: Any, data: bytes) -> int:
    """Send a byte now and then until the server closes; return how many were sent."""
    for i in range(len(data)):
        try:
            client.sock.sendall(data[i : i + 1])
        except OSError:
            return i
        time.sleep(0.02)
    return len(data)


@pytest.mark.parametrize("bytewise", [False, True])
def test_a_trickling_head_is_cut_off(serve: Any, bytewise: bool) -> None:
    h = serve(bytewise=bytewise, header_timeout=0.2)
    with h.connect() as c:
        assert trickle(c, b"GET /hello HTTP/1.1\r\nX: " + b"a" * 1000) < 1000
        reply = c.read()
        assert reply.status == 408
        assert b"0.2 s (--header-timeout)" in reply.body
        assert c.at_end()
    h.wait_event("done", "-", 408)


@pytest.mark.parametrize("head", [POST + b"Content-Length: 1000\r\n\r\n", CHUNKED + b"3e8\r\n", CHUNKED])
def test_a_trickling_body_is_cut_off(serve: Any, head: bytes) -> None:
    h = serve(body_timeout=0.2)
    with h.connect() as c:
        c.send(head)
        assert trickle(c, b"1" * 1000) < 1000
        reply = c.read()
        assert reply.status == 408
        assert b"0.2 s" in reply.body
        assert c.at_end()
    h.wait_event("done", "/echo", 408)
    assert ("request", "/echo") not in h.app.events


@pytest.mark.parametrize("head", [POST + b"Content-Length: 1000\r\n\r\n", CHUNKED + b"3e8\r\n", CHUNKED])
def test_a_body_that_stalls_is_cut_off(serve: Any, head: bytes) -> None:
    h = serve(read_timeout=0.2)
    with h.connect() as c:
        c.send(head)
        assert trickle(c, b"1" * 20) == 20  # which takes twice the timeout: only silence counts
        reply = c.read()
        assert reply.status == 408
        assert b"body came for 0.2 s (--timeout)" in reply.body
        assert c.at_end()


def test_a_head_that_stalls_is_cut_off(serve: Any) -> None:
    h = serve(read_timeout=0.2, header_timeout=60)
    with h.connect() as c:
        assert trickle(c, b"GET /hello HTTP/1.1\r\n") == 21
        reply = c.read()
        assert reply.status == 408
        assert b"headers came for 0.2 s (--timeout)" in reply.body


def test_a_refused_body_that_stalls_is_cut_off(serve: Any) -> None:
    h = serve(read_timeout=0.2)
    with h.connect() as c:
        c.send(b"POST /private HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n1")
        assert c.read().status == 401
        assert c.at_end()


def test_a_slow_but_steady_body_has_time(serve: Any) -> None:
    """However long it takes: without --body-timeout only silence ends it."""
    h = serve(read_timeout=1.5)
    with h.connect() as c:
        c.send(POST + b"Content-Length: 100\r\n\r\n")
        assert trickle(c, b"1" * 100) == 100
        assert c.read().status == 200


def test_a_trickling_refused_body_is_cut_off(serve: Any) -> None:
    h = serve(body_timeout=0.2)
    with h.connect() as c:
        c.send(b"POST /private HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n")
        assert c.read().status == 401
        assert trickle(c, b"1" * 1000) < 1000
        assert c.at_end()


@pytest.mark.parametrize("first", [b"", b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n", b"\r\n"])
def test_an_idle_connection_is_closed_without_a_word(serve: Any, first: bytes) -> None:
    h = serve(keepalive_timeout=0.2)
    with h.connect() as c:
        c.send(first)
        if first.startswith(b"GET"):
            assert c.read().status == 200
        assert c.at_end()


def test_blank_lines_do_not_keep_an_idle_connection(serve: Any) -> None:
    h = serve(keepalive_timeout=0.2, header_timeout=60)
    with h.connect() as c:
        assert trickle(c, b"\r\n" * 1000) < 2000


def test_a_waiting_request_has_no_idle_timeout(serve: Any) -> None:
    h = serve(keepalive_timeout=0.2, header_timeout=0.2, body_timeout=0.2, write_timeout=0.2)
    with h.connect() as c:
        c.send(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n")
        exchange = h.held()
        time.sleep(0.6)
        h.on_loop(lambda: exchange.begin(200, "text/plain"))
        h.on_loop(lambda: exchange.write(b"still here"))
        h.on_loop(exchange.end)
        assert c.read().body == b"still here"


@pytest.mark.parametrize("path", ["/inject", "/inject-stream", "/inject-type", "/owned", "/bad-status"])
def test_an_answer_cannot_break_out_of_its_head(serve: Any, caplog: Any, path: str) -> None:
    h = serve()
    with h.connect() as c:
        reply = c.get(path)
        assert reply.status == 500
        assert "x-forged" not in reply.headers
        assert c.get("/hello").status == 200
    assert "cannot be sent" in caplog.text
    assert h.app.events[:3] == [("request", path), ("abort", path), ("done", path, 500)]
