"""A chat over any template: what a model may have written, what a client makes of it, and the next turn's prompt."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

from llamad.chat.host import ChatHost
from llamad.chat.parsing import OutputParser, ends_in_reasoning, make_parser
from llamad.chat.replay.meaning import Said, said_in
from llamad.chat.replay.memory import Reading, Turn, TurnMemory
from llamad.chat.replay.recorder import Recorder
from llamad.chat.replay.spans import Closings, closing_text, marked, spliced

KEY = "key"
# Texts with which the models of llama.cpp's templates end a turn; a server takes them from the vocabulary.
ENDS = (
    "<|im_end|> </s> <|eot_id|> <|eom_id|> <end_of_turn> <|return|> <|call|> <turn|> <|tool_response>"
    " <|observation|> <|endoftext|> <|end_of_text|> <|END_OF_TURN_TOKEN|> <|end_of_msg|> [e~[ <|eos|> <|calls|>"
    " <seed:eos> <end_of_sentence> <｜end▁of▁sentence｜> <|message_sep|> <|role_end|> <|assistant_end|>"
).split()


class Chat:
    """One chat of a model with this template."""

    def __init__(self, host: ChatHost, tools: list[dict[str, Any]], thinking: bool | None = None) -> None:
        self.host = host
        self.tools = tools
        self.thinking = thinking
        self.memory = TurnMemory()
        self.ids = map("abc{:06d}".format, count()).__next__  # of calls
        self.closings = Closings(
            [end.encode() for end in (*ENDS, closing_text(host.closing, ENDS)) if end], ()
        )

    def prompt(self, messages: list[dict[str, Any]]) -> str:
        return self.host.prompt(messages, tools=self.tools, kwargs={}, thinking=self.thinking)

    def parser(self, reading: Reading) -> OutputParser:
        return make_parser(
            self.host.format,
            reasoning=reading.reasoning,
            tools_on=reading.tools_on,
            parallel=reading.parallel,
            starts_in_reasoning=reading.starts_in_reasoning,
            tools=self.tools,
        )

    def written(
        self, before: list[dict[str, Any]], message: dict[str, Any], after: list[dict[str, Any]]
    ) -> str:
        """Return what a model writes that says this message, in the template's own form; "" if the template shows it
        otherwise than its parser reads it."""
        prompt, text = self.prompt(before), self.prompt([*before, message, *after])
        thought = self.host.format.calls.thought_tags
        opening = self.host.generation_prompt(prompt)
        head, start = prompt, ""
        if not text.startswith(prompt) and thought[0] and thought[0] in opening:
            # The template leaves out the reasoning that the prompt opens; the model closes it first.
            head = prompt[: len(prompt) - len(opening)] + opening[: opening.index(thought[0])]
            start = thought[1] if ends_in_reasoning(self.host.format, prompt) else ""
        elif not text.startswith(prompt) and opening:  # it opens an answer only at the end of a prompt
            head = prompt[: len(prompt) - len(opening)]
        if not text.startswith(head):
            return ""
        data, at = text.encode(), len(head.encode())
        for end in self._ends(data, at):
            written = data[at:end].decode().rstrip()
            for one in (written, start + written):
                said = self.read(prompt, one).said()
                wanted = said_in(message)
                if wanted is not None and said.is_said_by(wanted) and wanted.is_said_by(said):
                    return one
        return ""

    def _ends(self, data: bytes, start: int) -> Iterator[int]:
        """Yield where an answer may end that begins there."""
        for n_within in range(40):
            end = self.closings.end(data, start, n_within, len(data))
            if end < 0:
                break
            yield end
        for tag in map(str.encode, self.host.format.calls.unclosed_ends):
            at = data.find(tag, start)
            if at >= 0:
                yield at + len(tag)

    def reading(self, prompt: str) -> Reading:
        return Reading("auto", bool(self.tools), True, ends_in_reasoning(self.host.format, prompt))

    def read(self, prompt: str, written: str) -> Recorder:
        recorder = Recorder(self.parser(self.reading(prompt)))
        recorder.feed(written)
        recorder.finish()
        return recorder

    def generate(self, before: list[dict[str, Any]], written: str) -> tuple[dict[str, Any], Turn]:
        """Remember that the model wrote this after these messages; return the message for the client."""
        recalled = self.memory.recall(KEY, before)
        prompt = self.prompt(recalled.messages)
        said = self.read(prompt, written).said()
        calls = [
            {
                "id": self.ids(),
                "type": "function",
                "function": {"name": one.name, "arguments": one.arguments},
            }
            for one in said.calls
        ]
        n_within = 0
        while self.closings.end(written.encode(), 0, n_within, len(written.encode())) >= 0:
            n_within += 1
        turn = Turn(
            begun=Said(),
            said=said,
            tokens=written.encode(),
            n_closings=n_within,
            prompt=marked(prompt, self.host.generation_prompt(prompt)),
            reading=self.reading(prompt),
            ids=tuple(str(one["id"]) for one in calls),
        )
        self.memory.keep(KEY, recalled.digest, turn)
        message: dict[str, Any] = {"role": "assistant", "content": said.content}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if calls:
            message["tool_calls"] = calls
        return message, turn

    def replayed(self, messages: list[dict[str, Any]], key: str = KEY) -> list[bytes | Turn]:
        """Return the pieces of the prompt for these messages."""
        recalled = self.memory.recall(key, messages)
        calls, prompt = self.host.format.calls, self.prompt(recalled.messages)
        thought, ends = calls.thought_tags[0], calls.unclosed_ends
        return spliced(prompt, recalled.turns, self.closings, self.parser, thought, call_ends=ends)


def joined(pieces: list[bytes | Turn]) -> str:
    return b"".join(one.tokens if isinstance(one, Turn) else one for one in pieces).decode()


def mangled(message: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return an assistant's message as a client may send it back: without its reasoning, with other white space, `null`
    content, and arguments in another order and form."""
    dice = random.Random(seed)
    sent = dict(message)
    if dice.random() < 0.7:
        sent.pop("reasoning_content", None)
    content = message["content"]
    if not content and message.get("tool_calls"):
        sent["content"] = dice.choice([None, "", " \n"])
    elif dice.random() < 0.5:
        sent["content"] = [{"type": "text", "text": content.strip()}]
    else:
        sent["content"] = dice.choice([content.strip(), f"{content}\n"])
    if message.get("tool_calls"):
        sent["tool_calls"] = [_mangled_call(one, dice) for one in message["tool_calls"]]
    return sent


def _mangled_call(call: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    try:
        value = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        return call
    items = list(value.items())
    dice.shuffle(items)
    indent, escapes = dice.choice([None, 2]), dice.random() < 0.5
    separators = dice.choice([(",", ":"), (", ", ": ")])
    arguments = json.dumps(dict(items), indent=indent, ensure_ascii=escapes, separators=separators)
    return {**call, "function": {**call["function"], "arguments": arguments}}
