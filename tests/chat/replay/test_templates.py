"""Over every template of llama.cpp's sources: a turn that a client sends back in its own words is the turn that the
model wrote, unless the template leaves out a part of it."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

import pytest
from support.chat_outputs import tool
from support.chats.replayed import KEY, Chat, joined, mangled

from llamad.chat.host import ChatHost
from llamad.chat.replay.memory import Turn
from llamad.chat.template import TemplateError

TOOLS = [
    tool(
        "get_weather",
        city={"type": "string", "description": "Where"},
        days={"type": "integer", "description": "N"},
    ),
    tool("run", code={"type": "string", "description": "What"}),
]
for _tool in TOOLS:
    _tool["function"]["description"] = "Does it"
USER = {"role": "user", "content": "Needle?"}
KINDS = ("answer", "call", "calls", "thought")
# The format of its calls is not known, or the template fails with these chats.
UNKNOWN = {"MiniMax-M3", "muse-glimmer", "fireworks-ai-llama-3-firefunction-v2"}
# The template closes an answer with no special token.
UNCLOSED = {"llama-cpp-rwkv-world"}


@cache
def host_of(source: str) -> ChatHost:
    return ChatHost(source, bos="<s>", eos="</s>", adds_bos=True, kwargs={}, prefill=True)


def said(kind: str, calls: list[tuple[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "Sure." if kind == "answer" else ""}
    if kind == "thought":
        message["reasoning_content"] = "Let me see."
    if kind != "answer":
        message["tool_calls"] = [
            {
                "id": f"abc12345{i}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for i, (name, arguments) in enumerate(calls[: 2 if kind == "calls" else 1])
        ]
    return message


def results(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls", ())
    return [{"role": "tool", "tool_call_id": one["id"], "content": "fine"} for one in calls] or [USER]


CALLS = [("get_weather", {"city": "Paris", "days": 3}), ("run", {"code": 'if a < b:\n    print("é")'})]


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


# What the template leaves out of its prompt, closes with no special token, or writes otherwise than the model does.
LEFT_OUT = """
Apertus-8B-Instruct: call calls thought
Apriel-1.6-15b-Thinker-fixed: thought
CohereForAI-c4ai-command-r-plus-tool_use: answer call calls
CohereForAI-c4ai-command-r7b-12-2024-tool_use: answer
HuggingFaceTB-SmolLM3-3B: thought
Kimi-K2-Thinking: thought
LFM2.5-Instruct: thought
NVIDIA-Nemotron-Nano-v2: thought
Qwen-QwQ-32B: thought
deepseek-ai-DeepSeek-R1-Distill-Llama-8B: call thought
deepseek-ai-DeepSeek-R1-Distill-Qwen-32B: thought
deepseek-ai-DeepSeek-V3.1: thought
deepseek-ai-DeepSeek-V3.2: answer call calls
ibm-granite-granite-3.3-2B-Instruct: thought
llama-cpp-deepseek-r1: thought
mistralai-Ministral-3-14B-Reasoning-2512: thought
unsloth-Apriel-1.5: answer call calls thought
upstage-Solar-Open-100B: thought
"""


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


def one_of_each_format(sources: dict[str, str]) -> list[str]:
    names: dict[tuple[str, str], str] = {}
    for name, source in sources.items():
        if name not in UNKNOWN | UNCLOSED and f"{name}:" not in LEFT_OUT:
            format = host_of(source).format
            names.setdefault((format.name, format.variant), name)
    return list(names.values())


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
