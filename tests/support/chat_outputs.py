"""Parses model output whole and in pieces, and says what came of it in a form that is easy to compare."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from llamad.chat.parsing import Delta, Format, make_parser


@dataclass
class Call:
    name: str
    arguments: str = ""
    id: str = ""


@dataclass
class Parsed:
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schemas = {
        key: value if isinstance(value, dict) else {"type": value} for key, value in properties.items()
    }
    parameters = {"type": "object", "properties": schemas, "required": list(schemas)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("get_weather", city="string", days="integer"),
    tool("run", code="string"),
    tool("now"),
    tool("mixed", s="string", n="number", b="boolean", o="object", u={}, m={"type": ["string", "null"]}),
]


def joined(deltas: Iterable[Delta]) -> Parsed:
    parsed = Parsed()
    for delta in deltas:
        match delta.kind:
            case "content":
                parsed.content += delta.text
            case "reasoning":
                parsed.reasoning += delta.text
            case "tool_begin":
                assert delta.index == len(parsed.calls)
                assert delta.text == ""
                parsed.calls.append(Call(delta.name, id=delta.id))
            case _:
                assert delta.index == len(parsed.calls) - 1
                parsed.calls[-1].arguments += delta.text
        assert delta.text or delta.kind == "tool_begin", "an empty delta"
    return parsed


def parse(format: Format, pieces: Iterable[str], **options: Any) -> Parsed:
    given = {
        "reasoning": "auto",
        "tools_on": True,
        "parallel": True,
        "starts_in_reasoning": False,
        "tools": TOOLS,
        **options,
    }
    parser = make_parser(format, **given)
    deltas: list[Delta] = []
    for piece in pieces:
        deltas += parser.feed(piece)
    return joined(deltas + parser.finish())


def at_bytes(text: str, *cuts: int) -> Iterator[str]:
    """The pieces a server would feed: bytes cut there, characters held until whole."""
    data = text.encode()
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        yield decoder.decode(data[start:end])


def parse_all_cuts(format: Format, text: str, **options: Any) -> Parsed:
    """Whole, cut at every byte, in single characters, and at every pair of bytes where the text is short."""
    whole = parse(format, [text], **options)
    n = len(text.encode())
    for i in range(n + 1):
        assert parse(format, at_bytes(text, i), **options) == whole, f"cut at byte {i} of {text!r}"
    assert parse(format, text, **options) == whole, f"in single characters: {text!r}"
    if n <= 60:
        for i in range(n + 1):
            for j in range(i, n + 1):
                parsed = parse(format, at_bytes(text, i, j), **options)
                assert parsed == whole, f"cut at bytes {i} and {j} of {text!r}"
    return whole
