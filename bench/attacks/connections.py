"""Attacks with connections: many of them, slow readers, and bytes that are not a request."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time

from bench.attacks.sending import ATTACKER, TLS, Attack, Run, at_once, body_of
from bench.client import Address

QUERY = b"GET /health?" + b"a&" * 16_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
LINES = b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 250 + b"\r\n"
PIPELINED_BYTES = 8 << 20


def busy(address: Address) -> None:
    while True:
        random.random()


def idle_connections(address: Address) -> None:
    held = []
    while True:
        try:
            held.append(socket.create_connection(address, timeout=5))
        except OSError:
            time.sleep(0.01)
        if len(held) > 15_000:
            held.clear()


def half_requests(address: Address) -> None:
    held = []
    while True:
        try:
            one = socket.create_connection(address, timeout=5)
            one.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
            held.append(one)
        except OSError:
            time.sleep(0.01)
        if len(held) > 15_000:
            held.clear()


def stalled_readers(address: Address) -> None:
    body = body_of(prompt="x", n_predict=4000, ignore_eos=True, stream=True, n_probs=50)
    held = []
    for _ in range(16):
        one = socket.create_connection(address, timeout=5)
        head = f"POST /completion HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ATTACKER}\r\n"
        one.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        held.append(one)
    while True:
        time.sleep(1)


def noise(address: Address) -> None:
    chance = random.Random(1)
    while True:
        try:
            with socket.create_connection(address, timeout=5) as one:
                one.sendall(chance.randbytes(20_000))
                one.recv(1000)
        except OSError:
            pass


def pipelined(head: bytes) -> Run:
    """Return an attack that sends pipelined requests without a key."""
    data = head * (PIPELINED_BYTES // len(head))

    def attack(address: Address) -> None:
        while True:
            try:
                with socket.create_connection(address, timeout=5) as one:
                    one.setblocking(False)
                    rest = memoryview(data)
                    while rest:
                        rest = rest[_exchange(one, rest) :]
            except OSError:
                time.sleep(0.01)

    return attack


def _exchange(one: socket.socket, rest: memoryview) -> int:
    """Send what the server accepts, and drop its responses."""
    n = 0
    try:
        n = one.send(rest[: 1 << 16])
    except BlockingIOError:
        time.sleep(0.001)
    try:
        if not one.recv(1 << 20):
            raise ConnectionResetError
    except BlockingIOError:
        pass
    return n


def key_updates(address: Address) -> None:
    """Update the TLS keys with openssl's client as fast as possible. Does nothing without openssl."""
    program = shutil.which("openssl")
    while True:
        if program is None:
            time.sleep(1)
            continue
        command = [program, "s_client", "-connect", f"{address[0]}:{address[1]}", "-tls1_3"]
        nothing = subprocess.DEVNULL
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing)
        assert client.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the server has closed the connection, as it should
            while True:
                os.write(client.stdin.fileno(), b"K\n" * 1000)
        client.kill()
        client.wait()


def _streaming(address: Address, i: int, n_predict: int, n_read: int) -> None:
    """Start a resumable stream, and disconnect after n_read bytes."""
    body = body_of(prompt="x", n_predict=n_predict, ignore_eos=True, stream=True)
    head = (
        f"POST /completion HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ATTACKER}\r\n"
        f"X-Conversation-Id: {i}-{random.random()}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    try:
        with socket.create_connection(address, timeout=60) as one:
            one.sendall(head.encode() + body)
            while n_read > 0 and (data := one.recv(n_read)):
                n_read -= len(data)
    except OSError:
        time.sleep(0.01)


ATTACKS: dict[str, Attack] = {
    "none": Attack(None),
    "a busy core": Attack(busy, n_processes=1),
    "TLS, nothing": Attack(None, server=TLS),
    "TLS key updates": Attack(key_updates, server=TLS),
    "queries of 32 KB, pipelined": Attack(pipelined(QUERY)),
    "250 header lines, pipelined": Attack(pipelined(LINES)),
    "abandoned streams": Attack(at_once(4, lambda address, i: _streaming(address, i, 4000, 1))),
    "one-token streams": Attack(at_once(8, lambda address, i: _streaming(address, i, 1, 100_000))),
    "stalled readers": Attack(stalled_readers),
    "idle connections": Attack(idle_connections),
    "half requests": Attack(half_requests),
    "noise": Attack(noise),
}
