"""The output of a part as the items of a response, streamed and complete.

Runs on the event loop. chat/parsing decides which text is reasoning and which is a call.
"""

from __future__ import annotations

from typing import Any

from llamad.api.generate.stream_event import write_event
from llamad.api.openai import objects
from llamad.api.openai.chat_request import Chat
from llamad.api.openai.namespaces import Member
from llamad.chat.parsing import Delta


class Events:
    """Numbers the events of one stream. The first ones are made late, when there is something to send. Each later one
    has the fields of `more`."""

    __slots__ = ("more", "n")

    FIRST = ("response.created", "response.in_progress")

    def __init__(self) -> None:
        self.n = len(self.FIRST)
        self.more: dict[str, Any] = {}

    def first(self, response: dict[str, Any]) -> bytes:
        return b"".join(_event(kind, i, {"response": response}) for i, kind in enumerate(self.FIRST))

    def make(self, kind: str, **rest: Any) -> bytes:
        self.n += 1
        return _event(kind, self.n - 1, rest | self.more)


def _event(kind: str, number: int, rest: dict[str, Any]) -> bytes:
    return write_event({"type": kind, "sequence_number": number, **rest}, kind.encode())


class OutputItems:
    """The output of one part so far. Items do not overlap: only the last may be open."""

    __slots__ = (
        "_logprobs",
        "_texts",
        "_unsaid",
        "chat",
        "events",
        "is_open",
        "items",
        "members",
        "n_thought",
        "parser",
    )

    def __init__(self, chat: Chat, events: Events, members: dict[str, Member]) -> None:
        self.chat = chat
        self.members = members
        self.parser = chat.parser()
        self.events = events
        self.items: list[dict[str, Any]] = []
        self.is_open = False
        self.n_thought = 0.0  # counts reasoning tokens
        self._texts: list[str] = []  # the texts of the open item
        self._unsaid: list[dict[str, Any]] = []  # logprobs not sent yet
        self._logprobs: list[dict[str, Any]] = []  # the logprobs of the open message

    def take(
        self, deltas: list[Delta], n_tokens: int = 0, logprobs: list[dict[str, Any]] | None = None
    ) -> bytes:
        """Return the events for these deltas, which came from `n_tokens` tokens with these `logprobs`. If the deltas
        have several kinds, reasoning gets its share of the tokens by length."""
        n_chars = sum(len(delta.text) for delta in deltas)
        n_thought = sum(len(delta.text) for delta in deltas if delta.kind == "reasoning")
        self.n_thought += n_tokens * n_thought / n_chars if n_thought else 0
        self._unsaid += logprobs or []
        out = b""
        for delta in deltas:
            if delta.kind == "content":
                out += self._open("message", "msg_", {"role": "assistant", "content": []})
                said, self._unsaid = self._unsaid, []
                self._logprobs += said
                out += self._add("response.output_text.delta", delta.text, content_index=0, logprobs=said)
            elif delta.kind == "reasoning":
                self._unsaid = []
                out += self._open("reasoning", "rs_", {"summary": [], "content": []})
                out += self._add("response.reasoning_text.delta", delta.text, content_index=0)
            elif delta.kind == "tool_begin":
                call_id = self.chat.call_id(delta)
                rest = {"call_id": call_id, **self._name(delta.name), "arguments": ""}
                out += self.close() + self._open("function_call", "fc_", rest)
            else:
                out += self._add("response.function_call_arguments.delta", delta.text)
        return out

    def _name(self, full: str) -> dict[str, str]:
        """Return the name of a function, and its namespace, if it has one, as the request named them."""
        member = self.members.get(full)
        return {"name": full} if member is None else {"name": member.name, "namespace": member.namespace}

    def _event(self, kind: str, **rest: Any) -> bytes:
        """Return an event about the open item."""
        return self.events.make(kind, output_index=len(self.items) - 1, **rest)

    def _open(self, kind: str, prefix: str, rest: dict[str, Any]) -> bytes:
        """Open an item of this kind, unless one is open already."""
        if self.is_open and self.items[-1]["type"] == kind:
            return b""
        out = self.close()
        item = {"id": objects.new_id(prefix), "type": kind, "status": "in_progress", **rest}
        self.items.append(item)
        self.is_open = True
        out += self._event("response.output_item.added", item=item)
        if kind != "function_call":
            out += self._part("response.content_part.added", "")
        return out

    def _add(self, kind: str, text: str, **rest: Any) -> bytes:
        self._texts.append(text)
        return self._event(kind, item_id=self.items[-1]["id"], delta=text, **rest)

    def _content(self, text: str) -> dict[str, Any]:
        if self.items[-1]["type"] == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs}

    def _part(self, kind: str, text: str) -> bytes:
        return self._event(kind, item_id=self.items[-1]["id"], content_index=0, part=self._content(text))

    def close(self, status: str = "completed") -> bytes:
        """Close the open item, if any, and return its events."""
        if not self.is_open:
            return b""
        self.is_open = False
        item, text = self.items[-1], "".join(self._texts)
        self._texts.clear()
        item["status"] = status
        if item["type"] == "function_call":
            if not objects.is_whole(text):
                item["status"] = "incomplete"
            item["arguments"] = text
            done = {"item_id": item["id"], "name": item["name"], "arguments": text}
            out = self._event("response.function_call_arguments.done", **done)
        else:
            item["content"] = [self._content(text)]
            fields: dict[str, Any] = {"item_id": item["id"], "content_index": 0, "text": text}
            if item["type"] == "message":
                out = self._event("response.output_text.done", **fields, logprobs=self._logprobs)
            else:
                out = self._event("response.reasoning_text.done", **fields)
            out += self._part("response.content_part.done", text)
            self._logprobs = []
        return out + self._event("response.output_item.done", item=item)
