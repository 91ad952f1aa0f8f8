"""Clients behind proxies: only trusted ones are believed, and nothing that a client sends makes it another."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.http.errors import HttpError
from llamad.http.proxies import LINE_MAX, MARK, REST_MAX, Proxied, Proxies

TRUSTED = ("127.0.0.0/24", "10.0.0.0/8", "fd00::/8")
STRANGER = "127.0.9.9"
CLIENT = "203.0.113.7"
V1 = b"PROXY TCP4 %s 192.0.2.1 5555 80\r\n"
GET = b"GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"


def v2(command: int = 0x21, family: int = 0x11, rest: bytes = b"") -> bytes:
    return MARK + bytes([command, family]) + len(rest).to_bytes(2, "big") + rest


TCP4 = bytes([203, 0, 113, 7, 192, 0, 2, 1]) + (5555).to_bytes(2, "big") + (80).to_bytes(2, "big")
TCP6 = bytes.fromhex("20010db8" + "00" * 11 + "07" + "00" * 16) + b"\x15\xb3\x00\x50"


def proxied(*networks: str, speaks_first: bool = False, peer: Any = ("127.0.0.1", 9)) -> Proxied:
    connection = Proxies(networks or TRUSTED, speaks_first).meet(peer)
    assert connection is not None
    return connection


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ({}, "127.0.0.1:9"),
        ({"x-forwarded-for": CLIENT}, f"{CLIENT}:0"),
        ({"x-forwarded-for": f"{CLIENT}:77"}, f"{CLIENT}:77"),
        # What a client claims stands before what the proxies add.
        ({"x-forwarded-for": f"1.1.1.1, {CLIENT}"}, f"{CLIENT}:0"),
        ({"x-forwarded-for": f"1.1.1.1, {CLIENT}, 10.1.2.3,10.0.0.1"}, f"{CLIENT}:0"),
        ({"x-forwarded-for": f"127.0.0.1, {CLIENT}"}, f"{CLIENT}:0"),
        ({"x-forwarded-for": "10.0.0.7, 10.0.0.8"}, "10.0.0.7:0"),
        ({"x-forwarded-for": "2001:db8::7"}, "[2001:db8::7]:0"),
        ({"x-forwarded-for": "[2001:db8::7]:77"}, "[2001:db8::7]:77"),
        ({"x-forwarded-for": f"::ffff:{CLIENT}"}, f"{CLIENT}:0"),
        ({"x-forwarded-for": "1.1.1.1, ::ffff:10.0.0.9"}, "1.1.1.1:0"),
        # Nothing before what cannot be read is believed.
        ({"x-forwarded-for": "1.1.1.1, unknown, 10.0.0.1"}, "10.0.0.1:0"),
        ({"x-forwarded-for": "1.1.1.1, evil.example"}, "127.0.0.1:9"),
        ({"x-forwarded-for": "999.1.1.1"}, "127.0.0.1:9"),
        ({"x-forwarded-for": "fe80::1%eth0"}, "127.0.0.1:9"),
        ({"x-forwarded-for": ""}, "127.0.0.1:9"),
        ({"x-forwarded-for": ",,,"}, "127.0.0.1:9"),
        ({"forwarded": f"for={CLIENT};proto=https;by=10.0.0.1"}, f"{CLIENT}:0"),
        ({"forwarded": f'for=1.1.1.1, proto=http;For="{CLIENT}:77"'}, f"{CLIENT}:77"),
        ({"forwarded": 'for="[2001:db8::7]:77", for=10.0.0.1'}, "[2001:db8::7]:77"),
        ({"forwarded": "for=1.1.1.1, for=_hidden"}, "127.0.0.1:9"),
        ({"forwarded": "for=1.1.1.1, proto=https"}, "127.0.0.1:9"),
        ({"forwarded": f'for="1.1.1.1, for={CLIENT}'}, f"{CLIENT}:0"),
        ({"forwarded": "for=1.1.1.1", "x-forwarded-for": CLIENT}, f"{CLIENT}:0"),
    ],
)
def test_the_client_is_the_first_that_is_no_trusted_proxy(headers: dict[str, str], client: str) -> None:
    one = proxied()
    assert one.client(headers) == client
    assert one.client({}) == "127.0.0.1:9"  # the next request on the connection is another client's


@given(st.text(alphabet='0123456789abcdef:.,[]"%; for=\t\x00', max_size=80))
def test_no_header_breaks_it_or_forges_a_log_line(text: str) -> None:
    for name in ("x-forwarded-for", "forwarded"):
        client = proxied().client({name: text})
        assert client.isascii()
        assert client.isprintable()
        assert " " not in client


def test_who_is_trusted() -> None:
    proxies = Proxies(("10.0.0.0/8", "fd00::1"))
    trusted: list[object] = [("10.9.9.9", 1), ("::ffff:10.9.9.9", 1, 0, 0), ("fd00::1", 1, 0, 0)]
    others: list[object] = [("11.0.0.1", 1), ("fd00::2", 1, 0, 0), "", None]
    assert all(proxies.meet(peer) is not None for peer in trusted)
    assert not any(proxies.meet(peer) is not None for peer in others)
    assert Proxies(("unix",)).meet("") is not None
    assert Proxies(("unix",)).meet(("127.0.0.1", 1)) is None


@pytest.mark.parametrize(
    ("preface", "client"),
    [
        (V1 % CLIENT.encode(), f"{CLIENT}:5555"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 5555 80\r\n", "[2001:db8::7]:5555"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1:9"),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "127.0.0.1:9"),
        (v2(rest=TCP4), f"{CLIENT}:5555"),
        (v2(rest=TCP4 + b"\x03\x00\x04abcd"), f"{CLIENT}:5555"),
        (v2(family=0x21, rest=TCP6), "[2001:db8::7]:5555"),
        (v2(command=0x20, rest=TCP4), "127.0.0.1:9"),
        (v2(family=0x00), "127.0.0.1:9"),
        (v2(family=0x31, rest=bytes(216)), "127.0.0.1:9"),
    ],
)
def test_the_proxy_protocol_whole_and_byte_by_byte(preface: bytes, client: str) -> None:
    one = proxied(speaks_first=True)
    assert one.feed(preface + GET) == GET
    assert one.name == client
    other = proxied(speaks_first=True)
    for i in range(len(preface) - 1):
        assert other.feed(preface[i : i + 1]) is None
        assert other.awaits_preface
    assert other.feed(preface[-1:]) == b""
    assert not other.awaits_preface
    assert other.name == client


@pytest.mark.parametrize(
    "preface",
    [
        GET,
        b"PROXZ",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 99999999\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 99999 2\r\n",
        b"PROXY TCP4 ::1 ::2 1 2\r\n",
        b"PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP4 1.1.1.256 2.2.2.2 1 2\r\n",
        b"PROXY TCP4  1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n",
        b"PROXY TCP4 " + b"1" * LINE_MAX,
        MARK[:4] + b"GET",
        v2(command=0x11, rest=TCP4),
        v2(command=0x22, rest=TCP4),
        v2(rest=TCP4[:-1]),
        v2(family=0x21, rest=TCP4),
        v2(rest=bytes(REST_MAX + 1)),
    ],
)
def test_what_is_not_the_proxy_protocol_is_refused(preface: bytes) -> None:
    with pytest.raises(HttpError) as raised:
        proxied(speaks_first=True).feed(preface)
    assert raised.value.status == 400
    assert "--proxy-protocol" in raised.value.message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for start in (b"", b"PROXY ", MARK):
        try:
            rest = proxied(speaks_first=True).feed(start + data)
        except HttpError:
            continue
        assert rest is None or (start + data).endswith(rest)


# On the wire.


def test_only_trusted_proxies_are_believed(serve: Any, until: Any) -> None:
    h = serve(proxies=Proxies(TRUSTED))
    with h.connect() as proxy, h.connect(STRANGER) as stranger:
        assert proxy.get("/hello", f"X-Forwarded-For: {CLIENT}").status == 200
        assert proxy.get("/hello").status == 200
        assert stranger.get("/hello", f"X-Forwarded-For: {CLIENT}").status == 200
    peers = [request.peer.rpartition(":")[0] for request in h.app.requests]
    assert peers == [CLIENT, "127.0.0.1", STRANGER]
    until(lambda: len(h.lines) == 3, "the access log")
    assert [line.split(" ")[0].rpartition(":")[0] for line in h.lines] == peers


def test_a_trusted_proxy_has_no_limit_of_one_address(serve: Any) -> None:
    h = serve(proxies=Proxies(TRUSTED), address_connections_max=2)
    with ExitStack() as stack:
        for i in range(4):
            stack.enter_context(h.connect()).send(b"GET /hold HTTP/1.1\r\nHost: test\r\n\r\n")
            h.held(i + 1)
        for i in range(2):
            stack.enter_context(h.connect(STRANGER)).send(b"GET /hold HTTP/1.1\r\nHost: test\r\n\r\n")
            h.held(i + 5)
        assert stack.enter_context(h.connect(STRANGER)).read().status == 503


def test_connections_with_the_proxy_protocol_count_for_their_client(serve: Any) -> None:
    h = serve(proxies=Proxies(TRUSTED, speaks_first=True), address_connections_max=2)
    with ExitStack() as stack:
        for i in range(2):
            c = stack.enter_context(h.connect())
            c.send(V1 % CLIENT.encode() + b"GET /hold HTTP/1.1\r\nHost: test\r\n\r\n")
            h.held(i + 1)
        third = stack.enter_context(h.connect())
        third.send(v2(rest=TCP4))
        assert third.read().status == 503
        other = stack.enter_context(h.connect())
        other.send(V1 % b"203.0.113.8")
        # The client itself is no proxy: its header is not believed.
        assert other.get("/hello", "X-Forwarded-For: 1.1.1.1").status == 200
        assert h.app.requests[-1].peer == "203.0.113.8:5555"


def test_the_proxy_protocol_is_for_trusted_proxies(serve: Any) -> None:
    h = serve(proxies=Proxies(TRUSTED, speaks_first=True), header_timeout=0.3)
    with h.connect() as c:
        assert c.get("/hello").status == 400
    with h.connect(STRANGER) as c:
        c.send(V1 % CLIENT.encode() + GET)
        assert c.read().status == 400
    with h.connect(STRANGER) as c:
        assert c.get("/hello").status == 200
    with h.connect() as c:
        c.send(b"PROXY TCP4 ")
        assert c.read().status == 408


def test_over_a_unix_socket(serve: Any, tmp_path: Any) -> None:
    h = serve(host=str(tmp_path / "s.sock"), proxies=Proxies(("unix",)))
    with h.connect() as c:
        assert c.get("/hello", f"X-Forwarded-For: {CLIENT}").status == 200
        assert c.get("/hello").status == 200
    assert [request.peer for request in h.app.requests] == [f"{CLIENT}:0", "unix"]
