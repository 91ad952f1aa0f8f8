"""A head that was read before is served from a cache. It must be the very head that the client sent: whatever comes
before it, however it is cut, and whoever sent what before."""

from __future__ import annotations

from typing import Any

import pytest


def get(name: bytes) -> bytes:
    return b"GET /hello?name=%b HTTP/1.1\r\nHost: test\r\n\r\n" % name


def post(name: bytes) -> bytes:
    return b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%b" % (len(name), name)


BLANKS = [b"", b"\r\n", b"\n", b"\r\n\r\n", b"\n\n", b"\r", b"\r\r\n\r\n", b"\r\n\r\n\r\n\r\n"]


@pytest.mark.parametrize("bytewise", [False, True])
@pytest.mark.parametrize("blank", BLANKS)
def test_blank_lines_before_a_request_are_no_part_of_its_key(
    serve: Any, blank: bytes, bytewise: bool
) -> None:
    # The cache's key once ended at the first empty line: after "\r\n\r\n" and a request, every request behind an
    # empty line was answered with the first one's head, whoever sent it.
    h = serve(bytewise=bytewise)
    with h.connect() as one, h.connect() as two:
        for round in range(3):
            name = b"one%d" % round
            one.send(blank + get(name) + blank + post(name))
            assert one.read().body == b"hello " + name
            assert one.read("POST").body == name
            two.send(blank + get(b"two") + blank + post(b"twotwo"))
            assert two.read().body == b"hello two"
            assert two.read("POST").body == b"twotwo"


@pytest.mark.parametrize("blank", BLANKS)
def test_a_request_cut_at_every_byte_is_not_taken_for_another(serve: Any, blank: bytes) -> None:
    h = serve()
    first, second = blank + get(b"first"), blank + get(b"second")
    with h.connect() as one, h.connect() as two:
        for n in range(len(first) + 1):
            one.send(first[:n])
            # A whole request of another client in between, then one that begins with the same bytes.
            two.send(second)
            assert two.read().body == b"hello second"
            one.send(first[n:] + second)
            assert one.read().body == b"hello first"
            assert one.read().body == b"hello second"


def test_every_prefix_of_a_request_then_another_client(serve: Any) -> None:
    # Whatever the first client leaves behind, the next one's request is its own.
    h = serve()
    sent = b"\r\n\r\n" + get(b"left") + b"\r\n" + post(b"left") + b"\r\n\r\n" + get(b"over")
    for n in range(len(sent) + 1):
        with h.connect() as one, h.connect() as two:
            one.send(sent[:n])
            two.send(b"\r\n\r\n" + get(b"mine") + sent[: min(n, 4)] + get(b"also"))
            assert [two.read().body, two.read().body] == [b"hello mine", b"hello also"]
