"""The text of messages whose content is a string or a list of parts. Pure functions, any thread."""

from __future__ import annotations

from typing import Any


def is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type", "text") in ("text", "input_text", "output_text")


def joined(content: list[Any]) -> str:
    """Join the texts with newlines. The marker of an image or a sound gets no newline."""
    text, after_text = "", False
    for part in content:
        if is_text(part):
            is_written = not part.get("is_media")
            text += ("\n" if is_written and after_text else "") + str(part.get("text", ""))
            after_text = is_written
    return text


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return joined(content)
    return content if isinstance(content, str) else ""
