"""An engine's share of CPU threads and of the memory for prompts: it changes between two steps, and no text does."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from support.engine_harness import Harness
from support.hosted_model import Hosted
from support.live_daemon import model_path

from llamad.engine.embedder import Embedder
from llamad.engine.server import Server
from llamad.engine.testing.fake import Fake
from llamad.protocol.control_messages import Share

MANY = 1 << 30
PAGE = 4096
N_ENTRY = -(-(4 * 204 + 48 + 20 * 204) // PAGE) * PAGE  # bytes of a prompt of 200 tokens


def text(seed: int, n: int = 200) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


def ask(h: Harness, prompt: bytes, n: int = 4) -> bytes:
    task = h.submit(prompt, n_predict=n)
    h.wait(task)
    return h.text(task)


def test_threads_are_set_once_and_zero_changes_nothing():
    fake = Fake()
    with Harness(fake, n_slots=2) as h:
        ask(h, b"before")
        assert fake.threads == (0, 0)
        h.core.share(3, 5, 0)
        h.until(lambda: fake.threads == (3, 5))
        h.core.share(0, 2, 0)
        h.until(lambda: fake.threads == (3, 2))
        h.core.share(0, 0, MANY)
        ask(h, b"after")
        assert fake.threads == (3, 2)


def test_texts_do_not_change_while_shares_do():
    with Harness(Fake(), n_slots=1, cache_bytes=MANY) as h:
        expected = ask(h, text(1), 200)
    with Harness(Fake(), n_slots=1, cache_bytes=MANY) as h:
        task = h.submit(text(1), n_predict=200)
        for i in range(100):
            h.core.share(1 + i % 4, 1 + i % 3, N_ENTRY * (1 + i % 5))
            h.collect()
        h.wait(task)
        assert h.text(task) == expected


def test_a_lower_limit_drops_prompts_at_once_even_of_an_idle_engine():
    prompts = [text(i) for i in range(1, 9)]
    with Harness(Fake(), n_slots=1, cache_bytes=MANY) as h:
        for prompt in prompts:
            ask(h, prompt)
        assert h.stats()["cache_bytes"] == 7 * N_ENTRY
        h.core.share(0, 0, 3 * N_ENTRY)
        h.until(lambda: h.stats()["cache_bytes"] == 3 * N_ENTRY)
        for prompt in prompts:  # it holds
            ask(h, prompt)
            assert h.stats()["cache_bytes"] <= 3 * N_ENTRY
        h.core.share(0, 0, 6 * N_ENTRY)  # and can be raised again
        for prompt in prompts:
            ask(h, prompt)
        assert h.stats()["cache_bytes"] == 6 * N_ENTRY


def test_the_longest_unused_prompts_go():
    with Harness(Fake(), n_slots=1, cache_bytes=MANY) as h:
        for i in range(1, 6):
            ask(h, text(i))
        h.core.share(0, 0, N_ENTRY)
        h.until(lambda: h.stats()["cache_bytes"] == N_ENTRY)
        last = h.submit(text(4), n_predict=4)
        h.wait(last)
        assert h.n_cached(last) == 200


def test_a_cache_that_is_off_stays_off():
    with Harness(Fake(), n_slots=1) as h:
        h.core.share(0, 0, MANY)
        for i in (1, 2, 1):
            ask(h, text(i))
        assert h.stats()["cache_saves"] == 0


def test_checkpoints_get_half_of_it():
    options = {"can_share": False, "n_checkpoints": 32, "checkpoint_min_step": 8192, "checkpoint_bytes": MANY}
    with Harness(Fake(can_cut=False), n_slots=4, cache_bytes=MANY, **options) as h:
        for i in range(4):
            h.wait(h.submit(text(i), n_predict=4, id_slot=i))
        assert h.stats()["checkpoint_bytes"] == 4 * PAGE
        h.core.share(0, 0, 4 * PAGE)
        h.until(lambda: h.stats()["checkpoint_bytes"] == 2 * PAGE)
        for i in range(4):
            h.wait(h.submit(text(i + 4), n_predict=4, id_slot=i))
            assert h.stats()["checkpoint_bytes"] <= 2 * PAGE


# --- the real model


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one CPU")
@pytest.mark.parametrize("flags", [(), ("--cpu-range", "0-1"), ("--prio", "-1")], ids=str)
def test_a_real_model_writes_the_same_with_fewer_threads(flags):
    prompt = [1, *(100 + i * i % 997 for i in range(64))]

    def write(h: Hosted) -> list[int]:
        sink, _ = h.run(h.write(0, prompt, 12))
        return sink.tokens

    with Hosted(model_path(), "-t", "2", "-c", "1024", "--cache-ram", "0", *flags) as h:
        core = h.instance.core
        assert core is not None
        expected = write(h)
        # More threads than the pools have are not used.
        for share in ((1, 1), (1, 2), (2, 1), (8, 8), (2, 2)):
            core.share(*share, 0)
            h.read(0, [1])  # nothing of the prompt is left
            assert write(h) == expected


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one CPU")
def test_a_real_engine_computes_in_fewer_threads():
    """Seen by the system: a second thread works only while the share has two."""

    def busy() -> int:
        before = _ticks()
        h.run(h.write(0, [1, *range(100, 200)], 60))
        after = _ticks()
        return sum(after[task] - before.get(task, 0) >= 5 for task in after)

    with Hosted(model_path(), "-t", "2", "-c", "2048", "--cache-ram", "0") as h:
        core = h.instance.core
        assert core is not None
        assert busy() == 2
        core.share(1, 1, 0)
        h.read(0, [1])
        assert busy() == 1
        core.share(2, 2, 0)
        h.read(0, [1])
        assert busy() == 2


def _ticks() -> dict[str, int]:
    """The CPU time of this process's threads, in hundredths of a second."""
    ticks = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/stat", encoding="utf-8") as file:
            ticks[task] = int(file.read().rpartition(")")[2].split()[11])
    return ticks


# --- the messages


class Recorder:
    """The core of an engine."""

    def __init__(self) -> None:
        self.shares: list[tuple[int, int, int]] = []

    def share(self, n_threads: int, n_threads_batch: int, cache_bytes: int) -> None:
        self.shares.append((n_threads, n_threads_batch, cache_bytes))


def test_shares_that_come_during_the_load_are_applied_after_it():
    server: Any = Server.__new__(Server)
    server._share, server._serves, server.embedder = Share(), False, None
    server.instance = type("Loaded", (), {"core": Recorder()})()
    server._handle(Share(4, 0, 100))
    server._handle(Share(2, 3, 0))
    assert server.instance.core.shares == []
    server.apply_share()
    server._handle(Share(0, 0, 50))
    assert server.instance.core.shares == [(2, 3, 100), (2, 3, 50)]


def test_the_embedder_gets_its_threads_between_two_batches():
    class Computer:
        def __init__(self) -> None:
            self.is_set = threading.Event()
            self.threads: tuple[int, int] = 0, 0
            self.by = ""

        def set_threads(self, n_threads: int, n_threads_batch: int) -> None:
            self.threads, self.by = (n_threads, n_threads_batch), threading.current_thread().name
            self.is_set.set()

    computer: Any = Computer()
    embedder = Embedder(computer, -1, lambda _: None)
    embedder.start()
    embedder.add(Share(2, 3, 0))
    assert computer.is_set.wait(30)
    assert (computer.threads, computer.by) == ((2, 3), "llamad-embedder")
