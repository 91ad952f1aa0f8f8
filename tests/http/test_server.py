"""The server as a whole: limits on connections, drain and close, Unix sockets, TLS, CORS, the access log."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import ssl
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from httptools import HttpRequestParser
from support.http_wires import limits

from llamad.http import binding
from llamad.http.body import ChunkedBody, LengthBody
from llamad.http.connection import Connection
from llamad.http.cors import Cors
from llamad.http.errors import HttpError
from llamad.http.exchange import Exchange
from llamad.http.lifetime import Phase
from llamad.http.limits import raise_nofile
from llamad.http.request import Request, Response
from llamad.http.request_head import HeadReader
from llamad.http.server import HttpServer

GET = b"GET %b HTTP/1.1\r\nHost: test\r\n\r\n"


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_connections_beyond_the_limit_are_told_so(serve: Any, until: Any) -> None:
    h = serve(connections_max=3)
    clients = [h.connect() for _ in range(3)]
    for i, c in enumerate(clients):
        c.send(GET % b"/hold")  # clients that wait for an answer give no place up
        h.held(i + 1)
    for _ in range(2):
        with h.connect() as refused:
            reply = refused.read()
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert reply.headers["connection"] == "close"
            assert reply.headers["x-request-id"]
            assert b'"code":503' in reply.body
            assert refused.at_end()
    with h.connect() as refused:
        # A request that was already on its way does not cost the client its answer.
        refused.send(GET % b"/hello")
        assert refused.read().status == 503
    h.on_loop(lambda: h.app.held[0].send(Response(200, b"at last")))
    assert clients[0].read().body == b"at last"
    assert h.server.n_refused == 3
    clients[1].sock.close()
    until(lambda: h.server.n_connections == 2, "a free place")
    with h.connect() as c:
        assert c.get("/hello").status == 200
    for c in clients:
        c.sock.close()
    h.wait_quiet()


def test_a_crowd_beyond_the_limit_is_turned_away(serve: Any, until: Any) -> None:
    h = serve(connections_max=1)
    with h.connect() as inside:
        inside.send(GET % b"/hold")
        exchange = h.held()
        gc.collect()  # what earlier tests left
        before = n_descriptors()
        crowd = [h.connect() for _ in range(300)]
        until(lambda: h.server.n_refused == 300, "the crowd")
        assert [c.read().status for c in crowd] == [503] * 300
        for c in crowd:
            c.sock.close()
        until(lambda: n_descriptors() == before, "closed descriptors")
        h.on_loop(lambda: exchange.send(Response(200, b"inside")))
        assert inside.read().body == b"inside"


def test_a_thousand_idle_connections_leave_nothing(serve: Any, until: Any) -> None:
    raise_nofile(4096)
    h = serve()
    with h.connect() as first:
        assert first.get("/hello").status == 200
        before = n_descriptors()
        clients = [h.connect() for _ in range(1000)]
        for c in clients:
            c.send(GET % b"/hello")
        for c in clients:
            assert c.read().status == 200
        assert h.server.n_connections == 1001
        assert first.get("/hello").status == 200
        for c in clients:
            c.sock.close()
        until(lambda: h.server.n_connections == 1, "closed connections")
        until(lambda: n_descriptors() == before, "closed descriptors")


def test_the_kernel_looks_for_dead_peers(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.get("/hello").status == 200
        sock = h.connection()._transport.get_extra_info("socket")
        assert h.on_loop(lambda: sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) != 0


def test_a_lingering_connection_still_sends_a_large_answer_whole(
    serve: Any, monkeypatch: Any, until: Any
) -> None:
    monkeypatch.setattr("llamad.http.lifetime.LINGER_SECONDS", 0.1)
    monkeypatch.setattr("llamad.http.exchange._PIECE", 2**30)  # all of it waits in the transport
    h = serve()
    with h.connect() as c:
        close = b"GET /big?n=20000000 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
        c.send(close + GET % b"/hello")
        h.wait_event("done", "/big", 200)
        connection = h.connection()
        until(lambda: connection.phase == Phase.CLOSED, "the end of lingering")
        assert c.read().whole


def test_an_idle_connection_keeps_no_parser(serve: Any, until: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.get("/hello").status == 200
        connection = h.connection()
        until(lambda: connection._head is None, "a parser given back")
        assert not connection.may_be_due
        assert c.get("/hello").status == 200


def test_nothing_of_a_request_outlives_it(serve: Any, until: Any) -> None:
    # Without the collector: what refers to itself in a circle would pile up under load.
    h = serve()
    kinds = (Exchange, Request, HeadReader, HttpRequestParser, LengthBody, ChunkedBody, Connection, HttpError)
    gc.collect()
    gc.disable()
    try:
        for last in (
            b"",
            b"nonsense\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 300,
        ):
            with h.connect() as c:
                for _ in range(20):
                    assert c.get("/hello").status == 200
                    assert c.get("/stream").status == 200
                    assert c.post("/echo", b"abc").status == 200
                    assert c.get("/nowhere").status == 404
                c.send(last)
                assert not last or c.read().status >= 400
        h.wait_quiet()
        h.app.requests.clear()
        until(lambda: not any(isinstance(o, kinds) for o in gc.get_objects()), "objects to be freed")
    finally:
        gc.enable()


@pytest.mark.parametrize("tls", [False, True])
def test_whoever_was_accepted_is_served_when_no_others_are(serve: Any, until: Any, tls: bool) -> None:
    h = serve(tls=tls)
    with socket.create_connection(("127.0.0.1", h.port), 20) as sock:
        until(lambda: h.server.n_connections == 1, "the connection")
        h.on_loop(h.server.stop_accepting)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", h.port))
        if tls:  # its handshake has not begun
            context = ssl.create_default_context(cafile=Path(__file__).with_name("tls_for_tests_only.pem"))
            sock = context.wrap_socket(sock, server_hostname="localhost")
        sock.sendall(GET % b"/hello")
        data = b""
        while piece := sock.recv(65536):
            data += piece
        assert data.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nConnection: close\r\n" in data
        sock.close()


def test_drain(serve: Any) -> None:
    h = serve()
    idle, fresh, waiting, streaming, reading = (h.connect() for _ in range(5))
    assert idle.get("/hello").status == 200
    waiting.send(GET % b"/hold")
    held_waiting = h.held()
    streaming.send(GET % b"/hold")
    held_streaming = h.held(2)
    h.on_loop(lambda: held_streaming.begin(200, "text/plain"))
    reading.send(b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\na")
    while h.on_loop(lambda: h.server.n_active) < 3:
        time.sleep(0.005)
    h.on_loop(h.server.stop_listening)
    assert idle.at_end()
    assert fresh.at_end()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", h.port))
    h.on_loop(lambda: held_waiting.send(Response(200, b"late")))
    reply = waiting.read()
    assert (reply.body, reply.headers["connection"]) == (b"late", "close")
    assert waiting.at_end()
    h.on_loop(lambda: held_streaming.write(b"more"))
    h.on_loop(held_streaming.end)
    reply = streaming.read()
    assert (reply.body, reply.whole) == (b"more", True)
    assert streaming.at_end()
    reading.send(b"bc")
    reply = reading.read()
    assert (reply.body, reply.headers["connection"]) == (b"abc", "close")
    assert reading.at_end()
    h.wait_quiet()
    for c in (idle, fresh, waiting, streaming, reading):
        c.sock.close()


def test_before_the_drain_connections_close_after_their_response(serve: Any) -> None:
    h = serve()
    with h.connect() as idle, h.connect() as waiting:
        assert "connection" not in idle.get("/hello").headers
        waiting.send(GET % b"/hold")
        held = h.held()
        h.on_loop(h.server.end_keep_alive)
        reply = idle.get("/hello")
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert idle.at_end()
        h.on_loop(lambda: held.send(Response(200, b"late")))
        assert waiting.read().headers["connection"] == "close"
        assert waiting.at_end()
    with h.connect() as late:
        assert late.get("/hello").headers["connection"] == "close"
        assert late.at_end()


def test_close_gives_up_what_is_in_flight(serve: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("llamad.http.exchange._PIECE", 2**30)  # all of it waits in the transport
    h = serve()
    with h.connect() as waiting, h.connect() as streaming, h.connect() as slow:
        waiting.send(GET % b"/hold")
        h.held()
        streaming.send(GET % b"/hold")
        exchange = h.held(2)
        h.on_loop(lambda: exchange.begin(200, "text/plain"))
        h.on_loop(lambda: exchange.write(b"part"))
        slow.send(GET % b"/big?n=50000000")
        h.wait_event("done", "/big", 200)
        h.close(grace=0.2)
        assert h.server.n_connections == 0
        assert waiting.at_end()
        reply = streaming.read()
        assert (reply.body, reply.whole) == (b"part", False)
    events = [e for e in h.app.events if e[1] == "/hold"]
    assert events[2:] in (
        [("abort", "/hold"), ("done", "/hold", 499), ("abort", "/hold"), ("done", "/hold", 200)],
        [("abort", "/hold"), ("done", "/hold", 200), ("abort", "/hold"), ("done", "/hold", 499)],
    )


def test_close_lets_written_answers_leave(serve: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("llamad.http.exchange._PIECE", 2**30)  # all of it is written
    h = serve()
    with h.connect() as c:
        c.send(GET % b"/big?n=20000000")
        h.wait_event("done", "/big", 200)
        closing = asyncio.run_coroutine_threadsafe(h.server.close(20), h.loop)
        assert c.read().whole
        closing.result(20)


def test_listening_on_a_taken_port_is_one_sentence(serve: Any) -> None:
    h = serve()
    other = HttpServer(h.app, limits(), Cors(), None)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{h.port}: "):
        asyncio.run_coroutine_threadsafe(other.listen(("127.0.0.1",), h.port), h.loop).result(20)


def test_ipv6(serve: Any) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    h = serve(host="::1")
    assert re.fullmatch(r"http://\[::1\]:\d+", h.where)
    with socket.create_connection(("::1", h.port)) as sock:
        sock.sendall(GET % b"/hello")
        assert sock.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    h.wait_quiet()
    assert h.lines[0].startswith("[::1]:")


# Unix sockets


def test_unix_socket(serve: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "llamad.sock")
    h = serve(host=path)
    assert h.where == f"unix:{path}"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o660
    with h.connect() as c:
        assert c.get("/hello").status == 200
        assert h.app.requests[-1].peer == "unix"
        c.send(GET % b"/hold")
        h.held()
    h.wait_event("abort", "/hold")
    h.close()
    assert not os.path.exists(path)


def test_a_stale_unix_socket_is_replaced(serve: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "llamad.sock")
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(path)
    h = serve(host=path)
    with h.connect() as c:
        assert c.get("/hello").status == 200


def test_a_unix_socket_in_use_or_another_file_is_left_alone(serve: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "llamad.sock")
    h = serve(host=path)
    other = HttpServer(h.app, limits(), Cors(), None)
    with pytest.raises(OSError, match="another process listens there"):
        asyncio.run_coroutine_threadsafe(other.listen((path,), 0), h.loop).result(20)
    with h.connect() as c:
        assert c.get("/hello").status == 200
    file = tmp_path / "file.sock"
    file.write_text("precious")
    with pytest.raises(OSError, match="is not a socket"):
        asyncio.run_coroutine_threadsafe(other.listen((str(file),), 0), h.loop).result(20)
    assert file.read_text() == "precious"
    with pytest.raises(OSError, match=r"cannot listen on .*: "):
        asyncio.run_coroutine_threadsafe(other.listen((str(tmp_path / "no" / "x.sock"),), 0), h.loop).result(
            20
        )
    with pytest.raises(OSError, match=r"cannot listen on .*: "):
        asyncio.run_coroutine_threadsafe(other.listen(("/" + "x" * 200 + ".sock",), 0), h.loop).result(20)


def test_a_unix_socket_that_another_process_took_over_is_not_removed(serve: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "llamad.sock")
    h = serve(host=path)
    os.unlink(path)
    with socket.socket(socket.AF_UNIX) as heir:
        heir.bind(path)
        h.close()
        assert os.path.exists(path)


# TLS


def test_tls(serve: Any) -> None:
    h = serve(tls=True)
    assert h.where.startswith("https://")
    big = b"q" * 2_000_000
    with h.connect() as c:
        assert c.get("/hello").status == 200
        assert c.post("/echo", big).body == big
        assert c.get("/stream?n=500").whole
        assert len(c.get("/flood?n=3000").body) == 3000 * 1024
        c.send((GET % b"/hello") * 20)
        assert [c.read().status for _ in range(20)] == [200] * 20
        c.send(b"nonsense\r\n\r\n")
        assert c.read().status == 400
    with h.connect() as c:
        c.send(GET % b"/hold")
        h.held()
    h.wait_event("abort", "/hold")
    h.wait_quiet()


def test_tls_survives_clients_that_speak_plain_http(serve: Any) -> None:
    h = serve(tls=True)
    with socket.create_connection(("127.0.0.1", h.port)) as sock:
        sock.settimeout(20)
        sock.sendall(GET % b"/hello")
        try:
            assert not sock.recv(1000).startswith(b"HTTP")
        except ConnectionResetError:
            pass
    with h.connect() as c:
        assert c.get("/hello").status == 200


def test_tls_slow_reader_is_cut_off(serve: Any) -> None:
    h = serve(tls=True, write_timeout=0.2)
    with h.connect() as c:
        c.send(GET % b"/flood?n=1000000")
        h.wait_event("pause", "/flood")
        h.wait_event("abort", "/flood")


# The access log


def test_access_log(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        c.get("/hello?name=secret", "X-Request-Id: id-1", "X-Key: alice")
        c.post("/echo", b"a secret prompt", "X-Request-Id: id-2")
        c.get("/stream?n=2", "X-Request-Id: id-3")
        c.get("/a%0Ab%22c%20d%5C%C3%A9%E2%82%AC", "X-Request-Id: id-4", "X-Key: a b")
        c.get("/" + "a" * 1000, "X-Request-Id: id-5")
        c.send(b"secret nonsense\r\n\r\n")
        c.read()
    h.wait_quiet()
    assert not any("secret" in line or "\n" in line for line in h.lines)
    peer = r"127\.0\.0\.1:\d+"
    for line, pattern in zip(
        h.lines,
        [
            rf'{peer} id-1 "GET /hello" 200 12 \d+\.\dms alice',
            rf'{peer} id-2 "POST /echo" 200 15 \d+\.\dms -',
            rf'{peer} id-3 "GET /stream" 200 18 \d+\.\dms -',
            rf'{peer} id-4 "GET /a\\x0ab\\x22c\\x20d\\x5c\\xe9\\u{{20ac}}" 404 \d+ \d+\.\dms a\\x20b',
            rf'{peer} id-5 "GET /a{{199}}\.\.\." 404 \d+ \d+\.\dms -',
            rf'{peer} [0-9a-f-]+ "- -" 400 \d+ \d+\.\dms -',
        ],
        strict=True,
    ):
        assert re.fullmatch(pattern, line), line


def test_an_access_log_that_fails_costs_nobody_an_answer(serve: Any, caplog: Any) -> None:
    h = serve()

    def fail(exchange: Any, seconds: float) -> None:
        raise OSError("no space left")

    h.server._access_log = fail
    with h.connect() as c:
        assert c.get("/hello").status == 200
        assert c.get("/hello").status == 200
        h.wait_event("done", "/hello", 200)
        h.on_loop(lambda: None)
    assert "no space left" in caplog.text
    h.wait_quiet()
    h.lines.extend(["", ""])  # the two that could not be written


@pytest.mark.parametrize(
    ("number", "sentence", "told"),
    [
        (98, "cannot listen: in use", "cannot listen: in use; choose another --host or --port"),
        (17, "cannot listen: no socket; remove it first", "cannot listen: no socket; remove it first"),
    ],
)
def test_a_refusal_to_listen_ends_with_what_to_do(number: int, sentence: str, told: str) -> None:
    assert binding.refusal(OSError(number, sentence)) == told


def test_who_connects_before_the_server_runs_is_served_when_it_does(serve: Any) -> None:
    h = serve()
    bound = binding.bind(("127.0.0.1",), 0)
    with socket.create_connection(bound.sockets[0].getsockname()[:2], timeout=20) as early:
        early.sendall(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
        asyncio.run_coroutine_threadsafe(h.server.listen(("127.0.0.1",), 0, bound), h.loop).result(20)
        assert early.recv(4096).startswith(b"HTTP/1.1 200")
