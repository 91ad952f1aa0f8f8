"""Folders, caches and presets for tests of the catalogue. A model is a file that begins as a GGUF file does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from llamad.flags.parse import parse
from llamad.models.catalogue import catalogue
from llamad.models.catalogue.catalogue import Catalogue
from llamad.models.catalogue.entry import Entry

MODEL = b"GGUF" + bytes(60)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Place:
    """A folder of a test, with a cache, a folder of models and a preset in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.models = root / "models"
        self.preset = root / "models.ini"
        self.environ: Mapping[str, str] = {"LLAMA_CACHE": str(root / "cache"), "HOME": str(root)}

    def file(self, path: str) -> str:
        """Write a model at a path below the root, and return the whole path."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(MODEL)
        return str(target)

    def cached(self, repo: str, *names: str, commit: str = COMMIT) -> list[str]:
        """Write models into the cache, and return their paths."""
        folder = f"cache/models--{repo.replace('/', '--')}"
        paths = [self.file(f"{folder}/snapshots/{commit}/{name}") for name in names]
        refs = self.root / folder / "refs"
        refs.mkdir(exist_ok=True)
        (refs / "main").write_text(commit)
        return paths

    def read(self, preset: str | None = None, *flags: str, **environ: str) -> Catalogue:
        """Return the catalogue of the cache, of the folder if there is one, and of the preset's text."""
        line = list(flags)
        if preset is not None:
            self.preset.write_text(preset, encoding="utf-8")
            line += ["--models-preset", str(self.preset)]
        if self.models.is_dir():
            line += ["--models-dir", str(self.models)]
        return catalogue.read(parse(line, environ), self.environ)

    def entry(self, preset: str, *flags: str, **environ: str) -> Entry:
        """Return the only entry."""
        (entry,) = self.read(preset, *flags, **environ).entries.values()
        return entry
