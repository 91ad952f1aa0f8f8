"""Over every template of llama.cpp's sources: a turn that a client sends back in its own words is the turn that the
model wrote, unless the template leaves out a part of it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.chats.formats import (
    CALLS,
    LEFT_OUT,
    TOOLS,
    UNCLOSED,
    UNKNOWN,
    USER,
    host_of,
    one_of_each_format,
    results,
    said,
)
from support.chats.replayed import KEY, Chat, joined, mangled

from llamad.chat.replay.memory import Turn
from llamad.chat.template import TemplateError

KINDS = ("answer", "call", "calls", "thought")


def replays(chat: Chat, kind: str, calls: list[tuple[str, Any]], seed: int) -> str:
    """Return "replayed", or why there is nothing to replay. Asserts that a replayed prompt begins with the first one
    and what the model wrote."""
    wanted = said(kind, calls)
    try:
        written = chat.written([USER], wanted, results(wanted))
    except TemplateError:
        return "refused"
    if not written:
        return "left out"
    message, turn = chat.generate([USER], written)
    first = chat.prompt([USER])
    pieces = chat.replayed([USER, mangled(message, seed), *results(message)])
    if turn not in pieces:
        return "text"
    assert joined(pieces).startswith(first + written)
    rest = pieces[-1]
    assert isinstance(rest, bytes)
    assert chat.closings.end(rest, 0, 0, len(rest)) == 0
    return "replayed"


@pytest.mark.parametrize("thinking", [None, False])
def test_turns_come_back_as_they_were_written(sources: dict[str, str], thinking: bool | None) -> None:
    n_replayed = 0
    for name, source in sources.items():
        if name in UNKNOWN | UNCLOSED:
            continue
        host = host_of(source)
        for kind in KINDS:
            if kind == "calls" and not host.has_parallel_calls:
                continue
            if kind == "thought" and (thinking is False or not host.format.reasons):
                continue
            outcome = replays(Chat(host, TOOLS, thinking), kind, CALLS, seed=len(name))
            n_replayed += outcome == "replayed"
            listed = next((line for line in LEFT_OUT.splitlines() if line.startswith(f"{name}:")), "")
            assert outcome == "replayed" or (outcome == "left out" and kind in listed.split()), (name, kind)
    assert n_replayed > 170


def test_no_other_key_gets_a_turn(sources: dict[str, str]) -> None:
    chat = Chat(host_of(sources["Qwen-Qwen3-0.6B"]), TOOLS)
    wanted = said("thought", CALLS)
    written = chat.written([USER], wanted, results(wanted))
    message, turn = chat.generate([USER], written)
    messages = [USER, mangled(message, 1), *results(message)]
    assert turn in chat.replayed(messages)
    assert len(chat.replayed(messages, "another key")) == 1


LETTERS = "ab \n\t{}[]\"'\\<>,:é😀0"


@pytest.mark.parametrize("seed", range(2))
def test_chats_of_many_turns(sources: dict[str, str], seed: int) -> None:
    """In every format of calls: the prompt of each turn begins with the one before it and what the model wrote."""
    dice = random.Random(seed)
    for name in one_of_each_format(sources):
        chat, messages, before = Chat(host_of(sources[name]), TOOLS), [USER], ""
        for i in range(4):
            assert joined(chat.replayed(messages)).startswith(before), (name, i)
            code = "".join(dice.choices(LETTERS, k=dice.randrange(12)))
            wanted = said("call", [("run", {"code": code})])
            prompt = joined(chat.replayed(messages))
            written = chat.written(chat.memory.recall(KEY, messages).messages, wanted, results(wanted))
            if not written:  # its parser does not read these arguments back as they were
                break
            message, _ = chat.generate(messages, written)
            before = prompt + written
            messages = [*messages, mangled(message, dice.randrange(99)), *results(message)]


def test_an_edited_turn_stays_as_the_client_sent_it(sources: dict[str, str]) -> None:
    chat = Chat(host_of(sources["Qwen-Qwen3-0.6B"]), TOOLS)
    message, turn = chat.generate([USER], "<think>\nHm.\n</think>\n\nSure,  I will.")
    for edited in (
        {**message, "content": "Sure, I won't."},
        {**message, "content": "Sure, I will."},
        {**message, "reasoning_content": "Well."},
        {**message, "tool_calls": said("call", CALLS)["tool_calls"]},
    ):
        pieces = chat.replayed([USER, edited, USER])
        assert not any(isinstance(one, Turn) for one in pieces), edited
    assert turn not in chat.replayed([{"role": "user", "content": "Another"}, message, USER])


def test_reasoning_is_put_back_only_where_the_template_keeps_it(sources: dict[str, str]) -> None:
    chat = Chat(host_of(sources["Qwen-Qwen3-0.6B"]), TOOLS)
    wanted = said("thought", CALLS)
    message, turn = chat.generate([USER], chat.written([USER], wanted, results(wanted)))
    sent = {name: value for name, value in message.items() if name != "reasoning_content"}
    in_loop = chat.replayed([USER, sent, *results(message)])
    assert turn in in_loop
    after = chat.replayed([USER, sent, *results(message), {"role": "assistant", "content": "Done."}, USER])
    assert "Let me see." not in joined(after)
    # The system prompt changed: the reasoning is still known by the id of the call.
    other = [{"role": "system", "content": "New."}, USER]
    assert "Let me see." in joined(chat.replayed([*other, sent, *results(message)]))
