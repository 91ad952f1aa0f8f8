"""What counts as a use of a model, and until when."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from support.fake_daemon import Faked

from llamad.api.service.usage import Usage
from llamad.engine.testing.fake import Fake


def test_a_hold_is_released_once() -> None:
    usage = Usage()
    first, second = usage.hold(), usage.hold()
    assert usage.n_active == 2
    first()
    first()
    assert usage.n_active == 1
    t_first = usage.last_used
    second()
    assert usage.n_active == 0
    assert usage.last_used >= t_first


def test_a_request_counts_until_its_response_is_complete() -> None:
    fake = Fake()
    with Faked(fake) as server:
        usage = server.served.usage
        for path in ("/health", "/props", "/v1/models", "/metrics", "/v1/loads"):
            server.client.get(path)
        t_before = usage.last_used
        server.client.post("/tokenize", {"content": "x"})
        assert (usage.n_active, usage.last_used) == (0, t_before)
        fake.block(True)
        ask = {"prompt": "x", "n_predict": 1}
        thread = threading.Thread(target=server.client.post, args=("/completion", ask))
        thread.start()
        server.until(lambda: usage.n_active == 1)
        assert not server.served.is_idle
        fake.block(False)
        thread.join()
        server.until(lambda: server.served.is_idle)
        assert usage.last_used > t_before
        assert server.client.post("/completion", {"prompt": 5}).status == 400
        server.until(lambda: usage.n_active == 0)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_stream_counts_without_its_client_if_it_is_kept(is_kept: bool) -> None:
    fake = Fake()
    with Faked(fake) as server:
        usage = server.served.usage
        fake.block(True)
        with socket.create_connection((server.client.host, server.client.port)) as connection:
            body = json.dumps({"prompt": "x", "n_predict": 40, "stream": True, "ignore_eos": True}).encode()
            kept = "X-Conversation-Id: one\r\n" if is_kept else ""
            head = (
                f"POST /completion HTTP/1.1\r\nHost: localhost\r\n{kept}Content-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
            server.until(lambda: usage.n_active == 1 + is_kept and server.engine.tasks)
        server.until(lambda: usage.n_active == int(is_kept))
        assert not server.served.is_idle  # the engine has not stopped yet, even if nobody waits
        fake.block(False)
        server.until(lambda: server.served.is_idle)
        assert usage.n_active == 0
