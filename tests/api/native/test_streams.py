"""A client that leaves a stream comes back and reads on; every dialect, over HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest
from support.fake_daemon import Faked
from support.http_client import TIMEOUT, Answer

from llamad.api.native.streams import IDS_MAX, READERS_MAX
from llamad.api.service.kept_streams import ID_MAX
from llamad.engine.testing.fake import Fake

SAY = [{"role": "user", "content": "x"}]
A, B = {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}
PROMPTS: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "x"},
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": SAY},
    "/v1/messages": {"messages": SAY},
    "/v1/responses": {"input": "x"},
}
LIMITS = {"/v1/responses": "max_output_tokens"}


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    flags = ("-np", "2", "--api-key", "a,b", "--stream-buffer-bytes", "4096")
    with Faked(Fake(n_ctx=512, decode_us=2000), *flags) as server:
        server.client.headers = A
        yield server


def begin(
    server: Faked,
    id: str,
    path: str = "/completion",
    n: int = 100,
    sock: socket.socket | None = None,
    **fields: Any,
) -> HTTPResponse:
    """A stream that has begun."""
    connection = HTTPConnection(server.client.host, server.client.port, timeout=TIMEOUT)
    connection.sock = sock
    body = {**PROMPTS[path], "stream": True, "temperature": 0, LIMITS.get(path, "max_tokens"): n, **fields}
    connection.request("POST", path, json.dumps(body).encode(), {**A, "X-Conversation-Id": id})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return response


def read_on(server: Faked, id: str, offset: int | str = 0, **options: Any) -> Answer:
    return server.client.get(f"/v1/stream?conv_id={id}&from={offset}", **options)


def looked_up(server: Faked, *ids: str, **options: Any) -> list[dict[str, Any]]:
    answer = server.client.post("/v1/streams/lookup", {"conversation_ids": ids}, **options)
    assert answer.status == 200
    streams: list[dict[str, Any]] = answer.json
    return streams


@pytest.mark.parametrize("path", PROMPTS)
def test_the_same_bytes_again(server: Faked, path: str) -> None:
    data = begin(server, "same", path, 20).read()
    again = read_on(server, "same")
    assert (again.status, again.headers["content-type"]) == (200, "text/event-stream")
    assert again.body == data
    assert read_on(server, "same", 30).body == data[30:]
    assert read_on(server, "same", len(data) + 1).body == b""


def test_a_client_that_leaves_and_comes_back(server: Faked) -> None:
    response = begin(server, "left", "/v1/chat/completions")
    begun = response.read1(200)
    response.close()
    whole = read_on(server, "left").body  # while it goes on
    assert whole.startswith(begun)
    assert whole.endswith(b"data: [DONE]\n\n")
    assert b'"finish_reason":"length"' in whole
    assert read_on(server, "left", len(begun)).body == whole[len(begun) :]


def test_lookup_and_other_keys(server: Faked) -> None:
    data = begin(server, "mine::model", n=5).read()
    begin(server, "minetoo", n=5).read()
    (found,) = looked_up(server, "mine", "unknown", "")
    assert (found["conversation_id"], found["is_done"], found["total_bytes"]) == (
        "mine::model",
        True,
        len(data),
    )
    assert 0 < found["started_at"] <= found["completed_at"]
    assert looked_up(server, "mine::model") == [found]
    assert looked_up(server, "mine", headers=B) == []
    assert read_on(server, "mine::model", headers=B).error["type"] == "not_found_error"
    assert server.client.request("DELETE", "/v1/stream?conv_id=mine::model", headers=B).status == 204
    assert looked_up(server, "mine") == [found]
    for _ in range(2):
        assert server.client.request("DELETE", "/v1/stream?conv_id=mine::model").status == 204
        assert read_on(server, "mine::model").status == 404


@pytest.mark.parametrize("how", ["delete", "another"])
def test_stopped(server: Faked, how: str) -> None:
    """By its client, or by the next message of the conversation."""
    response = begin(server, "stop", "/v1/chat/completions", n=400)
    first = response.read1(100)
    (found,) = looked_up(server, "stop")
    assert (found["is_done"], found["completed_at"]) == (False, 0)
    if how == "delete":
        assert server.client.request("DELETE", "/v1/stream?conv_id=stop").status == 204
    else:
        begin(server, "stop", n=1).read()
    rest = response.read()  # ends properly
    assert first
    assert b"[DONE]" not in rest
    server.until(lambda: server.engine.n_idle() == 2)


def test_the_readers_of_a_stream_are_bounded(server: Faked) -> None:
    """Each event is written to all of them at once: ten thousand would hold up everybody at each token."""
    first = begin(server, "read by many", n=400)
    connections = []
    try:
        for _ in range(READERS_MAX - 1):
            connection = HTTPConnection(server.client.host, server.client.port, timeout=TIMEOUT)
            connections.append(connection)
            connection.request("GET", "/v1/stream?conv_id=read%20by%20many", headers=A)
            assert connection.getresponse().status == 200
        refused = server.client.get("/v1/stream?conv_id=read%20by%20many")
        assert refused.status == 429
        assert "64 readers" in refused.error["message"]
    finally:
        for connection in connections:
            connection.close()
        first.close()
    assert server.client.request("DELETE", "/v1/stream?conv_id=read%20by%20many").status == 204


def test_a_slow_client_does_not_stop_its_generation(server: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is larger than the kernel's buffers: the client's window is full long before the end."""
    store = server.daemon.service.kept_streams
    monkeypatch.setattr(store, "_stream_bytes_max", 32 << 20)
    sock = socket.socket()
    sock.settimeout(TIMEOUT)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((server.client.host, server.client.port))
    response = begin(server, "slow", n=480, sock=sock, n_probs=100)
    server.until(lambda: looked_up(server, "slow")[0]["is_done"])
    (stream,) = (one for key in store._keys for one in store.of_key(key) if one.id == "slow")
    assert stream.readers  # it has not had everything
    assert response.read() == read_on(server, "slow").body


