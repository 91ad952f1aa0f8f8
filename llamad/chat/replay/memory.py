"""The turns that the server has generated, for each key, and which messages of a chat they are.

Any thread: long chats are read by workers. What is kept is bounded in bytes; the key that has most of them makes room.
A store may keep the turns longer than the memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import msgspec

from llamad.base.fair_cache import FairCache
from llamad.chat.parsing import Reasoning
from llamad.chat.replay.meaning import Said, call_ids, digest_after, said_in
from llamad.chat.template.turns import REASONING

BYTES_MAX = 64 << 20
SAME_MAX = 8  # turns that are kept of one place in a conversation, as of a request for several completions
_TURN_BYTES = 1024  # the estimated size of a turn besides its texts and tokens


class Mark(msgspec.Struct, frozen=True):
    """A rendered prompt: the length in bytes and the digest of the messages, and the text after them that opens the
    answer."""

    n_bytes: int
    digest: bytes
    opening: bytes


class Reading(msgspec.Struct, frozen=True):
    """How a turn was parsed, besides by its format and tools."""

    reasoning: Reasoning
    tools_on: bool
    parallel: bool
    starts_in_reasoning: bool


class Turn(msgspec.Struct, eq=False):
    """An answer of the server. `begun` is what the prompt had of it already. `rendered` is the digest of a text that is
    known to mean the same."""

    begun: Said
    said: Said
    tokens: bytes  # without the token that ended it
    n_closings: int  # how many of its tokens may close a message
    prompt: Mark
    reading: Reading
    ids: tuple[str, ...]  # of its calls
    rendered: bytes = b""

    @property
    def whole(self) -> Said:
        """Return what the message says that the client has got."""
        return Said(
            (self.begun.content + self.said.content,),
            self.begun.reasoning + self.said.reasoning,
            self.said.calls,
        )

    @property
    def n_bytes(self) -> int:
        texts = (*self.whole.contents, self.whole.reasoning, *(one.arguments for one in self.said.calls))
        return _TURN_BYTES + len(self.tokens) + 4 * sum(map(len, texts))


class Recalled(msgspec.Struct, frozen=True):
    """The messages of a chat as the server generated them, the turns among them in their order, and the digest of the
    conversation."""

    messages: list[dict[str, Any]]
    turns: list[Turn]
    digest: bytes


class Store(Protocol):
    """Keeps turns under names: the digest of the conversation before a turn, and the ids of its calls. It must not
    wait."""

    def find(self, key: str, name: bytes | str) -> tuple[Turn, ...]: ...
    def keep(self, key: str, names: Sequence[bytes | str], turn: Turn) -> None: ...


class TurnMemory:
    """The turns of all keys. No key gets a turn of another one; clients without keys are one."""

    def __init__(self, bytes_max: int = BYTES_MAX, store: Store | None = None) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._bytes_max = bytes_max
        self._turns: FairCache[tuple[Turn, ...]] = FairCache(bytes_max)

    def forget(self) -> None:
        """Drop all turns, because the vocabulary is another one."""
        with self._lock:
            self._turns = FairCache(self._bytes_max)

    def keep(self, key: str, digest: bytes, turn: Turn) -> None:
        """Remember a turn that followed the conversation with this digest."""
        same = (turn, *self._find(key, digest))[:SAME_MAX]
        self._put(key, digest, same, sum(one.n_bytes for one in same))
        for id in turn.ids:
            self._put(key, id, (turn, *self._find(key, id))[:SAME_MAX], _TURN_BYTES)
        if self._store is not None:
            self._store.keep(key, (digest, *turn.ids), turn)

    def _put(self, key: str, name: Hashable, turns: tuple[Turn, ...], n_bytes: int) -> None:
        with self._lock:
            self._turns.put(key, name, turns, n_bytes)

    def _find(self, key: str, name: bytes | str) -> tuple[Turn, ...]:
        with self._lock:
            turns = self._turns.find(key, name) or ()
        if not turns and self._store is not None:
            turns = self._store.find(key, name)
            with self._lock:
                newer = self._turns.find(key, name)  # another thread may have kept one meanwhile
                if turns and not newer:
                    self._turns.put(key, name, turns, sum(one.n_bytes for one in turns))
            turns = newer or turns
        return turns

    def recall(
        self, key: str, messages: Sequence[dict[str, Any]], stable: Callable[[str], str] = str
    ) -> Recalled:
        """Return the chat with the server's own turns in place of those that mean the same. The messages stay
        unchanged. `stable` returns a text in which the markers of files are the same for every request."""
        recalled, turns, digest = [], [], b""
        for message in messages:
            said = said_in(message) if message.get("role") == "assistant" else None
            turn = None
            if said is not None:
                same = self._find(key, digest)
                turn = next((one for one in same if one.whole.is_said_by(said)), None)
                if turn is None:
                    turn = self._named(key, message, said)
            if turn is not None:
                message, said = _restored(message, turn), turn.whole
                turns.append(turn)
            recalled.append(message)
            digest = digest_after(digest, message, said, stable)
        return Recalled(recalled, turns, digest)

    def _named(self, key: str, message: dict[str, Any], said: Said) -> Turn | None:
        """Return the turn whose first call has the id of this message's, because the conversation before it may have
        changed. Some formats give the same ids again, as Kimi K2's `functions.name:0`: they name no turn."""
        turns = [one for id in call_ids(message)[:1] for one in self._find(key, id)]
        return turns[0] if len(turns) == 1 and turns[0].whole.is_said_by(said) else None


def _restored(message: dict[str, Any], turn: Turn) -> dict[str, Any]:
    """Return the message in the server's own words; the ids of calls stay the client's."""
    whole = turn.whole
    restored = {name: value for name, value in message.items() if name not in REASONING}
    restored["content"] = whole.content or None
    if whole.reasoning:
        restored["reasoning_content"] = whole.reasoning
    if whole.calls:
        restored["tool_calls"] = [
            {**sent, "function": {**sent["function"], "arguments": own.arguments}}
            for sent, own in zip(message["tool_calls"], whole.calls, strict=True)
        ]
    return restored
