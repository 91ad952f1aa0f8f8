"""Large bodies: into memory that the application gives, and out of it in pieces without a copy."""

from __future__ import annotations

import gc
import hashlib
import random
from typing import Any

import pytest

from llamad.http.exchange import _PIECE

BODY = random.Random(1).randbytes(3 * _PIECE + 17)


def all_freed(h: Any) -> bool:
    gc.collect()
    return all(memory() is None for memory in h.app.memories)


def chunked(body: bytes, sizes: int) -> bytes:
    pieces = [body[i : i + sizes] for i in range(0, len(body), sizes)]
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


HEAD = b"POST /into HTTP/1.1\r\nHost: test\r\n"


def test_a_body_with_a_length_goes_into_the_applications_memory(serve: Any, until: Any) -> None:
    h = serve()
    with h.connect() as c:
        for n in (1, 100, 70_000, len(BODY)):
            reply = c.post("/into", BODY[:n])
            assert (reply.status, reply.body) == (200, BODY[:n])
            assert reply.headers["content-length"] == str(n)
        assert c.get("/hello").status == 200
    assert len(h.app.memories) == 4
    until(lambda: all_freed(h), "freed memory")


def test_a_chunked_body_goes_there_too_up_to_the_limit(serve: Any) -> None:
    h = serve(body_max_bytes=200_000)
    with h.connect() as c:
        for sizes in (1000, 65536):
            c.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY[:150_000], sizes))
            reply = c.read()
            assert (reply.status, reply.body) == (200, BODY[:150_000])
        c.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % 200_001)
        assert c.read().status == 413


def test_bytes_one_by_one_arrive_as_well(serve: Any) -> None:
    h = serve(bytewise=True)
    with h.connect() as c:
        assert c.post("/into", BODY[:500]).body == BODY[:500]
        c.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY[:500], 7))
        assert c.read().body == BODY[:500]


def test_pipelined_requests_keep_their_own_bodies(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        one = HEAD + b"Content-Length: 5\r\n\r\nfirst"
        two = b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nsecond"
        c.send(one + two + one)
        assert [c.read().body for _ in range(3)] == [b"first", b"second", b"first"]


def test_a_client_that_leaves_half_way_frees_the_memory(serve: Any, until: Any) -> None:
    h = serve()
    for framing in (b"Content-Length: 100000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n8000\r\n"):
        c = h.connect()
        c.send(HEAD + framing + b"x" * 500)
        until(lambda: len(h.app.memories) > 0, "a body that has begun")
        c.reset()
        h.wait_quiet()
        until(lambda: all_freed(h), "freed memory")
        h.app.memories.clear()
    assert ("done", "/into", 499) in h.app.events


@pytest.mark.parametrize(("how", "status"), [("full", 503), ("boom", 500), ("odd", 500)])
def test_memory_that_is_refused_or_wrong_answers_before_the_body(serve: Any, how: str, status: int) -> None:
    h = serve()
    with h.connect() as c:
        c.send(f"POST /into?how={how} HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n".encode())
        reply = c.read()
        assert reply.status == status
        assert reply.headers["connection"] == "close"


def test_a_refused_small_body_is_read_past(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        assert c.post("/into?how=full", b"x" * 1000).status == 503
        assert c.get("/hello").status == 200


@pytest.mark.parametrize("tls", [False, True])
def test_a_large_answer_comes_whole_in_pieces(serve: Any, tls: bool) -> None:
    h = serve(tls=tls)
    with h.connect() as c:
        reply = c.post("/into", BODY)
        assert hashlib.sha256(reply.body).digest() == hashlib.sha256(BODY).digest()
        n = 5 * _PIECE
        assert c.get(f"/big?n={n}").body == b"x" * n
        assert c.get(f"/big?n={n}", method="HEAD").headers["content-length"] == str(n)
        assert c.get("/hello").status == 200
    h.wait_quiet()
    assert h.lines[0].split('"')[2].split()[1] == str(len(BODY))


def test_a_large_answer_waits_for_its_reader_without_copies(serve: Any, until: Any) -> None:
    h = serve()
    n = 64 * _PIECE
    with h.connect() as c:
        c.send(
            f"GET /big?n={n} HTTP/1.1\r\nHost: test\r\n\r\nGET /hello HTTP/1.1\r\nHost: test\r\n\r\n".encode()
        )
        connection = h.connection()
        until(lambda: connection.flow.write_paused, "a full socket")
        waiting = h.on_loop(connection._transport.get_write_buffer_size)
        assert waiting <= 2 * _PIECE
        assert h.on_loop(lambda: h.server.n_active) == 1  # not done until its last piece is handed over
        assert len(c.read().body) == n
        assert c.read().body.startswith(b"hello")


def test_a_reader_that_leaves_within_a_large_answer_ends_it(serve: Any, until: Any) -> None:
    h = serve()
    c = h.connect()
    c.send(b"GET /big?n=%d HTTP/1.1\r\nHost: test\r\n\r\n" % (64 * _PIECE))
    connection = h.connection()
    until(lambda: connection.flow.write_paused, "a full socket")
    c.reset()
    h.wait_quiet()
    assert ("abort", "/big") in h.app.events
    assert ("done", "/big", 200) in h.app.events
