"""Loads broken models: tiny models with every small change to their head, and with random changes.

Invariant: a file either loads and can generate tokens, or is refused with a sentence; no signal ends the process, and
nothing hangs. If the program refuses a file, it ends with a sentence and status 1, or /health is a 500 with the reason.

Each file is loaded in a child process. LLAMAD_FUZZ_CASES says how many random ones there are, for each kind of model.
KNOWN lists what llama.cpp still aborts on, with the reason why it is not found before.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from support.gguf_loading import LOADED, REFUSED, Loader
from support.live_daemon import Live
from support.models.gguf_mutations import Gguf, changes, take_apart, with_bpe
from support.models.tiny_kv_models import write_model

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000")) // 100
FLAGS = ("-c", "512", "-np", "2")
KINDS = ("llama", "llama+bpe", "gemma3", "mamba", "jamba", "qwen2vl")
KNOWN: dict[str, str] = {}


def model(kind: str, folder: Path) -> Gguf:
    name, _, tokenizer = kind.partition("+")
    whole = take_apart(write_model(folder / "whole.gguf", name))
    return with_bpe(whole) if tokenizer == "bpe" else whole


@pytest.fixture
def mutant():
    """Return a path in memory, because hundreds of files are written."""
    folder = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/tmp")
    path = folder / f"llamad-{os.getpid()}.gguf"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def loader():
    with Loader() as loader:
        yield loader


def judge(loader: Loader, path: Path, raw: bytes, change: str) -> str | None:
    """Load the changed file; return what is wrong, or None."""
    path.write_bytes(raw)
    outcome = loader.load(path, *FLAGS)
    if outcome.code == LOADED or any(re.search(pattern, change) for pattern in KNOWN):
        return None
    if outcome.code == REFUSED and str(path) in outcome.reason:
        return None
    return f"{change}: {outcome.code}, {outcome.log[-300:]}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_small_change(kind: str, tmp_path: Path, mutant: Path, loader: Loader) -> None:
    whole = model(kind, tmp_path)
    assert judge(loader, mutant, whole.build(), "unchanged") is None
    assert loader.load(mutant, *FLAGS).code == LOADED
    # The second layer is left out, because its tensors are like those of the first.
    faults = [
        judge(loader, mutant, raw, change)
        for change, raw in changes(whole)
        if not change.startswith("blk.1.")
    ]
    assert not any(faults), "\n".join(one for one in faults if one)


@pytest.mark.parametrize("kind", KINDS)
def test_random_bytes(kind: str, tmp_path: Path, mutant: Path, loader: Loader) -> None:
    """Change a few bytes of the head; the changes are the same in every run."""
    whole = model(kind, tmp_path)
    raw = whole.build()
    n_head = len(raw) - len(whole.data)
    dice = random.Random(kind)
    faults = []
    for i in range(N_CASES):
        changed = bytearray(raw)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(4, n_head)
            changed[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, changed[at] ^ 1 << dice.randrange(8)])
        faults.append(judge(loader, mutant, bytes(changed), f"case {i}"))
    assert not any(faults), "\n".join(one for one in faults if one)


def test_the_program_says_why(tmp_path: Path, mutant: Path) -> None:
    whole = model("llama", tmp_path)
    every = [(change, raw) for change, raw in changes(whole) if not change.startswith("blk.")]
    for change, raw in random.Random(7).sample(every, min(len(every), max(4, N_CASES // 10))):
        mutant.write_bytes(raw)
        with Live(*FLAGS, model=str(mutant), ready=False) as server:
            server.wait_line(r"model ready|could not|ERROR|error|llamad-\d+\.gguf")
            while server.process.poll() is None and (answer := server.client.get("/health")).status == 503:
                pass
            if server.process.poll() is None:
                assert answer.status == 200 or str(mutant) in answer.body.decode(), change
            else:
                assert server.process.returncode == 1, change
