"""Random loads over tiny models of every kind of memory, with the flags that shape it, with drafts and without: each
request has the text that it has alone, none fails, and llama.cpp never lacks the room that the engine has counted.
`make soak` goes on with that for LLAMAD_SOAK_SECONDS (default 300 in all). A failure names its seed; LLAMAD_LOAD_SEED
sets the first one."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from support.live_daemon import Live
from support.models.tiny_adapters import write_lora
from support.models.tiny_kv_models import (
    BOS,
    DELTA_NET,
    FIRST_BYTE,
    HYBRID_WINDOW,
    KINDS,
    N_EMBD,
    N_VOCAB,
    SENSITIVE,
    SINKS,
    tokens_of,
    write_model,
)
from support.models.tiny_projectors import write_projector
from support.random_asks import N_CTX, N_SLOTS, Ask, Traits
from support.random_loads import Alone, Load, counts, n_drafted

SECONDS = float(os.environ.get("LLAMAD_SOAK_SECONDS", "300"))
SEED = int(os.environ.get("LLAMAD_LOAD_SEED", "1"))
N_ASKS = 40
N_ROUNDS = 3  # in a soak, of the asks of one load
ALL = (*KINDS, SINKS, HYBRID_WINDOW, DELTA_NET)
# Four windows of gpt-oss and a step of 16 tokens are 256 cells, to which llama.cpp pads: no cell is to spare.
WINDOWS = {"gemma3": 40, SINKS: 60, HYBRID_WINDOW: 30}
ADAPTED = {"mamba": ("blk.0.ssm_in.weight", "blk.1.ssm_out.weight")}
ADAPTED_ATTENTION = ("blk.1.attn_q.weight", "blk.1.attn_v.weight")
N_ADAPTERS = 2
DRAFTS = {
    "none": (),
    "drafts": ("--spec", "auto"),
    "fixed drafts": ("--spec", "auto", "--spec-fixed", "7"),
}
# Their memories cannot remove what was drafted wrongly.
NO_DRAFTS = ("mamba", "jamba")
# So that rounding, which depends on the shapes of the batches, changes no token.
EXACT = ("-ctk", "f32", "-ctv", "f32")


@dataclass(frozen=True)
class Cell:
    """A model and flags. n_ctx: of a slot."""

    kind: str
    name: str
    n_ctx: int
    flags: tuple[str, ...]
    flash: str = "off"
    drafts: str = "none"  # a key of DRAFTS

    def __str__(self) -> str:
        return f"{self.kind}, {self.name}" + (f", {self.drafts}" if self.drafts != "none" else "")

    @property
    def can_draft(self) -> bool:
        return self.kind not in NO_DRAFTS and self.drafts != "none"

    @property
    def traits(self) -> Traits:
        return Traits(
            n_adapters=N_ADAPTERS,
            has_images=self.kind == "qwen2vl",
            # If nothing is kept, what is suspended after a shift is computed again without what was shifted out.
            is_shifted_alike=self.n_ctx == N_CTX and "--cache-ram" not in self.flags,
            window=WINDOWS.get(self.kind, 0),
        )


SMALL_STEPS = ("-b", "64", "-ub", "16")


def small_cells(kind: str) -> Iterator[Cell]:
    """Without -np four slots share the cache."""
    yield Cell(kind, "crowded", 256, ("-c", "256"))
    if kind == DELTA_NET:  # it is interesting with drafts
        yield Cell(kind, "streams", 256, ("-np", "4", "-c", "1024"))
        return
    yield Cell(kind, "unified, small steps", 512, ("-np", "4", "--kv-unified", "-c", "512", *SMALL_STEPS))
    if kind == HYBRID_WINDOW:
        return  # the others have all of its parts
    yield Cell(kind, "default", 1024, ("-c", "1024"))
    yield Cell(kind, "streams", 256, ("-np", "4", "-c", "1024"))
    if kind in WINDOWS:
        yield Cell(kind, "crowded, full windows", 256, ("-c", "256", "--swa-full"))


def more_cells(kind: str) -> Iterator[Cell]:
    yield Cell(kind, "crowded, flash attention", 256, ("-c", "256"), "on")
    yield Cell(kind, "streams, flash attention", 256, ("-np", "4", "-c", "1024"), "on")
    yield Cell(kind, "crowded, small steps", 256, ("-np", "4", "--kv-unified", "-c", "256", *SMALL_STEPS))
    yield Cell(kind, "streams, small steps", 256, ("-np", "4", "-c", "1024", *SMALL_STEPS))
    yield Cell(kind, "crowded, nothing kept", 256, ("-c", "256", "--cache-ram", "0"))
    yield Cell(kind, "crowded, llama.h only", 256, ("-c", "256", "--llama-api-only"))
    if kind in WINDOWS:
        yield Cell(kind, "streams, full windows", 256, ("-np", "4", "-c", "1024", "--swa-full"))
    if kind != "llama":
        yield Cell(kind, "unified, no checkpoints", 512, ("-np", "4", "-kvu", "-c", "512", "-ctxcp", "0"))


def drafting(cells: Iterable[Cell], *drafts: str) -> Iterator[Cell]:
    """Return the cells with each kind of drafts."""
    for cell in cells:
        if "--llama-api-only" not in cell.flags:
            yield from (replace(cell, drafts=one) for one in drafts)


PLAIN = [cell for kind in ALL for cell in small_cells(kind)]
# Wide steps where room is scarce, and steps of changing width where each slot has its own stream.
DRAFTING = [
    *drafting((cell for cell in PLAIN if cell.name == "crowded"), "fixed drafts"),
    *drafting((cell for cell in PLAIN if cell.name == "streams"), "drafts"),
]
SMALL = PLAIN + DRAFTING
_MORE = [cell for kind in ALL for cell in more_cells(kind)]
LONG = (
    SMALL
    + _MORE
    + [cell for cell in drafting(PLAIN + _MORE, "drafts", "fixed drafts") if cell not in DRAFTING]
)


class Models:
    """Tiny models, each with adapters, and servers on which each request is alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.projector = write_projector(folder / "projector.gguf", "qwen2vl_merger", N_EMBD)
        self.paths: dict[str, str] = {}
        self.adapters: dict[str, str] = {}
        self.servers: dict[tuple[str, str], Live] = {}

    def _write(self, kind: str) -> None:
        window = WINDOWS.get(kind, 0)
        model = write_model(self.folder / f"{kind}.gguf", kind, np.float32, window, SENSITIVE)
        names = ADAPTED.get(kind, ADAPTED_ATTENTION)
        files = [self.folder / f"{kind}-{i}.gguf" for i in range(N_ADAPTERS)]
        self.adapters[kind] = ",".join(
            write_lora(file, model, i, arch=kind, names=names) for i, file in enumerate(files)
        )
        self.paths[kind] = model

    def serve(self, kind: str, flash: str, *flags: str) -> Live:
        if kind not in self.paths:
            self._write(kind)
        flags = ("--lora", self.adapters[kind], "--lora-init-without-apply", "-fa", flash, *EXACT, *flags)
        if kind == "qwen2vl":
            flags += ("--mmproj", self.projector)
        return Live(*flags, model=self.paths[kind])

    def alone(self, kind: str, flash: str = "off") -> Alone:
        if (kind, flash) not in self.servers:
            flags = (*Alone.FLAGS, "-c", str(N_CTX))
            self.servers[kind, flash] = self.serve(kind, flash, *flags)
        return Alone(self.servers[kind, flash].client, flash)

    def close(self) -> None:
        for server in self.servers.values():
            server.__exit__()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    models = Models(tmp_path_factory.mktemp("kinds"))
    yield models
    models.close()


