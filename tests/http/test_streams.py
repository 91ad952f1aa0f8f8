"""Answers that take time: slow readers, clients that vanish in each phase, and handlers that fail."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any

import pytest

from llamad.http.request import Response

GET = "GET {} HTTP/1.1\r\nHost: test\r\n\r\n"


def test_a_slow_reader_pauses_only_itself(serve: Any, until: Any) -> None:
    h = serve()
    n = 16_000
    with h.connect() as slow, h.connect() as other:
        slow.send(GET.format(f"/flood?n={n}").encode())
        h.wait_event("pause", "/flood")
        produced = h.app.produced
        assert produced < n
        connection = h.app.flooding
        assert (
            h.on_loop(lambda: connection._transport.get_write_buffer_size())
            <= h.server.limits.stream_buffer_bytes + 2048
        )
        assert other.get("/hello").status == 200
        assert other.get("/stream?n=1000").whole
        reply = slow.read()
        assert len(reply.body) == n * 1024
        assert reply.whole
    h.wait_event("done", "/flood", 200)
    names = [e[0] for e in h.app.events if e[1] == "/flood" and e[0] in ("pause", "resume")]
    assert names[::2] == ["pause"] * len(names[::2])
    assert names[1::2] == ["resume"] * len(names[1::2])
    assert ("abort", "/flood") not in h.app.events


def test_a_client_that_reads_nothing_is_cut_off(serve: Any) -> None:
    h = serve(write_timeout=0.2)
    with h.connect() as c:
        c.send(GET.format("/flood?n=1000000").encode())
        h.wait_event("abort", "/flood")
        h.wait_event("done", "/flood", 200)
    h.wait_quiet()


def test_pings_into_a_full_buffer_are_no_progress(serve: Any, until: Any) -> None:
    h = serve(write_timeout=0.2)
    with h.connect() as c:
        c.send(GET.format("/hold").encode())
        exchange = h.held()
        h.on_loop(lambda: exchange.begin(200, "text/event-stream"))

        def fill() -> bool:
            if not exchange.paused:
                exchange.write(b"x" * 65536)
            return bool(exchange.paused)

        def ping() -> bool:
            h.on_loop(lambda: exchange.write(b": ping\n\n"))
            return bool(exchange.closed)

        until(lambda: h.on_loop(fill), "a paused stream")
        until(ping, "the client to be cut off")
    h.wait_event("abort", "/hold")


def test_a_whole_answer_that_nobody_reads_is_cut_off(serve: Any) -> None:
    h = serve(write_timeout=0.2)
    with h.connect() as c:
        c.send(GET.format("/big?n=50000000").encode())
        h.wait_event("done", "/big", 200)
        h.wait_quiet()
        assert not c.read().whole


def test_a_client_that_reads_slowly_is_not_cut_off(serve: Any) -> None:
    h = serve(write_timeout=2.0)
    n = 16_000
    with h.connect() as c:
        c.send(GET.format(f"/flood?n={n}").encode())
        h.wait_event("pause", "/flood")
        for _ in range(120):  # for longer than the timeout in all
            time.sleep(0.02)
            assert c._more()
        assert ("abort", "/flood") not in h.app.events
        assert len(c.read().body) == n * 1024


def test_pipelining_waits_for_a_client_that_does_not_read(serve: Any, until: Any) -> None:
    h = serve()
    n = 60
    with h.connect() as c:
        c.send(GET.format("/big?n=1000000").encode() * n)
        connection = h.connection()
        until(lambda: connection.flow.write_paused, "a full buffer")
        done = len(h.app.requests)
        time.sleep(0.2)
        assert len(h.app.requests) == done < n
        for _ in range(n):
            assert len(c.read().body) == 1_000_000


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize(
    ("sent", "events"),
    [
        ("", []),
        ("GET /hel", []),
        ("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc", [("done", "/echo", 499)]),
        (
            "POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            [("done", "/echo", 499)],
        ),
        (
            "POST /private HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc",
            [("done", "/private", 401)],
        ),
        (GET.format("/hold"), [("request", "/hold"), ("abort", "/hold"), ("done", "/hold", 499)]),
        (
            GET.format("/hold") + GET.format("/hello"),
            [("request", "/hold"), ("abort", "/hold"), ("done", "/hold", 499)],
        ),
        (GET.format("/hello"), [("request", "/hello"), ("done", "/hello", 200)]),
    ],
)
def test_a_client_vanishes(
    serve: Any, until: Any, how: str, sent: str, events: list[tuple[Any, ...]]
) -> None:
    h = serve()
    with h.connect() as c:
        c.send(sent.encode())
        until(lambda: h.server.n_connections == 1, "the connection")
        if "/hold" in sent:
            h.held()
        elif "/private" in sent or "/hello" in sent:
            c.read()
        else:
            # The server must have seen the bytes, or a reset would swallow them.
            until(lambda: h.server.n_active == len(events), "the bytes")
        {"close": c.sock.close, "reset": c.reset, "half": lambda: c.sock.shutdown(socket.SHUT_WR)}[how]()
        h.wait_quiet()
    assert h.app.events == events


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_vanishes_from_a_stream(serve: Any, until: Any, how: str) -> None:
    h = serve()
    with h.connect() as c:
        c.send(GET.format("/hold").encode())
        exchange = h.held()
        h.on_loop(lambda: exchange.begin(200, "text/plain"))
        h.on_loop(lambda: exchange.write(b"abc"))
        until(lambda: c._more() and b"abc" in c.buffer, "the first piece")
        {"close": c.sock.close, "reset": c.reset}[how]()
        h.wait_quiet()
    assert exchange.closed
    h.on_loop(
        lambda: (
            exchange.write(b"late"),
            exchange.end(),
            exchange.send(Response()),
            exchange.fail(Response()),
        )
    )
    assert h.app.events == [("request", "/hold"), ("abort", "/hold"), ("done", "/hold", 200)]


def test_two_hundred_clients_vanish_mid_stream(serve: Any, until: Any) -> None:
    h = serve()
    clients = [h.connect() for _ in range(200)]
    for c in clients:
        c.send(GET.format("/hold").encode())
    until(lambda: len(h.app.held) == 200, "all requests")
    h.on_loop(lambda: [e.begin(200, "text/plain") for e in h.app.held])
    h.on_loop(lambda: [e.write(b"x") for e in h.app.held])
    for c in clients:
        c.reset()
    h.wait_quiet()
    assert h.app.events.count(("abort", "/hold")) == 200
    assert h.app.events.count(("done", "/hold", 200)) == 200


def test_a_failing_handler_is_a_500_and_the_connection_lives(serve: Any, caplog: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.get("/boom").status == 500
        assert c.get("/head-boom").status == 500
        assert c.get("/hello").status == 200
        assert c.get("/hello", "X-Done-Boom: 1").status == 200
        assert c.get("/hello").status == 200
        assert c.post("/max-boom", b"abc").status == 500
        assert c.at_end()
    for text in ("the handler fails", "on_head fails", "on_done fails", "body_max fails"):
        assert text in caplog.text
    assert h.app.events[:3] == [("request", "/boom"), ("abort", "/boom"), ("done", "/boom", 500)]


def test_a_handler_that_fails_late_cuts_its_stream_off(serve: Any, caplog: Any) -> None:
    h = serve()
    with h.connect() as c:
        reply = c.get("/late-boom")
        assert (reply.status, reply.body, reply.whole) == (200, b"part", False)
        assert c.at_end()
    h.wait_event("done", "/late-boom", 200)
    with h.connect() as c:
        # Over HTTP/1.0 the end of the connection is the end of the body: only a reset shows that it is not whole.
        c.send(b"GET /late-boom HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            list(iter(lambda: c.sock.recv(1000), b""))
    h.wait_quiet()


def test_callbacks_that_fail_are_logged_and_nothing_leaks(serve: Any, caplog: Any) -> None:
    h = serve()

    def fail() -> None:
        raise RuntimeError("the callback fails")

    with h.connect() as c:
        c.send(GET.format("/hold").encode())
        h.held().on_abort = fail
    h.wait_quiet()
    assert "the callback fails" in caplog.text
    h.wait_event("done", "/hold", 499)


def test_an_application_that_cannot_even_make_errors(serve: Any, caplog: Any) -> None:
    h = serve()

    def fail(status: int, message: str, request: object = None) -> Response:
        raise RuntimeError("error() fails")

    h.app.error = fail
    with h.connect() as c:
        assert c.get("/boom").status == 500
        c.send(b"nonsense\r\n\r\n")
        reply = c.read()
        assert reply.status == 400
        assert reply.body.startswith(b'{"error":{"code":400')
    assert "error() fails" in caplog.text


def test_writes_after_the_answer_are_dropped(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.get("/twice").body == b"first"
        assert c.get("/hello").body == b"hello "
    h.wait_quiet()
    assert h.app.events.count(("done", "/twice", 200)) == 1


def test_calls_out_of_order_are_mistakes_of_the_application(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send(GET.format("/hold").encode())
        exchange = h.held()
        for call in (lambda: exchange.write(b"x"), exchange.end):
            with pytest.raises(RuntimeError):
                h.on_loop(call)
        h.on_loop(lambda: exchange.begin(200, "text/plain"))
        for call in (lambda: exchange.begin(200, "text/plain"), lambda: exchange.send(Response())):
            with pytest.raises(RuntimeError):
                h.on_loop(call)
        h.on_loop(exchange.end)
        assert c.read().whole


def test_fail_answers_or_cuts_off(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send(GET.format("/hold").encode())
        first = h.held()
        h.on_loop(lambda: first.fail(Response(503, b"no")))
        assert c.read().status == 503
        c.send(GET.format("/hold").encode())
        second = h.held(2)
        h.on_loop(lambda: second.begin(200, "text/plain"))
        h.on_loop(lambda: second.fail(Response(503, b"no")))
        assert not c.read().whole
    h.wait_quiet()
    assert not [e for e in h.app.events if e[0] == "abort"]


def test_large_answers_arrive_whole(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        for n in (0, 1, 65_535, 65_536, 65_537, 3_000_000):
            assert len(c.get(f"/big?n={n}").body) == n


def test_many_clients_at_once(serve: Any) -> None:
    h = serve()
    bad: list[Any] = []

    def work(k: int) -> None:
        with h.connect() as c:
            for i in range(20):
                name = f"{k}.{i}"
                if c.get(f"/hello?name={name}").body != f"hello {name}".encode():
                    bad.append(name)
                if c.post("/echo", name.encode() * 100).body != name.encode() * 100:
                    bad.append(name)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert bad == []


def n_segments(sock: socket.socket) -> int:
    """Of data that have come: Linux's tcpi_data_segs_in."""
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[152:156], sys.byteorder)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_piece_that_is_there_leaves_with_the_head_and_with_the_end(serve: Any, version: str) -> None:
    h = serve()
    with h.connect() as c:
        c.send(f"GET /hold HTTP/{version}\r\nHost: test\r\n\r\n".encode())
        exchange = h.held()
        h.on_loop(lambda: exchange.begin(200, "text/plain", data=b"one"))
        assert c.read_head().status == 200
        assert n_segments(c.sock) == 1
        h.on_loop(lambda: exchange.write(b"two"))
        h.on_loop(lambda: exchange.end(b"three"))
        h.wait_event("done", "/hold", 200)
        assert exchange.sent_bytes == 11
        assert n_segments(c.sock) == 3
        assert c.buffer == (b"one" if version == "1.0" else b"3\r\none\r\n")
        assert c.sock.recv(100, socket.MSG_WAITALL if version == "1.0" else 0) == (
            b"twothree" if version == "1.0" else b"3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"
        )


def test_a_stream_with_a_length_keeps_to_it(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.send(GET.format("/hold").encode())
        exchange = h.held()

        def write() -> None:
            exchange.begin(200, "text/plain", data=b"12", length=5)
            exchange.write(b"34")
            with pytest.raises(RuntimeError, match="more than"):
                exchange.write(b"56")
            with pytest.raises(RuntimeError, match="before all"):
                exchange.end()
            exchange.end(b"5")

        h.on_loop(write)
        reply = c.read()
        assert (reply.body, reply.headers["content-length"]) == (b"12345", "5")
        assert "transfer-encoding" not in reply.headers
        assert c.get("/hello?name=you").status == 200  # the connection goes on
        c.send(GET.format("/hold").encode())
        short = h.held(2)
        h.on_loop(lambda: short.begin(200, "text/plain", data=b"12", length=5))
        h.on_loop(lambda: short.fail(Response(500)))
        assert not c.read().whole
