"""Three models and memory for two: the right one leaves, and its memory comes back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.live_daemon import Live, model_path, until
from support.many_models.calls import CHAT, chat, load, status, unload, unload_all
from support.many_models.files import Files
from support.many_models.processes import engines_of, tree_rss
from support.many_models.streams import Background, Stream

PRESET = """
[*]
ctx-size = 512
parallel = 1
warmup = off
[x]
model = {root}/x.gguf
[y]
model = {root}/y.gguf
[z]
model = {root}/z.gguf
[giant]
model = {root}/z.gguf
ctx-size = 65536
"""
NAMES = ("x", "y", "z")


@pytest.fixture(scope="module")
def live(files: Files, start: Callable[..., Live]) -> Live:
    for name in NAMES:
        files.copy(f"{name}.gguf", model_path())
    files.write(PRESET.replace("{root}", str(files.root)))
    flags = "--models-max 0 --models-memory-max 460 --models-wait-seconds 1 --metrics --verbosity 4"
    return start(files, *flags.split())


def loaded(live: Live, files: Files) -> set[str]:
    """The models that have a process, by what is mapped."""
    return {name for name in NAMES if engines_of(live, Path(files.root / f"{name}.gguf"))}


def test_the_one_that_was_not_used_for_longest_leaves(live: Live, files: Files) -> None:
    for name in ("x", "y"):
        assert live.client.post(CHAT, chat(name)).status == 200
    assert loaded(live, files) == {"x", "y"}, "there is memory for two"
    time.sleep(4)
    n_before = tree_rss(live)
    third = Background(partial(live.client.post, CHAT, chat("z")))
    while third.is_running:  # what a load of each has cost counts as well, so its use must be really recent
        assert live.client.post(CHAT, chat("x", 1)).status == 200
    assert third.result().status == 200
    assert loaded(live, files) == {"x", "z"}
    assert status(live.client, "y")["value"] == "unloaded"
    assert tree_rss(live) < n_before + (32 << 20), "the third took the place of the second"


def test_a_busy_one_stays(live: Live, files: Files) -> None:
    unload_all(live.client)
    load(live.client, "x")
    load(live.client, "y")
    stream = Stream(live.client, chat("x", 60))  # x was used last, and is busy
    assert live.client.post(CHAT, chat("z")).status == 200
    assert stream.finish() == ("length", 60)
    assert loaded(live, files) == {"x", "z"}
    live.wait_line(r"reading \d+ MiB of .*/z\.gguf ahead")  # while it waited for the memory of "y"


def test_memory_comes_back(live: Live, files: Files) -> None:
    unload_all(live.client)
    until(lambda: not loaded(live, files))
    resting = tree_rss(live)
    for _ in range(2):
        load(live.client, "x")
        load(live.client, "y")
        assert tree_rss(live) > resting + os.path.getsize(model_path())
        unload(live.client, "x")
        unload(live.client, "y")
        until(lambda: not loaded(live, files))
    assert tree_rss(live) < resting + (48 << 20), "no more than a spare process stays"


def test_one_that_can_never_fit_says_so(live: Live) -> None:
    answer = live.client.post(CHAT, chat("giant"))
    assert answer.status == 500
    assert "--models-memory-max" in answer.error["message"], answer.error["message"]
    assert "--models-memory-max" in status(live.client, "giant")["reason"]
    assert live.client.post(CHAT, chat("x")).status == 200
