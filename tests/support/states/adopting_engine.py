"""An engine over the front's cache memory: what it leaves there, the next one adopts."""

from __future__ import annotations

import os
import threading
import time

from llamad.engine.testing.fake import Fake
from llamad.protocol.cache_memory import CacheMemory
from support.engine_harness import Harness, learn_layout

MANY = 1 << 30
MARK = bytes(range(32))
PLAIN = {"n_slots": 2, "cache_bytes": MANY}


class Engine(Harness):
    """An engine over the front's memory. Leaving the block is an orderly end."""

    def __init__(self, front: CacheMemory, fake: Fake | None = None, mark: bytes = MARK, **options):
        super().__init__(fake or Fake(), memory=CacheMemory(os.dup(front.fd)), **(PLAIN | options))
        self.n_adopted = self.core.adopt(learn_layout(self.core, 40), mark)
        self.n_bad = 0
        self._tending = threading.Thread(target=self._tend, daemon=True)

    def _tend(self):
        while (n_bad := self.core.tend()) >= 0:
            self.n_bad = n_bad

    def __enter__(self):
        self._tending.start()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.core.end_tending()
        self._tending.join()

    def ask(self, prompt: bytes, **options) -> int:
        task = self.submit(prompt, **({"n_predict": 4} | options))
        self.wait(task)
        assert self.text(task) == bytes(prompt[-1] + k for k in (1, 2, 3, 4))
        return self.n_cached(task)


def until(condition, seconds: float = 20) -> None:
    t_end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < t_end
        time.sleep(0.01)


def left(front: CacheMemory, *prompts: bytes, **options) -> None:
    """Let an engine leave these prompts."""
    with Engine(front, **options) as one:
        for prompt in prompts:
            one.ask(prompt)
