"""Real templates render what transformers' apply_chat_template renders, and refuse what it refuses."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from jinja2.exceptions import SecurityError, UndefinedError

from llamad.chat.template import CHATML, ChatTemplate, TemplateError

SYSTEM = {"role": "system", "content": "You are terse.\n"}
USER = {"role": "user", "content": ' What\'s the <weather> in "Zürich" & 東京? 🦙\n{{ not_jinja }}'}
ANSWER = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nSunny & 20°."}
REASONED = {"role": "assistant", "content": "Sunny.", "reasoning_content": "Look at\nthe sky."}
AGAIN = {"role": "user", "content": "And tomorrow?"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]}
IMAGE = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}


def function(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"The {name}'s <own> text.", "parameters": parameters},
    }


TOOLS = [
    function(
        "weather",
        city={"type": "string", "description": "Where"},
        unit={"type": "string", "enum": ["C", "F"], "default": "C"},
        days={"type": "array", "items": {"type": "integer"}},
    ),
    function("clock"),
    function("deep", place={"type": "object", "properties": {"x": {"type": ["number", "null"]}}}),
]


def call(arguments: object, id: str = "abcdefgh1", name: str = "weather") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def round_trip(arguments: object, content: str | None) -> list[dict[str, Any]]:
    asked = {"role": "assistant", "content": content, "tool_calls": [call(arguments)]}
    result = {"role": "tool", "name": "weather", "tool_call_id": "abcdefgh1", "content": '{"t": 20}'}
    return [SYSTEM, USER, asked, result]


ARGUMENTS = {"city": "Zürich <&>", "days": [1, 2], "deep": {"a": None, "b": True, "c": 1.5}}
PARALLEL = [
    USER,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [call(ARGUMENTS), call({}, "abcdefgh2", "clock")],
    },
    {"role": "tool", "name": "weather", "tool_call_id": "abcdefgh1", "content": "20"},
    {"role": "tool", "name": "clock", "tool_call_id": "abcdefgh2", "content": "noon"},
    {"role": "assistant", "content": "20 at noon."},
    AGAIN,
]

CASES: dict[str, dict[str, Any]] = {
    "plain": {"messages": [USER]},
    "no prompt": {"messages": [USER], "add_generation_prompt": False},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, ANSWER, AGAIN]},
    "ends with the assistant": {"messages": [USER, ANSWER], "add_generation_prompt": False},
    "reasoning": {"messages": [USER, REASONED, AGAIN]},
    "two users": {"messages": [USER, AGAIN]},
    "late system": {"messages": [USER, ANSWER, SYSTEM, AGAIN]},
    "other role": {"messages": [{"role": "critic", "content": "Bah."}, USER]},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, USER]},
    "no messages": {"messages": []},
    "parts": {"messages": [SYSTEM, PARTS]},
    "image": {"messages": [IMAGE]},
    "no tools": {"messages": [USER], "tools": []},
    "tools": {"messages": [USER], "tools": TOOLS},
    "tools and system": {"messages": [SYSTEM, USER], "tools": TOOLS},
    "call as object": {"messages": round_trip(ARGUMENTS, ""), "tools": TOOLS},
    "call as text": {"messages": round_trip(json.dumps(ARGUMENTS), ""), "tools": TOOLS},
    "call without content": {"messages": round_trip(ARGUMENTS, None), "tools": TOOLS},
    "call without tools": {"messages": [*round_trip(ARGUMENTS, "I look."), ANSWER, AGAIN]},
    "parallel": {"messages": PARALLEL, "tools": TOOLS},
    "thinking": {"messages": [SYSTEM, USER], "kwargs": {"enable_thinking": True, "thinking": True}},
    "no thinking": {"messages": [SYSTEM, USER], "kwargs": {"enable_thinking": False, "thinking": False}},
    "effort": {"messages": [USER], "kwargs": {"reasoning_effort": "high", "thinking_effort": "high"}},
    "other variables": {
        "messages": [SYSTEM, USER],
        "kwargs": {
            "date_string": "1 Jan 2025",
            "datetime": "noon",
            "functions": "[]",
            "documents": [{"title": "A", "text": "B"}],
            "custom_tools": [],
        },
    },
}


class Lenient(Exception):
    """transformers refuses what llama.cpp allows: undefined values, None beside a text, lists that change."""


def expected(source: str, case: dict[str, Any]) -> str | None:
    """What transformers renders; nothing where it raises. It is imported here because that takes seconds."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        rendered: Any = render_jinja_template(
            [case["messages"]],
            tools=case.get("tools"),
            chat_template=source,
            add_generation_prompt=case.get("add_generation_prompt", True),
            bos_token="<s>",
            eos_token="</s>",
            **case.get("kwargs", {}),
        )
    except (UndefinedError, SecurityError, TypeError):
        raise Lenient from None
    except Exception:
        return None
    text: str = rendered[0][0]
    return text


def got(template: ChatTemplate, case: dict[str, Any]) -> str | None:
    try:
        return template.render(**case)
    except TemplateError:
        return None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_as_transformers(sources: dict[str, str], case: dict[str, Any]) -> None:
    assert len(sources) >= 70
    rendered = 0
    for name, source in {"chatml": CHATML, **sources}.items():
        try:
            want = expected(source, case)
        except Lenient:
            continue
        assert got(ChatTemplate(source, bos="<s>", eos="</s>"), case) == want, name
        rendered += want is not None
    assert rendered or not case["messages"]
