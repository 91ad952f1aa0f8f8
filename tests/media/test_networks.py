"""Which addresses files may be fetched from. Nothing here connects: `connections` replaces what would."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from llamad.media.sources import web
from llamad.media.sources.errors import SourceError
from llamad.media.sources.networks import is_public

# The first and the last address of every special-purpose block.
REFUSED = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.31.196.0", "192.31.196.255"),
    ("192.52.193.0", "192.52.193.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("192.175.48.0", "192.175.48.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.255"),
    ("::", "::1"),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    ("100::", "100::ffff:ffff:ffff:ffff"),
    ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff"),
    ("2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
]
ALLOWED = ["1.1.1.1", "9.255.255.255", "100.128.0.0", "172.32.0.0", "192.0.1.0", "223.255.255.255"]
ALLOWED += ["2001:200::1", "2606:4700::1111", "2a00:1450::1"]
# How an address of version 6 can carry one of version 4; Teredo's carries its server's, too.
FORMS = {
    "mapped": lambda inside: IPv6Address(0xFFFF << 32 | inside),
    "compatible": lambda inside: IPv6Address(inside),
    "NAT64": lambda inside: IPv6Address(int(IPv6Address("64:ff9b::")) | inside),
    "6to4": lambda inside: IPv6Address(0x2002 << 112 | inside << 80 | 1),
    "Teredo's host": lambda inside: IPv6Address(0x20010000 << 96 | 0x01010101 << 64 | (~inside & 0xFFFFFFFF)),
    "Teredo's server": lambda inside: IPv6Address(0x20010000 << 96 | inside << 64 | 0xFEFEFEFE),
}


@pytest.mark.parametrize(("first", "last"), REFUSED)
def test_special_purpose_blocks_are_refused(first: str, last: str) -> None:
    assert not is_public(ip_address(first))
    assert not is_public(ip_address(last))


@pytest.mark.parametrize("address", ALLOWED)
def test_public_hosts_are_allowed(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize("form", FORMS)
def test_an_address_is_judged_by_the_one_inside(form: str) -> None:
    for inside in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.0.0.192"):
        assert not is_public(FORMS[form](int(IPv4Address(inside)))), inside
    assert is_public(FORMS[form](int(IPv4Address("1.1.1.1"))))


@pytest.mark.parametrize(
    "host", ["192.0.0.192", "168.63.129.16", "[fec0::1]", "[::ffff:192.0.0.192]", "[64:ff9b:1::1]"]
)
def test_nothing_is_sent_to_a_refused_address(host: str, connections: list[str]) -> None:
    """Python 3.11.7 counted 192.0.0.192, the metadata of a cloud, and fec0::/10 as public."""
    with pytest.raises(SourceError, match="is not a public host"):
        asyncio.run(web.fetch(f"http://{host}/", 1000))
    assert connections == []


def test_a_public_address_is_connected_to(connections: list[str]) -> None:
    with pytest.raises(SourceError, match="cannot be reached"):
        asyncio.run(web.fetch("http://1.1.1.1/", 1000))
    assert connections == ["1.1.1.1"]
