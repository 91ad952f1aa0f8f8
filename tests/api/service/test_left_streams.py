"""Resumable streams whose clients have gone: they give way to requests that wait for a slot, and go on where none does.
And the finished ones of one key do not push out another's. Over the fake model, with two keys."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from support.fake_daemon import Faked

from llamad.api.service import unread_streams
from llamad.api.service.kept_streams import ENDED_MAX
from llamad.engine.testing.fake import Fake

MANY, ONE = ({"Authorization": f"Bearer {key}"} for key in ("many", "one"))
N_MANY = 60
N_CTX = 4096
ADMITTED_SECONDS = 20.0  # generous: it was minutes


def started(n_slots: int, decode_us: int = 20_000) -> Faked:
    """A stream of its takes 80 s."""
    flags = ("-np", str(n_slots), "--api-key", "many,one")
    return Faked(Fake(n_ctx=N_CTX, decode_us=decode_us), *flags, n_ctx=N_CTX)


@pytest.fixture(params=[1, 4])
def server(request: pytest.FixtureRequest) -> Iterator[Faked]:
    with started(request.param) as server:
        yield server


def send(server: Faked, id: str, n_predict: int = -1) -> socket.socket:
    body = json.dumps({"prompt": f"x {id}", "n_predict": n_predict, "stream": True}).encode()
    head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer many\r\nX-Conversation-Id: {id}\r\n"
    sock = socket.create_connection((server.client.host, server.client.port), 30)
    sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return sock


def leave(server: Faked, n: int) -> None:
    """So many streams begin or wait, and nobody reads them."""
    clients = [send(server, str(i)) for i in range(n)]
    server.until(lambda: len(server.engine.tasks) == n)
    for client in clients:
        client.close()


def running(server: Faked) -> int:
    return sum(1 for _ in server.daemon.service.kept_streams.running())


def test_another_key_is_admitted_soon(server: Faked) -> None:
    leave(server, N_MANY)
    t_start = time.monotonic()
    answer = server.client.post("/completion", {"prompt": "y", "n_predict": 1}, headers=ONE)
    assert answer.status == 200
    assert time.monotonic() - t_start < ADMITTED_SECONDS
    assert running(server) <= max(1, server.engine.n_slots // 2)
    ended = server.client.get(f"/v1/stream?conv_id={N_MANY - 1}", headers=MANY)
    assert b"Nobody read this stream" in ended.body


def test_where_nobody_waits_they_go_on() -> None:
    with started(2) as server:
        leave(server, 6)
        assert server.client.post("/tokenize", {"content": "y"}, headers=ONE).status == 200
        time.sleep(unread_streams.AWAY_SECONDS + 2 * unread_streams.WAITED_SECONDS)
        assert running(server) == 6


def test_those_that_are_read_do_not_give_way() -> None:
    with started(2, 2000) as server:
        readers = [send(server, str(i)) for i in range(2)]
        server.until(lambda: server.engine.n_idle() == 0)
        response = HTTPConnection(server.client.host, server.client.port, timeout=60)
        response.request("POST", "/completion", b'{"prompt": "y", "n_predict": 1}', ONE)
        end = time.monotonic() + unread_streams.AWAY_SECONDS + 2 * unread_streams.WAITED_SECONDS
        while time.monotonic() < end:
            for reader in readers:
                assert b"Nobody read" not in reader.recv(1 << 16)
        assert running(server) == 2
        for reader in readers:
            reader.close()
        assert response.getresponse().status == 200
        response.close()


def test_none_goes_on_unread_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_streams, "UNREAD_SECONDS", 1.0)
    with started(2) as server:
        leave(server, 2)
        server.until(lambda: running(server) == 0)
        ended = server.client.get("/v1/stream?conv_id=0", headers=MANY)
        assert b"Nobody has read this stream for 1 s" in ended.body


def test_many_finished_streams_push_out_none_of_another_key() -> None:
    with started(4, 0) as server:
        headers = {**ONE, "X-Conversation-Id": "mine"}
        body = {"prompt": "y", "n_predict": 1, "stream": True}
        assert server.client.post("/completion", body, headers=headers).status == 200
        connection = HTTPConnection(server.client.host, server.client.port, timeout=60)
        for i in range(ENDED_MAX + 6):
            headers = {**MANY, "X-Conversation-Id": str(i)}
            connection.request("POST", "/completion", json.dumps(body).encode(), headers)
            assert connection.getresponse().read()
        connection.close()
        assert server.client.get("/v1/stream?conv_id=mine", headers=ONE).status == 200
        assert server.client.get("/v1/stream?conv_id=0", headers=MANY).status == 404
        assert server.client.get(f"/v1/stream?conv_id={ENDED_MAX}", headers=MANY).status == 200
