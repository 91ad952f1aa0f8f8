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
    assert written.endswith(chat.host.format.calls.unclosed_ends) or (
        chat.closings.end(rest, 0, 0, len(rest)) == 0
    )
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


def test_calls_that_the_template_does_not_close(sources: dict[str, str]) -> None:
    """Apertus has the results of calls, and the next call, in the same message, which it opens only at the end of a
    prompt. Each prompt begins with the one before and what the model wrote."""
    chat, messages, before = Chat(host_of(sources["Apertus-8B-Instruct"]), TOOLS), [USER], ""
    for i in range(3):
        prompt = joined(chat.replayed(messages))
        assert prompt.startswith(before)
        wanted = said("call", [("get_weather", {"city": "Paris", "days": i})])
        written = chat.written(chat.memory.recall(KEY, messages).messages, wanted, results(wanted))
        assert written.endswith("<|tools_suffix|>")
        message, _ = chat.generate(messages, written)
        before = prompt + written
        messages = [*messages, mangled(message, i), *results(message)]
    assert joined(chat.replayed(messages)) == f"{before}[fine]<|assistant_start|>"


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


# Templates that keep the reasoning of a tool loop until the user's next message.
LOOPS = """
Qwen-Qwen3-0.6B Qwen3.5-4B openai-gpt-oss-120b GLM-4.6 GLM-4.7-Flash MiniMax-M2 Kimi-K2-Thinking
deepseek-ai-DeepSeek-V3.2 NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 openbmb-MiniCPM5-1B google-gemma-4-31B-it
"""


@pytest.mark.parametrize("name", LOOPS.split())
def test_reasoning_is_put_back_where_the_template_keeps_it(sources: dict[str, str], name: str) -> None:
    chat, messages, before = Chat(host_of(sources[name]), TOOLS), [USER], ""
    thoughts = [f"Let me see, {i}." for i in range(3)]
    for thought in thoughts:
        wanted = {**said("thought", CALLS), "reasoning_content": thought}
        written = chat.written(chat.memory.recall(KEY, messages).messages, wanted, results(wanted))
        assert thought in written
        prompt = joined(chat.replayed(messages))
        assert prompt.startswith(before)
        message, _ = chat.generate(messages, written)
        before = prompt + written
        del message["reasoning_content"]
        messages = [*messages, message, *results(message)]
    loop = joined(chat.replayed(messages))
    assert loop.startswith(before)
    assert all(thought in loop for thought in thoughts)
    # The user's next message is where these templates drop it, and there it stays dropped.
    done = [*messages, {"role": "assistant", "content": "Done."}, USER]
    assert not any(thought in joined(chat.replayed(done)) for thought in thoughts)
    # The system prompt changed: the reasoning is still known by the id of the first call.
    other = [{"role": "system", "content": "New."}, *messages[:3]]
    assert thoughts[0] in joined(chat.replayed(other))


def test_an_id_that_several_calls_have_names_none_of_them(sources: dict[str, str]) -> None:
    chat = Chat(host_of(sources["Qwen-Qwen3-0.6B"]), TOOLS)
    chat.ids = lambda: "functions.run:0"
    sent = {}
    for question in ("One?", "Two?"):
        user, wanted = {"role": "user", "content": question}, {**said("thought", CALLS)}
        wanted["reasoning_content"] = f"The thought of {question}"
        written = chat.written([user], wanted, results(wanted))
        message, turn = chat.generate([user], written)
        assert turn in chat.replayed([user, message, *results(message)])
        sent = {name: value for name, value in message.items() if name != "reasoning_content"}
    other = {"role": "user", "content": "Three?"}
    assert "The thought" not in joined(chat.replayed([other, sent, *results(sent)]))
