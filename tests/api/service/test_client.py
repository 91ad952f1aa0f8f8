"""Who counts as one client: a key, else an address, of which an IPv6 network of 64 bits is one."""

from typing import Any

from llamad.api.service.service import Service
from llamad.http.request import Request


def client(peer: str, key: str = "") -> int:
    request = Request("GET", "/", {}, {}, "id", peer, 0.0)
    request.key_name = key
    unused: Any = None
    return Service.client(unused, request)


def test_a_client_is_a_key_or_an_address() -> None:
    assert client("10.0.0.1:1") == client("10.0.0.1:2") != client("10.0.0.2:1")
    assert client("[2001:db8::1]:1") == client("[2001:db8::ffff]:2") != client("[2001:db8:0:1::1]:1")
    assert client("unix") == client("unix") != client("10.0.0.1:1")
    assert client("10.0.0.1:1", "key-a") == client("10.0.0.2:1", "key-a") != client("10.0.0.1:1", "key-b")
