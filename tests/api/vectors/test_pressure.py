"""Requests for vectors under pressure, over a computer that can be held: the queue's end, time, clients that leave."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake
from llamad.protocol.model_info import VectorInfo


class Held:
    """Computes one text at a time, when it may."""

    n_seq_max = n_pack = 1

    def __init__(self) -> None:
        self.info = VectorInfo("mean", 2, (), False, 64, False)
        self.n_computed = 0
        self.free = threading.Event()
        self.code = 0
        self.value = 1.0

    def use(self, adapters: list[tuple[int, float]]) -> int:
        return 0

    def compute(self, memory: memoryview, lengths: list[int]) -> int:
        self.n_computed += len(lengths)
        assert self.free.wait(30)
        rows = np.full((len(lengths), 2), self.value, np.float32)
        memory[4 * sum(lengths) :] = rows.tobytes()
        return self.code

    def close(self) -> None: ...


@pytest.fixture
def held() -> Any:
    computer = Held()
    yield computer
    computer.free.set()


def faked(held: Held, *flags: str) -> Faked:
    return Faked(Fake(), "--embedding", *flags, vectors=held)


def post(server: Faked, value: Any = "a") -> Any:
    return server.client.post("/v1/embeddings", {"input": value})


def test_past_the_queue_it_is_a_429_and_nothing_waits_for_it(held: Held) -> None:
    with faked(held, "--queue-max", "2") as server, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(post, server) for _ in range(3)]
        server.until(lambda: server.host.embedder.n_jobs == 3)
        answer = post(server)
        assert (answer.status, answer.error["type"]) == (429, "rate_limit_error")
        assert answer.headers["retry-after"] == "1"
        # Vectors that wait do not keep anyone from generating.
        assert server.client.post("/completion", {"prompt": "a", "n_predict": 2}).status == 200
        held.free.set()
        assert [one.result().status for one in waiting] == [200] * 3
        assert post(server).status == 200


def test_a_request_has_its_time(held: Held) -> None:
    with faked(held, "--request-timeout", "0.1") as server:
        answer = post(server, ["a", "b", "c"])
        assert (answer.status, answer.error["type"]) == (408, "invalid_request_error")
        assert "--request-timeout" in answer.error["message"]
        held.free.set()
        server.until(lambda: server.host.embedder.n_jobs == 0)
        assert held.n_computed == 1
        assert post(server).status == 200


def test_a_client_that_leaves_costs_nothing_more(held: Held) -> None:
    with faked(held) as server:
        data = json.dumps({"input": ["a"] * 50}).encode()
        head = (
            f"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        )
        connection = socket.create_connection((server.client.host, server.client.port))
        connection.sendall(head + data)
        server.until(lambda: held.n_computed == 1)
        connection.close()
        server.until(lambda: server.host.embedder.n_texts_waiting == 0)
        held.free.set()
        assert post(server).status == 200
        assert held.n_computed == 2


def test_a_failed_batch_is_a_500_and_the_next_request_is_served(held: Held) -> None:
    with faked(held) as server:
        held.free.set()
        held.code = -3
        answer = post(server)
        assert (answer.status, answer.error["type"]) == (500, "server_error")
        assert "code -3" in answer.error["message"]
        held.code, held.value = 0, float("nan")
        assert "not finite" in post(server).error["message"]
        held.value = 0.0
        assert post(server).json["data"][0]["embedding"] == [0, 0]


def test_stopping_answers_those_that_wait(held: Held) -> None:
    server = faked(held)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, server, ["a", "b"])
        server.until(lambda: held.n_computed == 1)
        threading.Timer(0.05, held.free.set).start()
        server.leave()
        assert waiting.result().status == 503
    assert held.n_computed == 1
