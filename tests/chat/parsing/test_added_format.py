"""The walk "Add a tool-call format" in CONTRIBUTING.md: its example, as a file in the folder, works at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.chat_outputs import Call, Parsed, parse_all_cuts, tool
from support.grammars.reference import Grammar

from llamad.chat.conversion.process import ToolCall
from llamad.chat.host import ChatHost
from llamad.chat.parsing import Format, detect, formats, tool_grammar
from llamad.chat.parsing.syntax import call_format

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{# <acme:call> #}"
TOOLS = [tool("get_weather", city="string"), tool("now")]
PARIS = '{"city": "Paris"}'
WEATHER = f'<acme:call>{{"name": "get_weather", "arguments": {PARIS}}}</acme:call>'
NOW = '<acme:call>{"name": "now", "arguments": {}}</acme:call>'


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Format]:
    """The example's format, found in a second folder of formats."""
    walk = GUIDE.read_text(encoding="utf-8").partition("\n## Add a tool-call format\n")[2]
    example = re.search(r"```python\n(.*?)```", walk, re.DOTALL)
    assert example is not None
    (tmp_path / "acme.py").write_text(example[1], encoding="utf-8")
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    monkeypatch.setattr(formats, "FORMATS", formats.find_formats())
    yield detect(TEMPLATE)
    del sys.modules[f"{formats.__name__}.acme"], call_format.CLASSES["acme", ""]


def grammar(format: Format, choice: str) -> Grammar:
    return Grammar(tool_grammar(format, TOOLS, choice=choice, parallel=True))


def test_it_is_recognized(acme: Format) -> None:
    assert acme == Format("acme")
    assert detect("<think>" + TEMPLATE) == Format("acme", think=("<think>", "</think>"))
    assert {"<acme:call>", "</acme:call>"} <= set(acme.special)
    assert detect("<tool_call>") == Format("hermes")  # others as before
    assert detect("") == Format()


def test_it_crosses_the_process_boundary(acme: Format) -> None:
    sent = msgspec.json.encode(ToolCall(acme, TOOLS, "required", True, False))
    assert type(msgspec.json.decode(sent, type=ToolCall).format.calls).__name__ == "Acme"


def test_it_is_written_into_the_prompt(acme: Format) -> None:
    host = ChatHost(TEMPLATE, bos="", eos="", adds_bos=False, kwargs={}, prefill=False)
    assert host.format == acme
    call = {"type": "function", "function": {"name": "get_weather", "arguments": PARIS}}
    said: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": "Sun"},
    ]
    assert WEATHER in host.prompt(said, tools=TOOLS, kwargs={})


def test_it_is_parsed_however_it_is_cut(acme: Format) -> None:
    parsed = parse_all_cuts(acme, f"Sure.\n{WEATHER}\n{NOW}", tools=TOOLS)
    assert parsed == Parsed("Sure.", "", [Call("get_weather", PARIS), Call("now", "{}")])
    broken = '<acme:call>{"name": "other"}</acme:call>'
    assert parse_all_cuts(acme, broken, tools=TOOLS) == Parsed(broken)


def test_a_grammar_forces_it(acme: Format) -> None:
    forced = grammar(acme, "required")
    assert forced.accepts(WEATHER)
    assert forced.accepts(f"{WEATHER}\n{NOW}")
    assert not forced.accepts("Sure.")
    assert not forced.accepts(WEATHER.replace("city", "town"))


def test_a_marker_triggers_the_grammar(acme: Format) -> None:
    free = grammar(acme, "auto")
    assert free.accepts("Sure. <acme: that is no call>")
    assert free.accepts(f"Sure.\n{WEATHER}")
    assert not free.accepts("Sure. <acme:call>that is no call")
    assert not free.accepts(WEATHER.replace("get_weather", "other"))
