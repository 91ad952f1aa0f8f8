"""Invariants under random input. Whatever a client sends: nothing raises, nothing leaks, the next client is
served; and what is valid is answered in order however it is cut into packets."""

from __future__ import annotations

import time
from typing import Any

import httptools
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.http_wires import Wires, clients, pieces

from llamad.http.body import ChunkedBody
from llamad.http.errors import HttpError
from llamad.http.request_head import HeadReader, body_length

relaxed = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
pure = settings(max_examples=200, deadline=None)


@pytest.mark.parametrize("bytewise", [False, True])
def test_random_bytes_never_break_the_server(serve: Any, bytewise: bool) -> None:
    h = serve(bytewise=bytewise, header_max_bytes=500, body_max_bytes=1000)

    @relaxed
    @given(pieces)
    def attack(data: list[bytes]) -> None:
        with h.connect() as c:
            try:
                for piece in data:
                    c.send(piece)
            except OSError:
                pass  # the server has closed already
        with h.connect() as c:
            assert c.get("/hello").status == 200

    attack()
    h.wait_quiet()


def test_two_clients_are_answered_as_if_each_were_alone() -> None:
    """For long: fuzz/fuzz_http.py."""
    with Wires() as wires:

        @relaxed
        @given(clients)
        def talk(sent: Any) -> None:
            wires.check(*sent)

        talk()


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in packets of these sizes, the last one taking the rest."""
    packets = []
    for size in sizes:
        packets.append(data[:size])
        data = data[size:]
    return [p for p in (*packets, data) if p]


def make_request(kind: str, body: bytes, chunk: int) -> tuple[bytes, str, int, bytes]:
    """Bytes of a valid request, its method, and the status and body of its answer."""
    host = b"Host: test\r\n"
    if kind == "hello":
        name = body.hex().encode()
        return b"GET /hello?name=" + name + b" HTTP/1.1\r\n" + host + b"\r\n", "GET", 200, b"hello " + name
    if kind == "head":
        return b"HEAD /hello HTTP/1.1\r\n" + host + b"\r\n", "HEAD", 200, b""
    if kind == "missing":
        return b"GET /nowhere HTTP/1.1\r\n" + host + b"\r\n", "GET", 404, b""
    if kind == "chunked":
        parts = [body[i : i + chunk] for i in range(0, len(body), chunk)]
        framed = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
        head = b"POST /echo HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n"
        return head + framed, "POST", 200, body
    path = b"/private" if kind == "private" else b"/echo"
    head = b"POST " + path + b" HTTP/1.1\r\n" + host + b"Content-Length: %d\r\n\r\n" % len(body)
    return head + body, "POST", 401 if kind == "private" else 200, body


requests = st.lists(
    st.builds(
        make_request,
        st.sampled_from(["hello", "head", "missing", "chunked", "length", "private"]),
        st.one_of(st.binary(max_size=60), st.sampled_from([b"\r\n\r\n" * 5, b"GET / HTTP/1.1\r\n\r\n"])),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=25,
)


def test_valid_pipelined_requests_are_answered_in_order(serve: Any) -> None:
    h = serve()

    @relaxed
    @given(requests, st.lists(st.integers(1, 120), max_size=20))
    def talk(sent: list[tuple[bytes, str, int, bytes]], sizes: list[int]) -> None:
        with h.connect() as c:
            for packet in cut(b"".join(r[0] for r in sent), sizes):
                c.send(packet)
                time.sleep(0)
            for _, method, status, body in sent:
                reply = c.read(method)
                assert reply.status == status
                if status == 200:
                    assert reply.body == body

    talk()


def read_head(data: bytes, packets: list[bytes]) -> tuple[Any, ...]:
    """What a HeadReader makes of the packets: a refusal's status, the head, or nothing yet."""
    reader = HeadReader(120)
    n_read = 0
    try:
        for packet in packets:
            n_read += reader.feed(packet, 0)
            if reader.complete:
                fields = (reader.method(), reader.version(), reader.target, reader.headers)
                return "head", n_read, *fields, body_length(reader.method(), reader.version(), reader.headers)
    except HttpError as error:
        return "error", error.status
    return ("incomplete",)


@pure
@given(pieces, st.lists(st.integers(1, 9), max_size=30))
def test_a_head_reads_the_same_however_it_is_cut(data: list[bytes], sizes: list[int]) -> None:
    whole = b"".join(data)
    if not whole:
        return
    expected = read_head(whole, [whole])
    assert read_head(whole, cut(whole, sizes)) == expected
    assert read_head(whole, [whole[i : i + 1] for i in range(len(whole))]) == expected
    if expected[0] == "head":
        # No byte of what follows is taken.
        assert whole[: expected[1]].endswith(b"\r\n\r\n")


def test_a_heads_end_is_found_at_every_cut() -> None:
    # The end mark may lie across two or three reads, and the next request starts right behind it.
    head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    data = head + b"GET /next HTTP/1.1\r\n"
    expected = read_head(data, [data])
    assert expected[:2] == ("head", len(head))
    for i in range(1, len(data)):
        for j in range(i, len(data)):
            packets = [p for p in (data[:i], data[i:j], data[j:]) if p]
            assert read_head(data, packets) == expected, (i, j)


def read_chunks(packets: list[bytes]) -> tuple[Any, ...]:
    body = ChunkedBody(200)
    n_read = 0
    try:
        for packet in packets:
            n_read += body.feed(packet, 0)
            if body.done:
                return "body", n_read, body.take()
    except HttpError as error:
        return "error", error.status
    return ("incomplete",)


class Oracle:
    """httptools' own decoder of chunked bodies."""

    def __init__(self) -> None:
        self.body = b""
        self.complete = False

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


chunk_pieces = st.lists(
    st.one_of(
        st.builds(lambda b: b"%x\r\n%b\r\n" % (len(b), b), st.binary(min_size=1, max_size=20)),
        st.sampled_from(
            [b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"\r\n", b"3;x=y\r\nabc\r\n", b"fff\r\n", b"5 ", b"-"]
        ),
        st.binary(max_size=4),
    ),
    max_size=8,
)


@pure
@given(chunk_pieces, st.lists(st.integers(1, 9), max_size=30))
def test_chunks_read_the_same_however_they_are_cut_and_as_httptools_does(
    data: list[bytes], sizes: list[int]
) -> None:
    whole = b"".join(data)
    expected = read_chunks([whole])
    assert read_chunks(cut(whole, sizes)) == expected
    assert read_chunks([whole[i : i + 1] for i in range(len(whole))]) == expected
    if expected[0] != "body":
        return
    oracle = Oracle()
    parser = httptools.HttpRequestParser(oracle)
    parser.feed_data(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    parser.feed_data(whole[: expected[1] - 1])
    assert not oracle.complete
    parser.feed_data(whole[expected[1] - 1 : expected[1]])
    assert oracle.complete
    assert oracle.body == expected[2]
