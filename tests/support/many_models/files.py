"""The files of a router: its preset, its folder of models and the cache of the hub."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from support.http_client import Client

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Router:
    """A router that is compared with another one. `is_peer`: it is llama-server."""

    client: Client
    is_peer: bool


class Files:
    """The preset, the folder of models and the hub's cache of a router. `model` is what the names below stand for."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root = root
        self.model = model
        self.preset = root / "models.ini"
        self.folder = root / "models"
        self.cache = root / "cache"
        self.folder.mkdir()
        self.cache.mkdir()
        self.write("")
        self.environ = {"LLAMA_CACHE": str(self.cache), "HF_HUB_CACHE": str(self.cache)}

    @property
    def flags(self) -> tuple[str, ...]:
        return "--models-preset", str(self.preset), "--models-dir", str(self.folder)

    def write(self, preset: str) -> None:
        """Write the preset; {tiny} stands for the path of the model."""
        self.preset.write_text(preset.replace("{tiny}", str(self.model)))

    def add(self, path: str) -> None:
        """Add the model to the folder under a path."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(self.model)

    def copy(self, name: str, model: str | Path | None = None) -> Path:
        """Copy a model, or else the usual one, so that the processes which have mapped it can be recognized."""
        target = self.root / name
        shutil.copy(model or self.model, target)
        return target

    def add_cached(self, repo: str, name: str) -> Path:
        """Add the model to the cache, and return its path."""
        folder = self.cache / f"models--{repo.replace('/', '--')}"
        target = folder / "snapshots" / COMMIT / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.model, target)
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(COMMIT)
        return target
