"""A conversation goes on where it was when its engine has ended: killed, asleep or unloaded. Its prompt is not read again,
on the real program."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.live_daemon import Live, engines, until

FLAGS = ("-np", "2", "-c", "2048", "--metrics", "--slots")
# So certain that no rounding changes the text.
COUNTING = "one two three four five six seven eight nine ten " * 12
FIRST = {"prompt": COUNTING + "one two three", "n_predict": 8, "temperature": 0}


def metric(server: Live, name: str) -> float:
    lines = server.client.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


def ask(server: Live, prompt: str, **body: object) -> tuple[str, int]:
    """The text, and how many tokens of the prompt were not read again."""
    answer = server.client.post(
        "/completion", {"prompt": prompt, "n_predict": 8, "temperature": 0, **body}
    ).json
    return answer["content"], answer["timings"]["cache_n"]


def first_turn(server: Live) -> tuple[str, int]:
    """Ask, and wait until the turn is in the cache memory. The conversation so far, and how many tokens it has."""
    prompt = COUNTING + "one two three"
    text, _ = ask(server, prompt)
    n_tokens = len(server.client.post("/tokenize", {"content": prompt + text}).json["tokens"])
    until(lambda: metric(server, "llamad:prompt_cache_entries") >= 1, "the turn was not saved")
    return prompt + text, n_tokens


def kill_engine(server: Live) -> None:
    (pid,) = engines(server.process.pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: engines(server.process.pid) not in ([], [pid]), "no other engine was started")
    server.wait_ready()


@pytest.mark.parametrize("kind", ["streams", "unified"])
def test_a_killed_engine_leaves_its_conversations(kind: str) -> None:
    flags = {"unified": ("--kv-unified",)}.get(kind, ())
    with Live(*FLAGS, *flags) as server:
        conversation, n_tokens = first_turn(server)
        expected, n_cached = ask(server, conversation + " and")
        assert n_cached >= n_tokens - 2
        until(lambda: metric(server, "llamad:prompt_cache_saves_total") >= 2)
        kill_engine(server)
        text, n_cached = ask(server, conversation + " and")
        assert n_cached >= n_tokens - 2
        assert text == expected
        server.wait_line("the prompts of the last engine are kept: 1")