@pytest.mark.parametrize("kind", ALL)
def test_a_prompt_with_one_other_token_has_another_text(models: Models, kind: str) -> None:
    """Mostly. Else a wrong cache would go unnoticed."""
    alone, choose, n_changed = models.alone(kind), random.Random(SEED), 0
    text = "letters and spaces"
    answer = alone.client.post("/tokenize", {"content": text, "add_special": True})
    assert answer.json["tokens"] == tokens_of(text)
    for _ in range(10):
        prompt = [BOS, *(choose.randrange(FIRST_BYTE, N_VOCAB) for _ in range(100))]
        reach = WINDOWS[kind] if kind == HYBRID_WINDOW else len(prompt)
        other, at = prompt.copy(), choose.randrange(len(prompt) - reach, len(prompt))
        other[at] = FIRST_BYTE + (prompt[at] + 99) % (N_VOCAB - FIRST_BYTE)
        options = {"n_predict": 30, "temperature": 0.0, "ignore_eos": True, "return_tokens": True}
        texts = [alone.tokens(Ask("", {"prompt": one, **options})) for one in (prompt, other)]
        n_changed += texts[0] != texts[1]
    assert n_changed >= 5


def run(models: Models, folder: Path, cell: Cell, seconds: float, n_rounds: int) -> None:
    """One load, or as many as there is time for."""
    t_end = time.monotonic() + seconds
    alone = models.alone(cell.kind, cell.flash)
    more = ("--metrics", "--slots", "--slot-save-path", str(folder))
    with models.serve(cell.kind, cell.flash, *cell.flags, *DRAFTS[cell.drafts], *more) as server:
        assert server.client.get("/props").json["total_slots"] == N_SLOTS
        for seed in itertools.count(SEED + 1000 * LONG.index(cell)):
            load = Load(seed, cell.traits, alone, N_ASKS)
            for _ in range(n_rounds):
                load.run(server)
                print(cell, load.seed, counts(server), dict(load.seen))
                load.check(server)
            if cell.drafts == "fixed drafts" or not cell.can_draft:
                assert (n_drafted(server) > 0) is cell.can_draft
            if time.monotonic() > t_end:
                return


@pytest.mark.parametrize("cell", SMALL, ids=str)
def test_a_load_has_the_texts_of_requests_alone(models: Models, tmp_path: Path, cell: Cell) -> None:
    run(models, tmp_path, cell, 0, 1)


@pytest.mark.soak
@pytest.mark.parametrize("cell", LONG, ids=str)
def test_many_loads_have_the_texts_of_requests_alone(models: Models, tmp_path: Path, cell: Cell) -> None:
    run(models, tmp_path, cell, SECONDS / len(LONG), N_ROUNDS)
