"""Owns the tests of the listening sockets: several hosts, shared ports, what counts as local."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from llamad.http.binding import Bound, Reach, bind, inherit

HAS_IPV6 = socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")
needs_ipv6 = pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6")


def ports(bound: Bound) -> set[int]:
    return {sock.getsockname()[1] for sock in bound.sockets if sock.family != socket.AF_UNIX}


def test_several_hosts_share_the_port_that_the_first_one_gets(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    bound = bind(("127.0.0.1", path, "127.0.0.2"), 0)
    try:
        (port,) = ports(bound)
        assert bound.urls("http") == f"http://127.0.0.1:{port}, unix:{path}, http://127.0.0.2:{port}"
        assert bound.reach == Reach.LOOPBACK
        for address in ("127.0.0.1", "127.0.0.2"):
            socket.create_connection((address, port), timeout=20).close()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
    finally:
        bound.close()
    assert not os.path.exists(path)


def test_one_address_under_two_names_is_bound_once() -> None:
    bound = bind(("127.0.0.1", "127.0.0.1"), 0)
    try:
        assert len(bound.sockets) == 1
    finally:
        bound.close()


def test_a_host_that_cannot_be_bound_leaves_none_open(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:"):
        bind((path, "192.0.2.1"), 0)
    assert not os.path.exists(path)


def test_who_can_connect_is_said_by_the_most_open_address(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    for hosts, reach in (
        (("0.0.0.0",), Reach.NETWORK),
        ((path,), Reach.FILES),
        ((path, "127.0.0.1"), Reach.LOOPBACK),
        ((path, "0.0.0.0"), Reach.NETWORK),
    ):
        bound = bind(hosts, 0)
        assert bound.reach == reach, hosts
        bound.close()


@needs_ipv6
def test_both_loopback_addresses() -> None:
    bound = bind(("127.0.0.1", "::1"), 0)
    try:
        (port,) = ports(bound)
        assert bound.urls("https") == f"https://127.0.0.1:{port}, https://[::1]:{port}"
        assert bound.reach == Reach.LOOPBACK
    finally:
        bound.close()


@needs_ipv6
def test_all_of_ipv6_alone_is_ipv4_too() -> None:
    bound = bind(("::",), 0)
    try:
        (port,) = ports(bound)
        assert bound.urls("http") == f"http://[::]:{port}"
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=20).close()
    finally:
        bound.close()


def test_a_port_is_shared_only_where_asked() -> None:
    first = bind(("127.0.0.1",), 0, reuse_port=True)
    (port,) = ports(first)
    second = bind(("127.0.0.1",), port, reuse_port=True)
    second.close()
    with pytest.raises(OSError, match="cannot listen"):
        bind(("127.0.0.1",), port)
    first.close()


def test_inherited_sockets_have_names_and_their_files_stay(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    sockets = [
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
    ]
    sockets[1].bind(path)
    sockets[2].bind("\0llamad-test-" + str(os.getpid()))
    for sock in sockets:
        sock.listen()
    bound = inherit([(os.dup(sock.fileno()), "name") for sock in sockets])
    port = sockets[0].getsockname()[1]
    assert bound.urls("http") == f"http://127.0.0.1:{port}, unix:{path}, unix:@llamad-test-{os.getpid()}"
    assert bound.is_inherited
    assert bound.reach == Reach.LOOPBACK
    bound.close()
    socket.create_connection(("127.0.0.1", port), timeout=20).close()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    for sock in sockets:
        sock.close()
