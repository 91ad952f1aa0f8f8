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
SIZES = {"n_ctx": 4096, "n_cells": 8192, "n_batch": 512}  # of an engine that saves prompts in parts


class Engine(Harness):
    """An engine over the front's memory. Leaving the block is an orderly end."""

    def __init__(self, front: CacheMemory, fake: Fake | None = None, mark: bytes = MARK, **options):
        super().__init__(fake or Fake(), memory=CacheMemory(os.dup(front.fd)), **(PLAIN | options))
        self.layout = learn_layout(self.core, 40)
        self.n_adopted = self.core.adopt(self.layout, mark)
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


def answered(prompt: bytes) -> bytes:
    """The prompt with the answer of the fake."""
    return prompt + bytes(prompt[-1] + k for k in (1, 2, 3, 4))


class Chained(Engine):
    """An engine that saves prompts in parts."""

    def __init__(self, front: CacheMemory, fake: Fake | None = None, **options):
        options = {"n_slots": 2, **SIZES} | options
        fake = fake or Fake(unified=True, **SIZES)
        super().__init__(front, fake, **({"spare_seq": options["n_slots"]} | options))
        self.front = front

    def keep(self, prompt: bytes, **options) -> int:
        """Ask, and wait until all of the turn is saved. Return how many tokens were not computed."""
        n = self.ask(prompt, **options)
        n_tokens = len(answered(prompt))  # with BOS, and without the last token, which is not computed
        until(lambda: n_tokens in [entry.n_tokens for entry in self.front.entries()], 20)
        return n


# Memories whose parts are cut out of whole states: what makes the fake, and what the engine is told of it.
WINDOW = 48
STREAMS = {"n_cells": 0}
CUT: dict[str, tuple[dict, dict]] = {
    "streams": ({}, STREAMS),
    "window": ({"n_swa": WINDOW}, {"n_swa": WINDOW, **STREAMS}),
    "unified window": (
        {"n_swa": WINDOW, "unified": True, "n_cells": SIZES["n_cells"]},
        {"n_swa": WINDOW},
    ),
    "hybrid": ({"hybrid": True}, {"can_share": False, **STREAMS}),
    "unified hybrid": ({"hybrid": True, "unified": True, "n_cells": SIZES["n_cells"]}, {"can_share": False}),
    "window and hybrid": (
        {"hybrid": True, "n_swa": WINDOW},
        {"can_share": False, "n_swa": WINDOW, **STREAMS},
    ),
}
WITH_ENDS = tuple(kind for kind in CUT if kind != "streams")


class Cut(Chained):
    """An engine that cuts parts out of whole states."""

    def __init__(self, front: CacheMemory, kind: str, *, n_slots: int = 2, n_checkpoints: int = 0, **options):
        fake_options, more = CUT[kind]
        fake = Fake(
            n_ctx=SIZES["n_ctx"],
            n_batch=SIZES["n_batch"],
            n_seqs=n_slots,
            **fake_options,
            **{name: options.pop(name) for name in ("decode_us", "state_us", "token_us") if name in options},
        )
        if n_checkpoints:
            options = {"checkpoint_min_step": 8192, "checkpoint_bytes": MANY} | options
        super().__init__(
            front,
            fake,
            n_slots=n_slots,
            n_checkpoints=n_checkpoints,
            **(more | {"spare_seq": -1} | options),
        )


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
