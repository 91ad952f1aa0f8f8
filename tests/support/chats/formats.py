"""What models of llama.cpp's templates may say in each format of calls, and the templates that have one."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from llamad.chat.host import ChatHost
from support.chat_outputs import tool

USER = {"role": "user", "content": "Needle?"}
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
CALLS = [("get_weather", {"city": "Paris", "days": 3}), ("run", {"code": 'if a < b:\n    print("é")'})]
# The format of its calls is not known, or the template fails with these chats.
UNKNOWN = {"MiniMax-M3", "muse-glimmer", "fireworks-ai-llama-3-firefunction-v2"}
# The template closes an answer with no special token.
UNCLOSED = {"llama-cpp-rwkv-world"}
# The template puts its instructions behind the last message, so that no prompt is the beginning of the next one.
MOVED = {"CohereForAI-c4ai-command-r-plus-tool_use"}


# What the template leaves out of its prompt, closes with no special token, or writes otherwise than the model does.
LEFT_OUT = """
Apertus-8B-Instruct: thought
Apriel-1.6-15b-Thinker-fixed: thought
CohereForAI-c4ai-command-r-plus-tool_use: answer call calls
CohereForAI-c4ai-command-r7b-12-2024-tool_use: answer
HuggingFaceTB-SmolLM3-3B: thought
LFM2.5-Instruct: thought
NVIDIA-Nemotron-Nano-v2: thought
Qwen-QwQ-32B: thought
deepseek-ai-DeepSeek-R1-Distill-Llama-8B: thought
deepseek-ai-DeepSeek-R1-Distill-Qwen-32B: thought
deepseek-ai-DeepSeek-V3.1: thought
deepseek-ai-DeepSeek-V3.2: answer call calls
ibm-granite-granite-3.3-2B-Instruct: thought
llama-cpp-deepseek-r1: thought
unsloth-Apriel-1.5: answer call calls thought
upstage-Solar-Open-100B: thought
"""


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


def one_of_each_format(sources: dict[str, str]) -> list[str]:
    """Return the names of templates, one for each format; one that shows everything, if there is one."""
    names: dict[tuple[str, str], str] = {}
    for name in sorted(sources, key=lambda name: f"{name}:" in LEFT_OUT):
        if name not in UNKNOWN | UNCLOSED | MOVED:
            format = host_of(sources[name]).format
            names.setdefault((format.name, format.variant), name)
    return list(names.values())
