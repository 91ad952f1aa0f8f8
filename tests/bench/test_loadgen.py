"""The load generator against a small fake server, and against its own server without a model."""

from __future__ import annotations

import itertools
import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import load, programs
from bench.errors import BenchError
from bench.load import Group

TIMEOUT = 30.0


def bodies(*lengths: int) -> list[Any]:
    return [{"prompt": f"prompt {i}", "n_predict": n} for i, n in enumerate(lengths)]


def test_every_token_of_every_stream_is_counted(address: tuple[str, int]) -> None:
    # More streams than the fake takes on one connection: the lanes have to open others. It writes byte by byte.
    one = load.streams(address[1], Group(3, bodies(*([3, 4, 5] * 7))), timeout_s=TIMEOUT, n_each=7)
    assert one["tokens"] == 84
    assert (one["events"], one["tokens_untold"], one["prompt_tokens"]) == (84, 0, 63)
    assert 0 < one["first_p50_ms"] <= one["first_p99_ms"] <= one["first_max_ms"] <= one["wall_s"] * 1000
    assert 0 <= one["gap_p50_ms"] <= one["gap_p99_ms"] <= one["gap_max_ms"]
    assert one["tokens_per_s"] == pytest.approx(84 / one["wall_s"], rel=1e-6)


def test_a_chat_begins_with_its_first_text_and_not_with_its_role(address: tuple[str, int]) -> None:
    body = {"messages": [{"role": "user", "content": "two words"}], "max_tokens": 6, "stream": True}
    one = load.streams(address[1], Group(2, [body] * 2, "/v1/chat/completions"), timeout_s=TIMEOUT)
    assert (one["tokens"], one["events"], one["prompt_tokens"]) == (12, 12, 6)
    assert one["first_p50_ms"] >= 50
    assert one["gap_max_ms"] < 50


def test_other_streams_arrive_while_the_first_write(address: tuple[str, int]) -> None:
    side = Group(2, bodies(*[1] * 64))
    one = load.streams(address[1], Group(2, bodies(400, 400)), side=side, timeout_s=TIMEOUT)
    assert one["tokens"] == 800
    assert one["side_requests"] >= 2
    assert one["side_prompt_tokens"] == 3 * one["side_requests"]


def test_what_arrives_may_have_an_end_and_only_its_time_counts(address: tuple[str, int]) -> None:
    """Requests of a megabyte, as images make them: they go out while the others are read."""
    chats = [{"messages": [{"role": "user", "content": "x" * 1_000_000}], "max_tokens": 1}] * 4
    side = Group(2, chats, "/v1/chat/completions")
    main = Group(2, bodies(3000, 3000))
    one = load.streams(address[1], main, side, TIMEOUT, n_side_each=2)
    assert (one["side_requests"], one["tokens"]) == (4, 6000)
    assert 50 <= one["side_first_p50_ms"] <= one["side_first_max_ms"] <= one["wall_s"] * 1000
    with pytest.raises(BenchError, match="ended before those that arrived"):
        load.streams(address[1], Group(1, bodies(1)), side, TIMEOUT, n_side_each=2)


@pytest.mark.parametrize("n_side", [0, 2])
def test_requests_are_repeated_until_the_time_is_over(address: tuple[str, int], n_side: int) -> None:
    side = Group(n_side, bodies(*[50] * 8)) if n_side else None
    for main in (Group(4, [], "/health"), Group(4, [{"content": "some words"}], "/tokenize")):
        one = load.requests(address[1], main, 0.2, side=side, timeout_s=TIMEOUT)
        assert one["requests"] >= 4
        assert one["requests_per_s"] == pytest.approx(one["requests"] / one["wall_s"], rel=1e-6)
        assert 0 < one["latency_p50_ms"] <= one["latency_p99_ms"] <= one["latency_max_ms"]


@pytest.mark.parametrize(("n_threads", "rate"), [(3, 0.0), (1, 200.0), (2, 100.0)])
def test_requests_from_several_threads_or_at_a_rate(
    address: tuple[str, int], n_threads: int, rate: float
) -> None:
    main = Group(4, [], "/health")
    one = load.requests(address[1], main, 0.2, None, TIMEOUT, n_threads, rate)
    assert one["requests"] == 0.2 * rate if rate else one["requests"] >= 4
    assert 0 < one["latency_p50_ms"] <= one["latency_p99_ms"]


