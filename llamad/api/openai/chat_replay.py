"""The replay of a chat: which of its turns the server has generated, and the memory of the turn that it generates now.

placed() runs where the chat is rendered; remember() runs on the event loop when a completion has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import msgspec

from llamad.api.generate.job import CompletionPart
from llamad.api.request.replayed_prompt import ReplayedPrompt
from llamad.api.service.turns import ModelTurns
from llamad.chat.host import ChatHost
from llamad.chat.parsing import Delta, OutputParser
from llamad.chat.replay.meaning import Said
from llamad.chat.replay.memory import Mark, Reading, Recalled, Turn
from llamad.chat.replay.recorder import Recorder
from llamad.chat.replay.spans import marked, spliced
from llamad.protocol.messages import STOP_EOS, STOP_LIMIT

ParserOf = Callable[[Reading], OutputParser]


@runtime_checkable
class Parsed(Protocol):
    """The state of a completion in the dialects of chats."""

    parser: OutputParser


class ChatReplay(msgspec.Struct, frozen=True):
    """The place of a chat's next turn: its key, the digest of the messages before it, the rendered prompt, what the
    prompt has of the turn already, and how the turn is parsed. `pieces` is the prompt with the turns in it."""

    turns: ModelTurns
    key: str
    digest: bytes
    prompt: Mark
    begun: Said
    reading: Reading
    pieces: list[bytes | Turn]

    @property
    def sent(self) -> ReplayedPrompt | None:
        """Return the prompt with its turns, or None if it has none."""
        return ReplayedPrompt(self.pieces) if len(self.pieces) > 1 else None

    def remember(self, part: CompletionPart) -> None:
        """Keep a completion that has ended, unless its tokens are not what its text says, as before a stop string."""
        done, state = part.ended, part.state
        if done.stop_type not in (STOP_EOS, STOP_LIMIT) or done.truncated or not isinstance(state, Parsed):
            return
        recorder, closings = state.parser, self.turns.closings
        if not isinstance(recorder, Recorder):
            return
        tokens = part.drawn
        if tokens and done.stop_type == STOP_EOS and tokens[-1] in closings.ids:
            tokens = tokens[:-1]
        if not tokens:
            return
        turn = Turn(
            begun=self.begun,
            said=recorder.said(),
            tokens=tokens.tobytes(),
            n_closings=sum(token in closings.ids for token in tokens),
            prompt=self.prompt,
            reading=self.reading,
            ids=recorder.ids,
        )
        self.turns.memory.keep(self.key, self.digest, turn)


def placed(
    turns: ModelTurns,
    key: str,
    host: ChatHost,
    recalled: Recalled,
    prompt: str,
    begun: tuple[Delta, ...],
    reading: Reading,
    parser_of: ParserOf,
    stable: Callable[[str], str],
) -> ChatReplay:
    """Return the replay of a chat that is rendered; `begun` is what the prompt has of the next turn. `stable` returns a
    text in which the markers of files are the same for every request."""
    calls = host.format.calls
    texts: dict[Any, str] = {one.kind: one.text for one in begun}
    return ChatReplay(
        turns,
        key,
        recalled.digest,
        marked(stable(prompt), host.generation_prompt(prompt)),
        Said((texts.get("content", ""),), texts.get("reasoning", "")),
        reading,
        spliced(
            prompt,
            recalled.turns,
            turns.closings,
            parser_of,
            calls.thought_tags[0],
            stable,
            calls.unclosed_ends,
        ),
    )
