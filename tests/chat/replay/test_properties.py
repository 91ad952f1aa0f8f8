"""Conversations of many kinds of turns, in every format of calls: whatever a client makes of a turn that it sends
back, the next prompt begins with the one before and what the model wrote, if the template shows all of it."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from support.chat_outputs import TOOLS as RECORDED_TOOLS
from support.chats.formats import TOOLS, UNCLOSED, UNKNOWN, USER, host_of, one_of_each_format, results
from support.chats.replayed import KEY, Chat, joined, mangled
from support.recorded_outputs import CASES

from llamad.chat.parsing.formats import FORMATS
from llamad.chat.template import TemplateError

LETTERS = "ab \n\t{}[]\"'\\<>,:é😀0"
WORDS = ("Sure.", "I will look.", "Hm, ", "é😀", '{"a": 1}', "1. one\n2. two", "`x < y`", "Done", " - ")
VALUES = (0, -1, 1.5, True, None, "", "a b", [], [1, "x"], {}, {"k": {"n": [None, 2.0]}})


def drawn_call(dice: random.Random) -> tuple[str, dict[str, Any]]:
    if dice.random() < 0.4:
        return "get_weather", {"city": dice.choice(WORDS), "days": dice.randrange(99)}
    if dice.random() < 0.5:
        return "free", {name: dice.choice(VALUES) for name in dice.sample("abcdef", dice.randrange(4))}
    return "run", {"code": "".join(dice.choices(LETTERS, k=dice.randrange(12)))}


FREE = {"type": "object", "properties": {name: {"description": name} for name in "abcdef"}}
ALL_TOOLS = [
    *TOOLS,
    {"type": "function", "function": {"name": "free", "description": "x", "parameters": FREE}},
]


def drawn_message(dice: random.Random, chat: Chat) -> dict[str, Any]:
    """Return what an assistant may say: text, reasoning, calls, or several of them."""
    n_calls = dice.choice((0, 1, 1, 2 if chat.host.has_parallel_calls else 1))
    text = "".join(dice.choices(WORDS, k=dice.randrange(1, 5))).strip()
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text if not n_calls or dice.random() < 0.4 else "",
    }
    if chat.host.format.reasons and dice.random() < 0.5:
        message["reasoning_content"] = "".join(dice.choices(WORDS, k=2)).strip()
    if n_calls:
        message["tool_calls"] = [
            {
                "id": f"abc12345{i}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for i, (name, arguments) in enumerate(drawn_call(dice) for _ in range(n_calls))
        ]
    return message


@pytest.mark.parametrize("seed", range(6))
def test_every_next_prompt_begins_with_the_last_one(sources: dict[str, str], seed: int) -> None:
    n_kept: Counter[str] = Counter()
    names = one_of_each_format(sources)
    assert {host_of(sources[name]).format.name for name in names} == {one.name for one in FORMATS}
    for name in names:
        dice = random.Random(f"{name} {seed}")
        chat, messages = Chat(host_of(sources[name]), ALL_TOOLS), [USER]
        for turn in range(8):
            wanted = drawn_message(dice, chat)
            recalled = chat.memory.recall(KEY, messages).messages
            try:
                written = chat.written(recalled, wanted, results(wanted))
            except TemplateError:
                written = ""
            if not written:
                continue  # the template has no place for it, or its parser reads it in another way
            prompt = joined(chat.replayed(messages))
            message, _ = chat.generate(messages, written)
            messages = [*messages, mangled(message, dice.randrange(1 << 16)), *results(message)]
            after = joined(chat.replayed(messages))
            assert after.startswith(prompt + written), (name, seed, turn, message, messages[-2])
            n_kept[name] += 1
    assert len(n_kept) == len(names)
    assert sum(n_kept.values()) > 4 * len(n_kept)


def test_recorded_outputs(sources: dict[str, str]) -> None:
    """Models do not write calls as their template renders them. The tokens stay theirs."""
    n_replayed: Counter[str] = Counter()
    for name, source in sources.items():
        if name in UNKNOWN | UNCLOSED:
            continue
        host = host_of(source)
        for case, (format, text, meant) in CASES.items():
            if format.name != host.format.name:
                continue
            chat = Chat(host, RECORDED_TOOLS)
            try:
                message, turn = chat.generate([USER], text)
                rendered = chat.written([USER], message, results(message))
            except TemplateError:  # the template cannot show these tools or this message
                continue
            is_read = [one["function"]["name"] for one in message.get("tool_calls", ())] == [
                one.name for one in meant.calls
            ] and message["content"] == meant.content
            if rendered and is_read and (meant.content or meant.calls):
                for seed in range(4):
                    pieces = chat.replayed([USER, mangled(message, seed), *results(message)])
                    assert turn in pieces, (name, case, seed)
                n_replayed[host.format.name] += 1
    assert len(n_replayed) >= 15, n_replayed
