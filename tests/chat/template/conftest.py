"""For the tests of chat templates: the templates that llama.cpp's sources hold, compiled."""

from __future__ import annotations

import pytest

from llamad.chat.template import ChatTemplate


@pytest.fixture(scope="session")
def templates(sources: dict[str, str]) -> dict[str, ChatTemplate]:
    """The templates of llama.cpp's sources, compiled; what they understand is probed once."""
    return {name: ChatTemplate(source, bos="<s>", eos="</s>") for name, source in sources.items()}
