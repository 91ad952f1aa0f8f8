"""The official clients, `openai`, `anthropic` and `ollama`. They take seconds to import, so a worker does it when a
test first uses one, not when it collects them all."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class Late:
    """A module that is imported with the first use of anything public in it; pytest looks at each for private marks."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


if TYPE_CHECKING:
    import anthropic as anthropic
    import ollama as ollama
    import openai as openai
else:
    anthropic, ollama, openai = Late("anthropic"), Late("ollama"), Late("openai")
