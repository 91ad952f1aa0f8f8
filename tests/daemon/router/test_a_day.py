"""A day in the life of a router: three models, memory for two, and clients of all kinds at the same time, while one
engine is killed, one model is unloaded by hand, one sleeps and wakes, and the preset changes."""

from __future__ import annotations

import os
import signal
import time

from support.live_daemon import Live, engines, model_path, until
from support.many_models.calls import entries, load, status, unload, unload_all
from support.many_models.day import Day, metric
from support.many_models.files import Files
from support.many_models.processes import engine_of, engines_of, tree_rss
from support.many_models.streams import Events

PRESET = """
[*]
ctx-size = 1024
parallel = 2
ubatch-size = 64
warmup = off
[talk]
model = {root}/talk.gguf
[agent]
model = {root}/agent.gguf
sleep-idle-seconds = 2
[vectors]
model = {root}/vectors.gguf
embeddings = on
pooling = mean
ctx-size = 512
"""
NAMES = ("talk", "agent", "vectors")
MEMORY_MAX = 450 << 20  # each of them takes about 200 MiB
WAIT_SECONDS = 3
# A request may wait for a late victim, for two loads, and for its turn, on a slow machine.
SECONDS_MAX = 45
# Kinds of requests of a model, and the longest pause between two of them in seconds.
WORK = {("talk", "chat"): 0.5, ("talk", "stream"): 0.5, ("agent", "tools"): 5.0, ("vectors", "vectors"): 3.0}
N_TALKERS = 3
FLAGS = ("--models-max", "0", "--models-memory-max", str(MEMORY_MAX >> 20), "--metrics")


def mapped(live: Live, files: Files) -> list[str]:
    return [name for name in NAMES if engines_of(live, files.root / f"{name}.gguf")]


def rest(live: Live, files: Files) -> int:
    """Unload everything, and return the memory of all processes then."""
    unload_all(live.client)
    until(lambda: not mapped(live, files))
    until(lambda: metric(live.client, "llamad:model_bytes") == 0, "the ledger still holds memory")
    return tree_rss(live)


def reloads(live: Live) -> int:
    return sum(line.endswith("reloaded") for line in live.lines)


def go_on(live: Live, seconds: float = 6) -> None:
    """Let the clients work for a while. The ledger never holds more than it may."""
    t_end = time.monotonic() + seconds
    while time.monotonic() < t_end:
        assert metric(live.client, "llamad:model_bytes") <= MEMORY_MAX
        time.sleep(0.1)


def wait_serving(live: Live, model: str) -> None:
    """Wait until a model admits requests, so that none of them waits."""
    until(lambda: metric(live.client, "llamad:model_state", model=model, state="loaded"))


def disturb(live: Live, files: Files) -> float:
    """Let everything happen that may happen to models, and return when an engine was killed."""
    preset = files.preset.read_text()
    go_on(live)
    # One is unloaded by hand while it serves. Whoever comes next loads it again.
    wait_serving(live, "talk")
    assert live.client.post("/models/unload", {"model": "talk"}).status == 200
    go_on(live)
    wait_serving(live, "talk")
    pid = engine_of(live, files.root / "talk.gguf")
    t_killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    go_on(live)
    # The preset changes, in a way that needs another engine, and then in one that does not.
    preset = preset.replace("ctx-size = 512", "ctx-size = 640")
    files.write(preset)
    assert "ctx-size = 640" in entries(live.client, "?reload=1")["vectors"]["status"]["preset"]
    go_on(live)
    files.write(preset.replace("[talk]", "[talk]\ntop-k = 7"))
    n_reloads = reloads(live)
    live.signal(signal.SIGHUP)
    until(lambda: reloads(live) > n_reloads)
    assert "top-k = 7" in status(live.client, "talk")["preset"]
    go_on(live)
    return t_killed


def finish(live: Live, day: Day) -> None:
    """Let a model sleep and wake, then let all clients finish."""
    until(lambda: day.counts()["vectors", "vectors"] >= 3, "too few requests were served")
    with Events(live.client) as events:
        day.stop(
            "vectors"
        )  # without the third model the others have room, and one sleeps in its client's pauses
        until(lambda: "sleeping" in events.statuses("agent"), "it never sleeps")
        n_before = events.statuses("agent").index("sleeping")
        until(lambda: "loaded" in events.statuses("agent")[n_before:], "it never wakes")
    until(lambda: all(day.counts()[one] >= 3 for one in WORK), "too few requests were served")
    day.stop(*NAMES)


def check(live: Live, day: Day, t_killed: float) -> None:
    """Only requests that the killed engine worked on may fail, and none takes too long."""
    lost = [
        one
        for one in day.errors()
        if one.model != "talk" or not one.t_start - 0.5 <= t_killed <= one.t_end + 0.5
    ]
    assert not lost, lost
    assert len(day.errors()) <= N_TALKERS
    assert max(one.seconds for one in day.records) < SECONDS_MAX
    assert metric(live.client, "llamad:model_unloads_total", reason="evicted") > 0
    assert metric(live.client, "llamad:model_load_failures_total") == 0
    assert metric(live.client, "llamad:model_requests_waiting") == 0
    assert not [line for line in live.lines if "Traceback" in line]


def test_a_day(files: Files) -> None:
    for name in NAMES:
        files.copy(f"{name}.gguf", model_path())
    files.write(PRESET.replace("{root}", str(files.root)))
    flags = (*files.flags, *FLAGS, "--models-wait-seconds", str(WAIT_SECONDS))
    with Live(*flags, env=files.environ) as live:
        for name in NAMES:  # what the front keeps of each model is there from now on
            load(live.client, name)
            unload(live.client, name)
        at_rest = rest(live, files)
        n_descriptors = live.n_descriptors()
        day = Day(live.client)
        for work, pauses in (*WORK.items(), (("talk", "stream"), 2.0), (("vectors", "vectors"), 6.0)):
            day.work(*work, pauses)
        t_killed = disturb(live, files)
        finish(live, day)
        check(live, day, t_killed)
        assert rest(live, files) < at_rest + (64 << 20)
        until(lambda: len(engines(live.process.pid)) <= 1, "more than a spare process stays")
        until(lambda: live.n_descriptors() <= n_descriptors + 8)
