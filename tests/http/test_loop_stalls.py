"""What a stranger without a key sends must not keep the event loop from others. The longest wait of another client is
measured meanwhile; the bound is far above what the work takes and far below what it took when it was unbounded."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.tls.authority import OPENSSL

from llamad.http.request import QUERY_MAX_BYTES, QUERY_PARAMETERS_MAX
from llamad.http.tls_records import TlsRecords

STALL_SECONDS = 2.0
FLOOD_BYTES = 4 << 20
HOST = b"Host: test\r\n"
LAST = b"GET /hello HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"


def padded(head: bytes, piece: bytes, n_bytes: int, rest: bytes) -> bytes:
    return head + piece * ((n_bytes - len(head) - len(rest)) // len(piece)) + rest


HEADS = {
    "parameters": padded(b"GET /hello?", b"a&", 32_000, b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    "escapes": padded(b"GET /hello?a=", b"%41", 32_000, b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    "unknown path": padded(b"GET /none?", b"a&", 32_000, b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    "path": padded(b"GET /", b"%41", 32_000, b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    # With an id, because equal heads need reading only once.
    "header lines": b"GET /hello HTTP/1.1\r\nX-Request-Id: 1\r\n" + HOST + b"a:\r\n" * 250 + b"\r\n",
    "long header lines": b"GET /hello HTTP/1.1\r\n" + HOST + (b"a:" + b"b" * 120 + b"\r\n") * 250 + b"\r\n",
    "short heads": b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n",
}


def longest_wait(h: Any, attack: Callable[[], None]) -> float:
    """The longest time that /hello took while `attack` ran in a thread."""
    waits = []
    thread = threading.Thread(target=attack)
    with h.connect() as kept:
        assert kept.get("/hello").status == 200
        thread.start()
        while thread.is_alive():
            start = time.monotonic()
            assert kept.get("/hello").status == 200
            waits.append(time.monotonic() - start)
            time.sleep(0.01)
    thread.join()
    return max(waits)


def flood(client: Any, data: bytes) -> None:
    """Send all of it, and read what comes back, until the server closes."""
    client.sock.settimeout(60)

    def read() -> None:
        with contextlib.suppress(OSError):
            while client.sock.recv(1 << 20):
                pass

    reader = threading.Thread(target=read)
    reader.start()
    with contextlib.suppress(OSError):
        client.sock.sendall(data)
    reader.join()


@pytest.mark.parametrize("name", HEADS)
def test_pipelined_heads_take_turns_with_other_connections(serve: Any, name: str) -> None:
    h = serve()
    head = HEADS[name]
    data = head * (FLOOD_BYTES // len(head)) + LAST
    with h.connect() as c:
        wait = longest_wait(h, lambda: flood(c, data))
    assert wait < STALL_SECONDS


def test_a_query_is_read_only_by_those_who_need_it(serve: Any) -> None:
    h = serve()
    with h.connect() as c:
        many, long = "&".join("a" * (QUERY_PARAMETERS_MAX + 1)), "name=" + "a" * QUERY_MAX_BYTES
        for query, status in ((many, 400), (long, 414)):
            reply = c.get(f"/hello?{query}")
            assert reply.status == status
            assert b"The query" in reply.body
            assert c.get(f"/none?{query}").status == 404
            assert c.get(f"/private?{query}").status == 401
            assert c.get(f"/items/x?{query}").body == b"x"
            # An endpoint may need it to say how large a body may be.
            with h.connect() as other:
                assert other.post(f"/echo?{query}", b"x").status == status
        most = "name=x" + "&a" * (QUERY_PARAMETERS_MAX - 1)
        assert c.get(f"/hello?{most}").body == b"hello x"
        longest = "name=" + "a" * (QUERY_MAX_BYTES - 5)
        assert len(c.get(f"/hello?{longest}").body) == QUERY_MAX_BYTES - 5 + 6


class KeyChanger:
    """An openssl client. Each change of keys makes the server derive keys, and answer with a change of its own."""

    def __init__(self, port: int) -> None:
        assert OPENSSL is not None
        command = [OPENSSL, "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_3"]
        self._output = os.memfd_create("output")
        self._program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._output, stderr=self._output
        )

    def __enter__(self) -> KeyChanger:
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        self._program.communicate()
        os.close(self._output)

    def write(self, data: bytes) -> None:
        assert self._program.stdin is not None
        self._program.stdin.write(data)
        self._program.stdin.flush()

    def output(self) -> bytes:
        return os.pread(self._output, 1 << 20, 0)

    def change_keys(self, seconds: float) -> bool:
        """Change keys again and again for so long, or until the server closes: then return True."""
        # It takes one command of each read, so a pipe that is always full is a command a turn of its loop.
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self.write(b"K\n" * 1000)
        except BrokenPipeError:
            return True
        return False


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_a_client_that_only_changes_keys_is_closed(serve: Any) -> None:
    h = serve(tls=True)
    is_closed = []
    with KeyChanger(h.port) as client:
        wait = longest_wait(h, lambda: is_closed.append(client.change_keys(5.0)))
    assert is_closed == [True]
    assert wait < STALL_SECONDS


@pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
def test_a_client_may_change_keys_between_requests(serve: Any, until: Any) -> None:
    h = serve(tls=True)
    with KeyChanger(h.port) as client:
        for n in range(1, 11):
            client.write(b"K\n")
            until(lambda n=n: client.output().count(b"KEYUPDATE") == n, "a change of keys")
            client.write(f"GET /hello?name=no-{n}! HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            until(lambda n=n: f"hello no-{n}!".encode() in client.output(), "an answer")


def test_records_are_counted_however_they_are_cut() -> None:
    """A record that is cut anywhere, in its header too, is one record."""
    sizes = [22, 0, 300, 1, 16_401, 22]
    stream = b"".join(b"\x17\x03\x03" + size.to_bytes(2) + b"x" * size for size in sizes)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for step in (1, 2, 3, 5, 7, 100, len(stream)):
            records = TlsRecords(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ours)
            for at in range(0, len(stream), step):
                records._count(stream[at : at + step])
            assert records._n_records == len(sizes)


def test_small_chunks_take_turns_with_other_connections(serve: Any) -> None:
    """A read of 256 KB with chunks of 20 bytes, and one of 64 KB with chunks of one, took 40 to 130 ms each."""
    h = serve()
    head = b"POST /echo HTTP/1.1\r\n" + HOST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    small, single = b"14\r\n" + b"x" * 20 + b"\r\n", b"1\r\nx\r\n"
    first = b"40000\r\n" + b"x" * 0x40000 + b"\r\n"
    with h.connect() as c:
        reply = []

        def send() -> None:
            c.send(head + first + single * 15_000 + small * 20_000 + b"0\r\n\r\n")
            reply.append(c.read())

        wait = longest_wait(h, send)
    assert reply[0].status == 200
    assert reply[0].body.count(b"x") == 0x40000 + 15_000 + 400_000
    assert wait < STALL_SECONDS
    with h.connect() as c:
        c.send(head + single * 20_000)
        reply = [c.read()]
    assert reply[0].status == 400
    assert b"too small" in reply[0].body
