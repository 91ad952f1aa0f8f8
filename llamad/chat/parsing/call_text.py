"""Writes tool calls in a format's own syntax, for templates that cannot render them.

Any thread, no state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from llamad.chat.parsing.formats import Format
from llamad.chat.parsing.harmony import CHANNEL, MESSAGE
from llamad.chat.parsing.literal_calls import PYTHON_CALLS
from llamad.chat.parsing.token_calls import DEEPSEEK_CALL, DEEPSEEK_CALLS, KIMI_CALL, KIMI_CALLS

Called = tuple[str, Any]  # the name, the arguments


def is_written(format: Format) -> bool:
    """Whether `written` supports the format; else calls are written in the generic one."""
    if format.name == "list":
        return format.variant != "fenced"
    return format.name in ("deepseek", "kimi-k2", "granite", "python", "hermes", "gpt-oss")


def written(format: Format, calls: Sequence[Called]) -> str:
    match format.name:
        case "deepseek":
            return (
                DEEPSEEK_CALLS[0]
                + "\n".join(_deepseek(format, *call) for call in calls)
                + "<｜tool▁calls▁end｜>"
            )
        case "kimi-k2":
            each = (
                f"{KIMI_CALL}functions.{name}:{i}<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"
                for i, (name, arguments) in enumerate(calls)
            )
            return KIMI_CALLS + "".join(each) + "<|tool_calls_section_end|>"
        case "granite":
            return "<|tool_call|>" + _listed(calls)
        case "hermes":
            return "\n".join(f"<tool_call>\n{_object(*call)}\n</tool_call>" for call in calls)
        case "gpt-oss":
            return "".join(f"{CHANNEL}commentary to=functions.{name}{MESSAGE}{_json(a)}" for name, a in calls)
        case "python":
            return f"{PYTHON_CALLS[0]}[{', '.join(_python(*call) for call in calls)}]{PYTHON_CALLS[1]}"
        case "list" if not format.variant:
            return format.open + _listed(calls) + format.close
        case "list" if format.variant == "object":
            return format.open + "\n".join(_object(*call) for call in calls)
    return '{"tool_calls": ' + _listed(calls) + "}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(name: str, arguments: Any) -> str:
    return _json({"name": name, "arguments": arguments})


def _listed(calls: Sequence[Called]) -> str:
    return "[" + ", ".join(_object(*call) for call in calls) + "]"


def _deepseek(format: Format, name: str, arguments: Any) -> str:
    if format.variant:
        return f"{DEEPSEEK_CALL}function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```<｜tool▁call▁end｜>"
    return f"{DEEPSEEK_CALL}{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"


def _python(name: str, arguments: Any) -> str:
    """Arguments that are not a JSON object stay as they were sent."""
    if not isinstance(arguments, dict):
        return f"{name}({arguments})"
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
