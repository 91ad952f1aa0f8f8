"""The output of a part as Anthropic's content blocks, streamed and complete.

Runs on the event loop. chat/parsing decides which text is reasoning and which is a call.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.anthropic.request import Thinking
from llamad.api.generate.stream_event import TextFrame, write_event
from llamad.api.openai import objects
from llamad.api.openai.chat_request import Chat
from llamad.chat.parsing import Delta


def event(kind: str, **rest: Any) -> bytes:
    """Return an event of a stream, whose name is also its "type"."""
    return write_event({"type": kind, **rest}, kind.encode())


class ContentBlocks:
    """The output of one part so far. Blocks do not overlap: only the last may be open."""

    __slots__ = (
        "_frame",
        "_texts",
        "blocks",
        "chat",
        "is_open",
        "more",
        "n_calls",
        "n_whole_calls",
        "parser",
        "thinking",
    )

    def __init__(self, chat: Chat, thinking: Thinking) -> None:
        self.chat = chat
        self.parser = chat.parser()
        self.thinking = thinking
        self.blocks: list[dict[str, Any]] = []
        self.is_open = False
        self.n_calls = 0
        self.n_whole_calls = 0
        self.more: dict[str, Any] = {}  # fields that every delta gets
        self._texts: list[str] = []  # the texts of the open block
        # The index of a text block, and the frame of its events.
        self._frame: tuple[int, TextFrame] | None = None

    def take(self, deltas: list[Delta]) -> bytes:
        """Return the events for these deltas."""
        out = b""
        for delta in deltas:
            if delta.kind == "content":
                out += self._open("text", {"text": ""})
                out += self._text(delta.text)
            elif delta.kind == "reasoning":
                if not self.thinking.shown:
                    continue
                out += self._open("thinking", {"thinking": "", "signature": ""})
                if not self.thinking.empty:
                    out += self._add({"type": "thinking_delta", "thinking": delta.text}, delta.text)
            elif delta.kind == "tool_begin":
                self.n_calls += 1
                id = self.chat.call_id(delta, "toolu_")
                out += self.close() + self._open("tool_use", {"id": id, "name": delta.name, "input": {}})
            else:
                out += self._add({"type": "input_json_delta", "partial_json": delta.text}, delta.text)
        return out

    def _open(self, kind: str, rest: dict[str, Any]) -> bytes:
        """Open a block of this kind, unless one is open already."""
        if self.is_open and self.blocks[-1]["type"] == kind:
            return b""
        out = self.close()
        block = {"type": kind, **rest}
        self.blocks.append(block)
        self.is_open = True
        return out + event("content_block_start", index=len(self.blocks) - 1, content_block=block)

    def _add(self, delta: dict[str, Any], text: str) -> bytes:
        self._texts.append(text)
        return event("content_block_delta", index=len(self.blocks) - 1, delta=delta, **self.more)

    def _text(self, text: str) -> bytes:
        """Do the same as _add() for text, which is the most frequent event; within a block only the text differs."""
        if self.more:
            return self._add({"type": "text_delta", "text": text}, text)
        index = len(self.blocks) - 1
        if self._frame is None or self._frame[0] != index:
            before = b'{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":' % index
            self._frame = index, TextFrame(before, b"}}", name=b"content_block_delta")
        self._texts.append(text)
        return self._frame[1].of_text(text)

    def close(self) -> bytes:
        """Close the open block, if any, and return its events."""
        if not self.is_open:
            return b""
        self.is_open = False
        block, text = self.blocks[-1], "".join(self._texts)
        self._texts.clear()
        if block["type"] == "tool_use":
            block["input"] = _input(text)
            self.n_whole_calls += objects.is_whole(text)
        else:
            block[block["type"]] = text
        return event("content_block_stop", index=len(self.blocks) - 1)


def _input(text: str) -> dict[str, Any]:
    """Return the input of a call, or {} for a call that was cut off, which the stop reason shows."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
