"""Outputs of each format as models write them, whole and cut at every byte, with the calls they mean."""

from __future__ import annotations

import pytest
from support.chat_outputs import Call, Parsed, parse, parse_all_cuts
from support.recorded_outputs import CASES, FUNCTIONARY, HARMONY, HERMES, LLAMA, NOW, PARIS

HEADED = ("gpt-oss", "functionary", "solar")  # whose headers are never shown


@pytest.mark.parametrize("case", CASES)
def test_recorded(case: str) -> None:
    format, text, meant = CASES[case]
    assert parse_all_cuts(format, text) == meant


@pytest.mark.parametrize(
    "case", [case for case, (_, _, meant) in CASES.items() if meant.calls and "bare" not in case]
)
def test_without_known_tools_the_names_are_the_same(case: str) -> None:
    format, text, meant = CASES[case]
    parsed = parse(format, text, tools=None)
    assert [call.name for call in parsed.calls] == [call.name for call in meant.calls]


@pytest.mark.parametrize(
    "case", [case for case, (format, _, _) in CASES.items() if format.name not in HEADED]
)
def test_with_tools_off_calls_are_text(case: str) -> None:
    format, text, _ = CASES[case]
    parsed = parse(format, text, tools_on=False, reasoning="none")
    for tag in format.ignored:
        text = text.replace(tag, "")
    assert parsed == Parsed(text)


def test_gpt_oss_with_tools_off() -> None:
    text = f"<|channel|>commentary to=functions.get_weather json<|message|>{PARIS}<|call|>"
    assert parse_all_cuts(HARMONY, text, tools_on=False) == Parsed(text.removesuffix("<|call|>"))


def test_functionary_with_tools_off() -> None:
    text = f"all\nSure.>>>get_weather\n{PARIS}"
    assert parse_all_cuts(FUNCTIONARY, text, tools_on=False) == Parsed(text.removeprefix("all\n"))


def test_solar_with_tools_off() -> None:
    text = "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hello.<|end|>"
    parsed = parse_all_cuts(CASES["solar"][0], text, tools_on=False, reasoning="none")
    assert parsed == Parsed("<|think|>Hm.<|end|>Hello.")


def test_one_call_only() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert parse_all_cuts(HERMES, call + call, parallel=False) == Parsed(call, "", [NOW])


def test_code_after_llamas_python_tag() -> None:
    tools = [{"type": "function", "function": {"name": "python", "parameters": {"type": "object"}}}]
    parsed = parse_all_cuts(LLAMA, '<|python_tag|>print("a")\nb', tools=tools)
    assert parsed == Parsed("", "", [Call("python", '{"code": "print(\\"a\\")\\nb"}')])