def test_a_request_that_fails_at_once_leaves_nothing(server: Faked) -> None:
    server.fake.fail_next(-3, n_times=2)
    headers = {"X-Conversation-Id": "failed"}
    body = {"prompt": "x", "stream": True}
    assert server.client.post("/completion", body, headers=headers).status == 500
    assert looked_up(server, "failed") == []
    assert server.client.post("/completion", {**body, "stream": False, "n_predict": 2}, headers=headers).json
    assert looked_up(server, "failed") == []


def test_many_ids_are_looked_up(server: Faked) -> None:
    """190,000 took half a second of the event loop."""
    for id in ("first", "second::model"):
        begin(server, id, n=2).read()
    ids = ["second", *(f"id {i}" for i in range(IDS_MAX - 3)), "first", "second"]
    assert [one["conversation_id"] for one in looked_up(server, *ids)] == ["second::model", "first"]
    refused = server.client.post("/v1/streams/lookup", {"conversation_ids": [*ids, "more"]})
    assert (refused.status, f"at most {IDS_MAX} entries" in refused.error["message"]) == (400, True)


def test_refused(server: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    assert '"conv_id"' in server.client.get("/v1/stream").error["message"]
    assert '"conv_id"' in server.client.request("DELETE", "/v1/stream").error["message"]
    begin(server, "refused", n=5).read()
    for offset in ("-1", "x", "1" * 19):
        assert '"from"' in read_on(server, "refused", offset).error["message"]
    assert server.client.request("HEAD", "/v1/stream?conv_id=refused").status == 200
    wrong = server.client.post("/v1/streams/lookup", {"conversation_ids": "x"})
    assert "conversation_ids" in wrong.error["message"]
    headers = {"X-Conversation-Id": "x" * (ID_MAX + 1)}
    long = server.client.post("/completion", {"prompt": "x", "stream": True}, headers=headers)
    assert (long.status, "X-Conversation-Id" in long.error["message"]) == (400, True)
    monkeypatch.setattr(server.daemon.service.kept_streams, "_stream_bytes_max", 100)
    begin(server, "lost", n=5).read()
    assert "lost" in read_on(server, "lost").error["message"]


def test_a_server_that_ends_does_not_wait_for_readers() -> None:
    with Faked(Fake(n_ctx=512, decode_us=2000), "-np", "2") as server:
        response = begin(server, "read", n=100)
        begin(server, "left", n=100).close()
        streams = server.daemon.service.kept_streams.of_key("")
        assert [one.is_ended for one in streams] == [False, False]
    assert [one.is_ended for one in streams] == [True, True]
    assert response.read()
