"""For the tests of chat templates: the templates that llama.cpp's sources hold, fetched once into the cache."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llamad.chat.template import ChatTemplate

RECIPE = Path(__file__).parents[3] / "vendor" / "llama.cpp"


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """Name to Jinja text."""
    made = subprocess.run(
        [sys.executable, str(RECIPE), "templates"], stdout=subprocess.PIPE, text=True, check=True
    )
    folder = Path(made.stdout.strip())
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}


@pytest.fixture(scope="session")
def templates(sources: dict[str, str]) -> dict[str, ChatTemplate]:
    """The same, compiled; what they understand is probed once."""
    return {name: ChatTemplate(source, bos="<s>", eos="</s>") for name, source in sources.items()}
