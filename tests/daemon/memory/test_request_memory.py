"""The memory that requests hold: one budget from the body's first byte to the end of the answer, by client."""

from __future__ import annotations

import gc
import json
import socket
import threading
from contextlib import ExitStack

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live, model_path, until
from support.models.tiny_model import write_tiny

from llamad.api.generate.job import Job
from llamad.engine.testing.fake import Fake

MIB = 1 << 20
KEYS = ("--api-key", "many", "--api-key", "one", "--api-key", "busy")
SMALL_BUDGET = ("--body-max-bytes", "4M", "--bodies-max-bytes", "4M")
ENDLESS = {"prompt": "x", "n_predict": 100_000, "ignore_eos": True, "stream": True}


def biases(n: int) -> dict:
    return {"prompt": "x", "n_predict": 2, "logit_bias": [[i % 100, 0.5] for i in range(n)]}


def send(server, body: dict | bytes, key: str = "many", path: str = "/completion") -> socket.socket:
    sock = socket.create_connection((server.client.host, server.client.port), timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    try:
        sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    except OSError:
        pass  # refused before all of it was read
    return sock


def head_of(sock: socket.socket) -> tuple[int, str]:
    head = b""
    while b"\r\n\r\n" not in head:
        data = sock.recv(65536)
        assert data, head
        head += data
    return int(head.split(b" ")[1]), head.decode("latin-1").lower()


@pytest.fixture
def fake():
    fake = Fake(script=b"answer", n_ctx=4096)
    yield fake
    fake.block(False)


def held(server: Faked) -> int:
    return server.daemon.service.budget.n_bytes


def occupied(server: Faked, fake: Fake) -> socket.socket:
    """A request that has the only slot and stays there until the fake is let go."""
    fake.block(True)
    sock = send(server, {"prompt": "x", "n_predict": 2}, "busy")
    server.until(lambda: fake.is_waiting and server.daemon.host.engine.n_running == 1)
    return sock


def test_what_waits_for_the_engine_counts_until_its_client_leaves(fake):
    with Faked(fake, "-np", "1", *KEYS, *SMALL_BUDGET) as server, ExitStack() as stack:
        stack.enter_context(occupied(server, fake))
        before = held(server)
        socks = [send(server, biases(5000)) for _ in range(4)]
        server.until(lambda: server.daemon.host.engine.n_waiting == 4)
        server.until(
            lambda: not server.daemon.service._jobs
        )  # what reading a request takes is given back last
        # Packed: 12 bytes of a bias here, 8 in the engine, and some 30 of its echo.
        assert 4 * 5000 * 40 < held(server) - before < 4 * (5000 * 60 + 50_000)
        for sock in socks:
            sock.close()
        fake.block(False)
        server.until(lambda: held(server) == 0)


def test_a_full_budget_refuses_the_client_that_holds_most(fake):
    with Faked(fake, "-np", "1", *KEYS, *SMALL_BUDGET) as server, ExitStack() as stack:
        busy = stack.enter_context(occupied(server, fake))
        socks = [stack.enter_context(send(server, biases(5000))) for _ in range(30)]
        server.until(lambda: server.daemon.service.budget.n_refused)
        server.until(lambda: not server.daemon.service._jobs)
        assert held(server) <= 4 * MIB
        n_waiting = server.daemon.host.engine.n_waiting
        assert n_waiting > 3
        # Small requests of others pass, and larger ones take the room of the client that holds most.
        small = stack.enter_context(send(server, {"prompt": "x", "n_predict": 2}, "one"))
        large = stack.enter_context(send(server, biases(3000), "one"))
        server.until(lambda: server.daemon.host.engine.n_waiting >= n_waiting)
        server.until(lambda: not server.daemon.service._jobs)
        fake.block(False)
        assert [head_of(sock)[0] for sock in (busy, small, large)] == [200] * 3
        heads = [head_of(sock) for sock in socks]
        assert {status for status, _ in heads} == {200, 503}
        assert all("retry-after: 1" in head for status, head in heads if status == 503)
        server.until(lambda: held(server) == 0)


def test_a_waiting_request_gives_way_to_a_client_that_holds_less(fake):
    with Faked(fake, "-np", "1", *KEYS, "--body-max-bytes", "64K") as server, ExitStack() as stack:
        busy = stack.enter_context(occupied(server, fake))
        socks = [stack.enter_context(send(server, biases(1000 + i))) for i in range(3)]
        server.until(lambda: server.daemon.host.engine.n_waiting == 3)
        server.daemon.service.budget.resize(held(server))
        small = stack.enter_context(send(server, {"prompt": "x", "n_predict": 2}, "one"))
        status, head = head_of(socks[2])  # the largest
        assert (status, "retry-after: 1" in head) == (503, True)
        own = stack.enter_context(send(server, biases(1500)))
        assert head_of(own)[0] == 503  # the client that holds most takes nobody's room
        fake.block(False)
        assert [head_of(sock)[0] for sock in (busy, small, *socks[:2])] == [200] * 4
        server.until(lambda: held(server) == 0)


def test_a_grammar_counts_for_the_requests_that_use_it(fake):
    def body(i: int) -> dict:
        words = " | ".join(f'"{n:x}-{i}"' for n in range(2000))
        return {"prompt": "x", "n_predict": 2, "grammar": f"root ::= {words}"}

    with Faked(fake, "-np", "1", *KEYS, *SMALL_BUDGET) as server, ExitStack() as stack:
        stack.enter_context(occupied(server, fake))
        first = stack.enter_context(send(server, body(0)))
        server.until(lambda: server.daemon.host.engine.n_waiting == 1)
        grammar = next(iter(server.served.grammars._kept.values())).memory
        assert held(server) > grammar.n_bytes > 100_000
        n_one = held(server)
        again = stack.enter_context(send(server, body(0)))
        server.until(lambda: server.daemon.host.engine.n_waiting == 2)
        assert grammar.n_users == 2
        assert held(server) - n_one < grammar.n_bytes  # once for both
        others = [stack.enter_context(send(server, body(i + 1))) for i in range(30)]
        server.until(lambda: server.daemon.service.budget.n_refused)
        server.until(lambda: not server.daemon.service._jobs)
        assert held(server) <= 4 * MIB
        fake.block(False)
        assert [head_of(sock)[0] for sock in (first, again)] == [200, 200]
        assert 503 in {head_of(sock)[0] for sock in others}
        server.until(lambda: held(server) == 0 and grammar.n_users == 0)


def test_a_body_in_a_worker_counts_until_the_worker_is_done(fake, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()
    with Faked(fake, *KEYS) as server:
        decode = server.served.defaults.decode

        def slow(*arguments):
            entered.set()
            go_on.wait(30)
            return decode(*arguments)

        monkeypatch.setattr(type(server.served.defaults), "decode", staticmethod(slow))
        sock = send(server, {"prompt": "x" * 100_000})
        assert entered.wait(30)
        sock.close()
        server.until(lambda: server.daemon.http.n_active == 0)
        assert held(server) > 200_000  # the body, and what becomes of it
        go_on.set()
        server.until(lambda: held(server) == 0)


def test_an_answered_job_is_freed_without_the_garbage_collector(fake):
    with Faked(fake, "-np", "2", "--api-key", "many") as server:
        auth = {"Authorization": "Bearer many"}
        gc.collect()
        gc.disable()
        try:
            for more in ({}, {"stream": True}, {"n": 2}, {"grammar": 'root ::= "a"'}):
                assert server.client.post("/completion", {"prompt": "x", **more}, headers=auth).status == 200
            send(server, ENDLESS).close()
            server.until(lambda: not server.daemon.host.engine.tasks)
            server.until(lambda: not any(isinstance(one, Job) for one in gc.get_objects()))
        finally:
            gc.enable()


def gauge(live: Live, name: str = "llamad:request_memory_bytes") -> int:
    text = live.client.get("/metrics", headers={"Authorization": "Bearer one"}).body.decode()
    return int(next(line for line in text.splitlines() if line.startswith(name + " ")).split()[1])


def test_a_hundred_waiting_requests_stay_within_the_budget_and_go_without_a_trace(tmp_path):
    model = write_tiny(tmp_path / "tiny.gguf", model_path())
    budget = ("--body-max-bytes", "16M", "--bodies-max-bytes", "32M", "--metrics")
    with Live("-np", "1", "-c", "512", *KEYS, *budget, model=model) as live, ExitStack() as stack:
        auth = {"Authorization": "Bearer one"}
        assert live.client.post("/completion", biases(65_536), headers=auth).status == 200
        until(lambda: gauge(live) == 0)
        before = live.rss_bytes()
        head_of(stack.enter_context(send(live, ENDLESS, "busy")))
        peak, body = before, json.dumps(biases(65_536)).encode()
        for _ in range(100):
            stack.enter_context(send(live, body))
            peak = max(peak, live.rss_bytes())
        until(lambda: gauge(live, "llamad:request_memory_refused_total") > 50)
        peak = max(peak, live.rss_bytes())
        assert 0 < gauge(live) <= 32 * MIB
        assert peak - before < (32 + 96) * MIB
        small = stack.enter_context(send(live, {"prompt": "x", "n_predict": 1}, "one"))
        small.settimeout(0.5)
        with pytest.raises(TimeoutError):
            small.recv(1)  # it waits, and was not refused
        stack.close()
        until(lambda: gauge(live) == 0)
        until(lambda: live.rss_bytes() - before < 50 * MIB)
