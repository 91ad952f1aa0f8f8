"""Kills engines over one cache memory at random moments. After each kill, the next engine uses what is left.

A program of its own, because it forks, and so must have no threads. Its arguments are a seed, the number of kills and
the kind of memory, one of adopting_engine.CUT or "ranges"; its exit status is 0 if nothing was wrong.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable

from llamad.protocol.cache_memory import CacheMemory, checksum
from support.states.adopting_engine import Chained, Cut, answered

LIMIT = 300_000  # of the prompt cache: some prompts fit, so entries are dropped all the time
EMPTY_BYTES = 2 << 20  # a memory without entries has at most its table


def prompts(seed: int) -> list[bytes]:
    """Conversations that begin in three ways, fork and grow."""
    chance = random.Random(seed)
    made = [bytes(chance.randrange(33, 120) for _ in range(chance.randrange(300, 1500))) for _ in range(3)]
    for _ in range(20):
        stem = chance.choice(made)
        cut = chance.choice([len(stem), chance.randrange(1, len(stem))])
        more = bytes(chance.randrange(33, 120) for _ in range(chance.randrange(1, 500)))
        made.append(answered(stem[:cut] + more) if cut + len(more) < 3500 else stem)
    return made


def opened(front: CacheMemory, **options) -> Chained:
    kind = sys.argv[3]
    return Chained(front, **options) if kind == "ranges" else Cut(front, kind, **options)


def serve(front: CacheMemory, seed: int, told: int) -> None:
    """Answer prompts until this process is killed."""
    chance, known = random.Random(), prompts(seed)
    with opened(front, n_slots=1, cache_bytes=LIMIT) as engine:
        os.write(told, b"!")
        while True:
            engine.ask(chance.choice(known))


def check(front: CacheMemory, seed: int, told: int) -> None:
    """The fake counts tokens that are computed from other cells than those of the tokens before them."""
    for entry in front.entries():
        segments = front.pin(entry.id)
        if segments is not None:  # else it lacks an entry, and the engine drops it
            assert all(checksum(one.data) == one.checksum for one in segments)
            front.unpin(entry.id)
    with opened(front, n_slots=1, cache_bytes=LIMIT) as engine:
        for prompt in random.Random().sample(prompts(seed), 6):
            engine.ask(prompt)
        assert engine.stats()["cache_bytes"] <= LIMIT
        assert engine.n_bad == 0
    for entry in front.entries():
        assert front.pin(entry.id) is not None
        front.unpin(entry.id)


def forget(front: CacheMemory, seed: int, told: int) -> None:
    """Nothing of what was killed keeps memory."""
    with opened(front, mark=bytes(32)):
        assert front.entries() == []
        assert front.n_bytes <= EMPTY_BYTES


def fork(work: Callable[[CacheMemory, int, int], None], front: CacheMemory, seed: int, told: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work(front, seed, told)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    return pid


def ends_well(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


def main(seed: int, n_kills: int) -> bool:
    chance, front = random.Random(), CacheMemory()
    reading, told = os.pipe()
    for _ in range(n_kills):
        pid = fork(serve, front, seed, told)
        os.read(reading, 1)
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if not ends_well(fork(check, front, seed, told)):
            return False
    return ends_well(fork(forget, front, seed, told))


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]), int(sys.argv[2])))
