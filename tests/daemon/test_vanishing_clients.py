"""Clients that do nothing, and clients that leave: nothing is held for them afterwards."""

import socket
import struct
import time

import pytest
from support.live_daemon import Live

N_IDLE = 1000
N_VANISHING = 200
ROUNDS_MAX_BYTES = 5 << 20


@pytest.fixture(scope="module")
def server():
    with Live("-np", "4", "-c", "4096", "--queue-max", "300", "--metrics") as server:
        yield server


def vanish(server: Live, n: int) -> None:
    """So many streams at once, each cut off after its first bytes or while it waits; half of them by reset."""
    streams = []
    for i in range(n):
        stream = server.client.open_stream(
            {"prompt": f"Story number {i}:", "n_predict": 500, "ignore_eos": True}
        )
        streams.append(stream)
    for stream in streams[:3]:
        stream.recv(100)
    for i, stream in enumerate(streams):
        if i % 2:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.close()
    server.wait_idle()


def resting_descriptors(server: Live) -> int:
    """The number once it no longer changes: connections of finished requests close a moment later."""
    seen = [server.n_descriptors()]
    while len(seen) < 10 or len(set(seen[-10:])) > 1:
        time.sleep(0.02)
        seen.append(server.n_descriptors())
    return seen[-1]


def settled_descriptors(server: Live, expected: int) -> int:
    t_end = time.monotonic() + 30
    while server.n_descriptors() != expected and time.monotonic() < t_end:
        time.sleep(0.05)
    return server.n_descriptors()


def test_a_thousand_idle_connections_and_two_rounds_of_vanishing_clients(server):
    server.client.complete("warm up", n_predict=4)
    n_before = resting_descriptors(server)
    idle = [socket.create_connection((server.client.host, server.client.port)) for _ in range(N_IDLE)]
    for connection in idle:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for connection in idle:
        assert b"200 OK" in connection.recv(4096)
    memory = []
    for _ in range(2):
        vanish(server, N_VANISHING)
        assert settled_descriptors(server, n_before + N_IDLE) == n_before + N_IDLE
        memory.append(server.rss_bytes())
    assert memory[1] - memory[0] < ROUNDS_MAX_BYTES
    # The idle ones are still served.
    idle[0].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b'"slots_idle":4' in idle[0].recv(4096)
    for connection in idle:
        connection.close()
    assert settled_descriptors(server, n_before) == n_before
    metrics = server.client.get("/metrics").body.decode()
    aborted = float(metrics.split("\nllamad:aborted_total ")[1].split()[0])
    assert aborted == 2 * N_VANISHING
