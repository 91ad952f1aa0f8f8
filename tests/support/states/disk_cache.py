"""A cache on disk over a cache memory that a test fills, and whose writer runs when the test says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

from llamad.models.cache_disk.disk_cache import DiskCache
from llamad.models.cache_disk.folder import SUBFOLDER
from llamad.models.cache_disk.prefixes import Chain, Group
from llamad.models.cache_disk.reader import Target
from llamad.models.cache_disk.source import Source
from support.states.fake_cache_memory import PLAIN, FakeMemory, packed
from support.states.ses1_layouts import N_VOCAB, Form, learn

KEYS = {0: "", 1: "key-one", 2: "key-two"}
N_CTX = 4096
TARGET = Target(learn(PLAIN), N_VOCAB, N_CTX)


class Disk:
    """A cache whose writer runs when a test says so."""

    def __init__(self, path: Path, bytes_max: int = 0, model: str = "model", form: Form = PLAIN):
        self.path = path / SUBFOLDER
        self.cache = DiskCache(str(path), bytes_max)
        self.memory = FakeMemory(model, form)
        self.target = Target(learn(form), N_VOCAB, N_CTX)
        self.token_seconds = 0.0  # what the engine knows
        self.source = Source(
            self.memory, "build", lambda: "tiny", KEYS.get, lambda: self.token_seconds, n_slots=1
        )
        self.source.layout = self.target.layout
        self.cache.writer.add(self.source)

    def step(self) -> None:
        self.cache.writer._t_refresh = 0.0
        self.cache.writer.step()
        assert not any(self.memory.pins.values())

    def find(self, tokens, key: str = "", adapters: int = 0, token_seconds: float = 1.0):
        self.source.forget_slots()
        self.token_seconds = token_seconds
        return self.cache.find(self.source, key, adapters, packed(tokens))

    def fetch(self, tokens, key: str = "", adapters: int = 0):
        """The state for a prompt, or None."""
        wanted = self.find(tokens, key, adapters)
        if wanted is None:
            return None
        return asyncio.run(self.cache.fetch(wanted, self.target))

    def has(self, tokens) -> bool:
        """Whether the disk has an entry for this prompt, wherever else it is."""
        group = Group(self.source.fingerprint, "", 0)
        return self.cache.index.find(Chain(self.cache.folder.salt, group, packed(tokens))) is not None

    def files(self) -> list[Path]:
        return sorted([*self.path.glob("*.block"), *self.path.glob("*.end")])


def again(disk: Disk, **more) -> Disk:
    """The same folder in another daemon, whose cache memory is empty."""
    other = Disk(disk.path.parent, **more)
    other.step()
    return other
