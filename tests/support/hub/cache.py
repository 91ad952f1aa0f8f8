"""A cache folder of a test's own, and fetches into it from the hub on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from llamad.flags.parse import parse
from llamad.models.hub.fetch import Fetch, Files
from support.hub.server import WAIT_SECONDS, HubServer


def gguf(size: int = 3000, seed: int = 1) -> bytes:
    """What looks like a model from far away."""
    return b"GGUF" + bytes((seed * i * i + i) % 251 for i in range(size - 4))


def wait_for(condition: Callable[[], bool]) -> None:
    t_end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < t_end
        time.sleep(0.005)


class Cache:
    def __init__(self, root: Path, hub: HubServer) -> None:
        self.root = root
        self.environ: Mapping[str, str] = {"LLAMA_CACHE": str(root), "HF_ENDPOINT": hub.url}

    def fetch(self, *flags: str, **more: str) -> Files:
        """With no pauses to speak of."""
        return Fetch(parse(flags, {}).settings.model, {**self.environ, **more}, pause_seconds=0.001).run()

    def parts(self) -> list[Path]:
        return sorted(self.root.rglob("*.part*"))