def test_what_goes_wrong_is_said(address: tuple[str, int]) -> None:
    for prompt, told in (("refuse this", "refused: .*400"), ("fail in the middle", "broken")):
        with pytest.raises(BenchError, match=told):
            load.streams(address[1], Group(1, [{"prompt": prompt, "n_predict": 1}]), timeout_s=TIMEOUT)
    with pytest.raises(BenchError, match="cannot connect"):
        load.streams(programs.free_port(), Group(1, bodies(1)), timeout_s=TIMEOUT)


EVENTS = (
    b'data: {"content":"a","tokens":[5],"stop":false}\n\n'
    b'data: {"content":"","tokens":[],"stop":true,"tokens_predicted":1,"tokens_evaluated":2}\n\n'
)


class Breaker(socketserver.BaseRequestHandler):
    """Of three connections answers one, begins to answer one, and closes one without a word."""

    def handle(self) -> None:
        n = next(self.server.turns)  # type: ignore[attr-defined]
        body = EVENTS if self.request.recv(65536).startswith(b"POST") else b"{}"
        answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        self.request.sendall((answer, answer[:-1], b"")[n % 3])


@pytest.fixture
def breaker() -> Iterator[socketserver.ThreadingTCPServer]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Breaker) as server:
        server.turns = itertools.count()  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("n_side", [0, 1])
def test_beside_small_requests_answers_that_broke_off_are_counted_and_asked_for_again(
    breaker: socketserver.ThreadingTCPServer, n_side: int
) -> None:
    side = Group(n_side, bodies(1)) if n_side else None
    port = breaker.server_address[1]
    one = load.requests(port, Group(1, [], "/health"), 0.2, side=side, timeout_s=TIMEOUT)
    assert one["requests"] >= 2
    assert one["side_requests"] >= n_side
    assert one["answers_broken"] > 0
    if not n_side:
        assert abs(one["answers_broken"] - one["requests"]) <= 1


def test_a_stream_that_broke_off_ends_the_measurement(breaker: socketserver.ThreadingTCPServer) -> None:
    breaker.turns = itertools.count(1)  # type: ignore[attr-defined]
    with pytest.raises(BenchError, match="a stream was closed before its end"):
        load.streams(breaker.server_address[1], Group(1, bodies(1)), timeout_s=TIMEOUT)


def test_it_measures_itself_against_a_server_without_a_model() -> None:
    # So many tokens that all streams are under way at once, however busy the machine is.
    one = load.streams(None, Group(8, bodies(*[5000] * 8)), timeout_s=TIMEOUT)
    assert (one["tokens"], one["events"], one["tokens_untold"]) == (40000, 40000, 0)
    assert one["decode_tokens_per_s"] > 0
    assert one["generator_cpu"] > 0


def test_events_may_join_tokens_and_leave_some_out(tmp_path: Path) -> None:
    """The count is the last event's; what events tell is only where in time the tokens lie. Fed from a file by a
    server that ends: an answer without a length or chunks ends with its connection."""
    events = [
        {"content": "ab", "tokens": [1, 2], "stop": False, "tokens_predicted": 2},
        {"content": "", "tokens": [], "stop": False},
        {"content": 'c "stop":true', "tokens": [3], "stop": False},
        {"content": "", "tokens": [], "stop": True, "tokens_predicted": 5, "tokens_evaluated": 7},
    ]
    answer = "HTTP/1.1 200 OK\r\n\r\n" + "".join(f"data: {json.dumps(one)}\n\n" for one in events)
    script = (
        "import socket, sys\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "c, _ = s.accept(); c.recv(65536); c.sendall(open(sys.argv[1], 'rb').read()); c.close()\n"
    )
    (tmp_path / "answer").write_bytes(answer.encode())
    command = [sys.executable, "-c", script, str(tmp_path / "answer")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        one = load.streams(port, Group(1, bodies(5)), timeout_s=TIMEOUT)
    assert (one["tokens"], one["events"], one["tokens_untold"], one["prompt_tokens"]) == (5, 2, 2, 7)
