"""The chat templates of llama.cpp's sources, which are fetched once into the cache."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

RECIPE = Path(__file__).parents[3] / "vendor" / "llama.cpp"


@cache
def folder() -> Path:
    """Return the folder of the templates."""
    made = subprocess.run(
        [sys.executable, str(RECIPE), "templates"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(made.stdout.strip())


@cache
def sources() -> dict[str, str]:
    """Return the Jinja texts by the names of the templates."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder().glob("*.jinja"))}


def path_of(name: str) -> str:
    """Return the path of a template."""
    return str(folder() / f"{name}.jinja")
