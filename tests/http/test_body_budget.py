"""Memory for bodies: one budget for all clients, in which whoever holds most gives way."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

POST = b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
LIMITS = {"body_max_bytes": 100_000, "bodies_max_bytes": 300_000}
STRANGER = "127.0.0.2"


def unfinished(h: Any, stack: ExitStack, n: int, source: str = "", chunked: bool = False) -> Any:
    """A client that has sent n bytes of a body that goes on."""
    c = stack.enter_context(h.connect(source))
    c.send(CHUNKED + b"%x\r\n" % 100_000 if chunked else POST % 100_000)
    c.send(b"x" * n)
    return c


def test_bytes_count_as_they_come_and_until_they_are_let_go(serve: Any, until: Any) -> None:
    h = serve(**LIMITS)
    with ExitStack() as stack:
        c = unfinished(h, stack, 10_000)
        until(lambda: h.server.budget.n_bytes == 10_000, "10,000 bytes")
        c.send(b"y" * 90_000)
        assert len(c.read("POST").body) == 100_000
        until(lambda: h.server.budget.n_bytes == 0, "an empty budget")
        c = unfinished(h, stack, 10_000, chunked=True)
        until(lambda: h.server.budget.n_bytes == 10_000, "10,000 bytes of a chunk")
        c.reset()
        until(lambda: h.server.budget.n_bytes == 0, "nothing")
        # The application holds a body that came whole with its head: it counts too, until it is answered.
        c = stack.enter_context(h.connect())
        c.send(b"POST /hold HTTP/1.1\r\nHost: test\r\nContent-Length: 500\r\n\r\n" + b"z" * 500)
        exchange = h.held()
        assert h.server.budget.n_bytes == 500
        h.on_loop(lambda: exchange.fail(h.app.error(500, "")))
        c.read()
        until(lambda: h.server.budget.n_bytes == 0, "an empty budget")


@pytest.mark.parametrize("chunked", [False, True])
def test_the_largest_gives_way(serve: Any, until: Any, chunked: bool) -> None:
    h = serve(**LIMITS)
    with ExitStack() as stack:
        large = [unfinished(h, stack, 95_000 + i, chunked=chunked) for i in range(3)]
        until(lambda: h.server.budget.n_bytes == 285_003, "three bodies")
        small = stack.enter_context(h.connect())
        assert small.post("/echo", b"s" * 20_000).body == b"s" * 20_000
        reply = large[2].read("POST")
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert b"300000 bytes" in reply.body
        assert large[2].at_end()
        until(lambda: h.server.budget.n_bytes == 190_001, "the two that are left")
        for i in (0, 1):
            large[i].send(b"x" * (5_000 - i) + (b"\r\n0\r\n\r\n" if chunked else b""))
            assert len(large[i].read("POST").body) == 100_000


def test_one_address_with_many_bodies_does_not_turn_others_away(serve: Any, until: Any) -> None:
    h = serve(**LIMITS)
    with ExitStack() as stack:
        honest = unfinished(h, stack, 50_000)
        until(lambda: h.server.budget.n_bytes == 50_000, "the honest one")
        for i in range(60):
            unfinished(h, stack, 10_000, STRANGER)
            seen = h.on_loop(lambda: h.server.budget.n_bytes)
            assert seen <= 300_000, i
        assert h.server.budget.n_refused > 0
        honest.send(b"x" * 50_000)
        assert len(honest.read("POST").body) == 100_000
        fresh = stack.enter_context(h.connect())
        assert len(fresh.post("/echo", b"f" * 100_000).body) == 100_000


def test_what_the_application_holds_is_not_taken_from_it(serve: Any, until: Any) -> None:
    h = serve(**LIMITS)
    with ExitStack() as stack:
        clients = []
        for i in range(3):
            c = stack.enter_context(h.connect())
            c.send(b"POST /hold HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n" + b"z" * 100_000)
            clients.append(c)
            h.held(i + 1)
        c = stack.enter_context(h.connect())
        reply = c.post("/echo", b"x")
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        for held in list(h.app.held):
            h.on_loop(lambda held=held: held.fail(h.app.error(500, "")))
        assert [c.read().status for c in clients] == [500] * 3
        with h.connect() as c:
            assert c.post("/echo", b"x").status == 200


def test_the_largest_body_of_a_route_fits_alone(serve: Any) -> None:
    h = serve(body_max_bytes=1_000, bodies_max_bytes=1_000)
    with h.connect() as c:
        assert len(c.post("/into?limit=2000000", b"x" * 2_000_000).body) == 2_000_000
        assert len(c.post("/echo?limit=3000000", b"x" * 3_000_000).body) == 3_000_000
        assert c.post("/echo", b"x" * 1_001).status == 413
