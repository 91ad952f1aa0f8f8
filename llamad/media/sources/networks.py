"""The networks from which no file is fetched: every special-purpose block of IPv4 and IPv6.

Pure functions; any thread. The lists are written out here, because those of Python's `ipaddress` differ between
releases. This must not resolve names.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address

_REFUSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by a provider's customers; the metadata service of one cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # a public address at which one cloud has internal services
            "169.254.0.0/16",  # link-local; the metadata service of most clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments; the metadata service of one cloud
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # multicast tunnels
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
# All of IPv6 that is assigned to public hosts. Loopback, private, link-local, site-local, discard-only,
# segment-routing and multicast addresses are outside of it, and so are networks that have no use yet.
_PUBLIC_6 = IPv6Network("2000::/3")
_REFUSED_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
# Networks whose addresses contain the IPv4 address of the real host, and how many bits follow it.
# 64:ff9b:1::/48 is not listed: each site chooses where its addresses contain one, so all of them are refused.
_CARRIERS = (
    (IPv6Network("::/96"), 0),  # IPv4-compatible; includes the unspecified address and loopback
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)
_TEREDO = IPv6Network("2001::/32")
_MASK = 2**32 - 1


def is_public(address: Address) -> bool:
    """Return whether the address is that of a public host. If it contains an IPv4 address, that one decides."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_4)
    inside = _carried(address)
    if inside:
        return all(map(is_public, inside))
    return address in _PUBLIC_6 and not any(address in network for network in _REFUSED_6)


def _carried(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses inside. A Teredo address has two: the server's, and the host's with inverted bits."""
    bits = int(address)
    if address in _TEREDO:
        return IPv4Address(bits >> 64 & _MASK), IPv4Address(~bits & _MASK)
    return tuple(IPv4Address(bits >> shift & _MASK) for network, shift in _CARRIERS if address in network)
