"""The engine of the real program is killed while it serves: its streams pause, and then go on with the text that they
would have had."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.http_client import Client
from support.live_daemon import WAIT_SECONDS, Live, engines, until
from support.models.tiny_kv_models import write_model

N_STREAMS = 8
N_PREDICT = 600
FLAGS = ("-np", str(N_STREAMS), "-c", str(N_STREAMS * 2048), "--metrics", "--engine-stall-seconds", "1")
EXACT = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")  # so that logits hardly depend on the rows of a step
# A step's rows change logits by less, also without a crash.
TIE = 1e-2
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its weights are float32."""
    return str(write_model(tmp_path_factory.mktemp("model") / "model.gguf", "llama", np.float32))


@pytest.fixture
def server(model: str) -> Iterator[Live]:
    with Live(*FLAGS, *EXACT, "--resume-after-crash", "1000", model=model) as live:
        yield live


class Stream:
    """A request in the background. Every second one is drawn with a seed, every third one is not streamed."""

    def __init__(self, server: Live, i: int, **more: Any) -> None:
        self.tokens: list[int] = []
        self.probs: list[Any] = []
        self.text = ""
        self.last: dict[str, Any] = {}
        self.is_drawn = i % 2 == 1
        # Its answer may take as long as all kills.
        self._client = Client(server.client.host, server.client.port, timeout=None)
        self._body = {
            "prompt": f"{'abcdefgh ' * (i + 1)}{i}",
            "n_predict": N_PREDICT,
            "ignore_eos": True,
            "temperature": 0.8 if self.is_drawn else 0,
            "seed": i,
            "n_probs": 2,
            "return_tokens": True,
            "stream": i % 3 != 2,
            **more,
        }
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        if not self._body["stream"]:
            self._take(self._client.post("/completion", self._body).json)
            return
        with self._client.open_stream(self._body) as socket, socket.makefile("rb") as file:
            for line in file:
                if line.startswith(b"data: {"):
                    self._take(json.loads(line[6:]))
                    if self.last.get("stop") or "error" in self.last:
                        return

    def _take(self, event: dict[str, Any]) -> None:
        self.last = event
        self.tokens += event.get("tokens", [])
        self.text += event.get("content", "")
        self.probs += event.get("completion_probabilities", [])

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> Stream:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "it did not end"
        assert "error" not in self.last, self.last
        assert self.last["tokens_predicted"] == N_PREDICT
        return self


def is_same(expected: Stream, stream: Stream) -> bool:
    """Compare two answers. They may differ after a near tie, or after a draw that was close to another token."""
    assert len(expected.tokens) == len(stream.tokens) == N_PREDICT
    pairs = zip(expected.tokens, stream.tokens, strict=True)
    i = next((i for i, (token, other) in enumerate(pairs) if token != other), None)
    if i is None:
        assert expected.text == stream.text
        return True
    first, second = (one["logprob"] for one in expected.probs[i]["top_logprobs"])
    other = stream.probs[i]["top_logprobs"][0]["logprob"]
    assert abs(first - other) < TIE, f"token {i} has other logits"
    assert expected.is_drawn or first - second < TIE, f"token {i} is not the most likely one"
    return False


def kill(server: Live, number: signal.Signals, n_before: int) -> None:
    """Kill the engine, and wait until another one serves."""
    (pid,) = engines(server.process.pid)
    os.kill(pid, number)
    until(lambda: not Path(f"/proc/{pid}").exists(), "it did not end")
    until(lambda: server.client.get("/health").status == 200, "no engine took its place")
    assert f"llamad:engine_restarts_total {n_before + 1}" in server.client.get("/metrics").body.decode()


def run(server: Live, kinds: list[signal.Signals], seed: int, n_before: int = 0) -> None:
    """Kill engines at random moments of streams, and compare the streams with undisturbed ones."""
    chance = random.Random(seed)
    expected = [Stream(server, i) for i in range(N_STREAMS)]
    for one in expected:
        one.wait()
    n_killed = 0
    while n_killed < len(kinds):
        streams = [Stream(server, i) for i in range(N_STREAMS)]
        while n_killed < len(kinds) and any(one.is_running for one in streams):
            # Some engines are killed before a stream goes on; a series of those would be given up.
            n_tokens = sum(len(one.tokens) for one in streams)
            while (
                n_killed % 5
                and sum(len(one.tokens) for one in streams) == n_tokens
                and any(one.is_running for one in streams)
            ):
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 0.6))
            kill(server, kinds[n_killed], n_before + n_killed)
            n_killed += 1
        n_same = sum(is_same(one, stream.wait()) for one, stream in zip(expected, streams, strict=True))
        assert n_same >= N_STREAMS - 2


@pytest.mark.parametrize("number", SIGNALS)
def test_streams_go_on_after_a_crash(server: Live, number: signal.Signals) -> None:
    run(server, [number] * 3, seed=int(number))
    text = server.client.get("/metrics").body.decode()
    assert int(text.split("\nllamad:requests_resumed_total ")[1].split("\n")[0]) >= N_STREAMS // 2


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_streams_go_on_after_200_crashes(server: Live, seed: int) -> None:
    """The four parts have 50 crashes each, of a daemon of their own."""
    run(server, [SIGNALS[i % 20 % 3] for i in range(50)], seed)


def test_a_request_that_ran_in_two_crashes_gets_its_error(model: str) -> None:
    with Live(*FLAGS, model=model) as live:
        first = Stream(live, 0, n_predict=100_000)
        until(lambda: first.tokens, "it did not begin")
        kill(live, signal.SIGKILL, 0)
        n = len(first.tokens)
        until(lambda: len(first.tokens) > n, "it did not go on")
        kill(live, signal.SIGKILL, 1)
        until(lambda: not first.is_running, "it did not end")
        assert first.last["error"]["code"] == 500
        assert "engine ended" in first.last["error"]["message"]
        assert live.client.complete("a", n_predict=2)["tokens_predicted"] == 2


def test_pings_keep_a_stream_alive_meanwhile(model: str) -> None:
    flags = ("--sse-ping-interval", "1", "--engine-stall-seconds", "4")
    with Live(*FLAGS, *flags, model=model) as live:
        body = {"prompt": "abc", "n_predict": N_PREDICT, "ignore_eos": True, "stream": True}
        with live.client.open_stream(body) as socket, socket.makefile("rb") as file:
            next(line for line in file if line.startswith(b"data: "))
            os.kill(engines(live.process.pid)[0], signal.SIGSTOP)
            lines = [line for line in file if line.strip()]
    assert any(line.startswith(b":") for line in lines)
    assert any(b'"stop":true' in line for line in lines)
