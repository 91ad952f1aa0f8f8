"""Places for connections: a client that opens many and leaves them idle displaces its own, nobody else's."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import Any

import pytest

from llamad.http.limits import raise_nofile
from llamad.http.request import Response, address_of
from llamad.http.server import CLOSE_SLICE

GET = b"GET %b HTTP/1.1\r\nHost: test\r\n\r\n"
STRANGER = "127.0.0.2"
HALVES = [
    b"",
    b"G",
    b"GET /hello HTTP/1.1\r\nHost",
    b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nx",
]


def is_closed(c: Any) -> bool:
    """Whether the server has closed it, answered or not."""
    c.sock.settimeout(0.05)
    try:
        while c.sock.recv(65536):
            pass
        return True
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("sent", HALVES)
def test_a_flood_of_waiting_connections_leaves_others_served(serve: Any, until: Any, sent: bytes) -> None:
    h = serve(connections_max=20)
    with ExitStack() as stack:
        honest = [stack.enter_context(h.connect()) for _ in range(5)]
        for c in honest:
            assert c.get("/hello").status == 200
        waiting = stack.enter_context(h.connect())
        waiting.send(GET % b"/hold")
        h.held()
        flood = []
        for _ in range(60):
            c = stack.enter_context(h.connect(STRANGER))
            c.send(sent)
            flood.append(c)
            assert h.server.n_connections <= 20
        until(lambda: h.server.n_connections == 20, "a full table")
        for c in honest:
            assert c.get("/hello").status == 200
        for _ in range(5):
            c = stack.enter_context(h.connect())
            assert c.get("/hello").status == 200
        h.on_loop(lambda: h.app.held[0].send(Response(200, b"mine")))
        assert waiting.read().body == b"mine"
        # Of the flood the newest are left, and they are served too.
        assert all(is_closed(c) for c in flood[:30])
        if not sent:
            flood[-1].sock.settimeout(20)
            assert flood[-1].get("/hello").status == 200


def test_a_proxys_one_address_only_loses_what_has_been_idle_longest(serve: Any, until: Any) -> None:
    h = serve(connections_max=10)
    with ExitStack() as stack:
        clients = [stack.enter_context(h.connect()) for _ in range(10)]
        for c in clients[1:]:
            assert c.get("/hello").status == 200
        for c in clients[:2]:
            assert c.get("/hello").status == 200
        more = stack.enter_context(h.connect())
        assert more.get("/hello").status == 200
        assert clients[2].at_end()
        for c in (*clients[:2], *clients[3:], more):
            assert c.get("/hello").status == 200


def test_with_everyone_waiting_for_an_answer_newcomers_are_refused(serve: Any) -> None:
    h = serve(connections_max=2)
    with ExitStack() as stack:
        for i in range(2):
            stack.enter_context(h.connect()).send(GET % b"/hold")
            h.held(i + 1)
        with h.connect(STRANGER) as c:
            assert c.read().status == 503
        assert h.server.places.n_gave_way == 0


def test_a_limit_for_one_address(serve: Any) -> None:
    h = serve(address_connections_max=3)
    with ExitStack() as stack:
        mine = [stack.enter_context(h.connect()) for _ in range(2)]
        for c in mine:
            assert c.get("/hello").status == 200
        flood = [stack.enter_context(h.connect(STRANGER)) for _ in range(6)]
        assert [is_closed(c) for c in flood] == [True] * 3 + [False] * 3
        for i, c in enumerate(flood[3:]):
            c.send(GET % b"/hold")
            h.held(i + 1)
        with h.connect(STRANGER) as c:
            assert c.read().status == 503
        for c in mine:
            assert c.get("/hello").status == 200


def test_a_reader_that_takes_nothing_gives_way_as_well(serve: Any, until: Any) -> None:
    h = serve(connections_max=3)
    with ExitStack() as stack:
        for _ in range(3):
            c = stack.enter_context(h.connect(STRANGER))
            c.sock.setblocking(False)
            try:
                for _ in range(2000):
                    c.sock.send((GET % b"/big?n=50000") * 20)
            except BlockingIOError:
                pass
        until(lambda: all(c.flow.write_paused for c in list(h.server.connections)), "full buffers")
        with h.connect() as c:
            assert c.get("/hello").status == 200


def test_clients_that_leave_at_once_are_closed_in_slices(serve: Any, until: Any, monkeypatch: Any) -> None:
    """Ten thousand closings in one turn held the event loop for 60 ms."""
    raise_nofile(4096)
    h = serve()
    close_some, n_left = h.server._close_some, []

    def spy() -> None:
        n_left.append(len(h.server._left))
        close_some()

    monkeypatch.setattr(h.server, "_close_some", spy)
    clients = [h.connect() for _ in range(3 * CLOSE_SLICE)]
    until(lambda: h.server.n_connections == len(clients), "connections")

    def leave_while_the_loop_waits() -> None:
        for client in clients:
            client.sock.close()

    h.on_loop(leave_while_the_loop_waits)
    until(lambda: not h.server.connections, "closed connections")
    assert n_left == [2 * CLOSE_SLICE, CLOSE_SLICE]


def test_addresses() -> None:
    assert address_of(("10.1.2.3", 5)) == address_of(("::ffff:10.1.2.3", 6, 0, 0)) == "10.1.2.3"
    one, two = ("2001:db8::1", 5, 0, 0), ("2001:db8::ffff:2", 6, 0, 0)
    assert address_of(one) == address_of(two) != address_of(("2001:db8:0:1::1", 5, 0, 0))
    assert address_of(("fe80::1%eth0", 5, 0, 3)) == address_of(("fe80::2", 5, 0, 0))
    assert address_of("") == address_of(None) == "unix"


# TLS


def test_handshakes_have_places_and_give_them_up(serve: Any, until: Any) -> None:
    h = serve(tls=True, connections_max=5)
    with ExitStack() as stack:
        mine = stack.enter_context(h.connect())
        assert mine.get("/hello").status == 200
        silent = []
        for i in range(15):
            where = ("127.0.0.1", h.port)
            silent.append(
                stack.enter_context(socket.create_connection(where, 20, source_address=(STRANGER, 0)))
            )
            if i % 2:
                silent[-1].send(b"\x16\x03\x01")
        until(lambda: h.server.n_connections == 5, "a full table")
        assert len(h.server.connections) == 1
        for _ in range(3):
            with h.connect() as c:
                assert c.get("/hello").status == 200
        assert mine.get("/hello").status == 200
        assert silent[0].recv(10) == b""
    h.wait_quiet()


def test_a_handshake_has_a_time_limit(serve: Any) -> None:
    h = serve(tls=True, header_timeout=0.3)
    with socket.create_connection(("127.0.0.1", h.port), 20) as sock:
        t_start = time.monotonic()
        try:
            assert sock.recv(10) == b""
        except ConnectionResetError:
            pass
        assert 0.2 < time.monotonic() - t_start < 10
    h.wait_quiet()


def test_a_server_that_closes_does_not_wait_for_handshakes(serve: Any, until: Any) -> None:
    h = serve(tls=True, header_timeout=60)
    with socket.create_connection(("127.0.0.1", h.port), 20) as sock:
        until(lambda: h.server.n_connections == 1, "a handshake")
        t_start = time.monotonic()
        h.close()
        assert time.monotonic() - t_start < 5
        try:
            assert sock.recv(10) == b""
        except ConnectionResetError:
            pass
