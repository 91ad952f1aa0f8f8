"""Thoughts: where they go under each of the four settings, opened by the model or by the prompt."""

from __future__ import annotations

import pytest
from support.chat_outputs import Call, Parsed, parse_all_cuts

from llamad.chat.parsing import Format

TAGS = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<seed:think>", "</seed:think>"),
]
THINKS = Format("hermes", think=TAGS[0])
HARMONY = Format("gpt-oss")


@pytest.mark.parametrize("tags", TAGS)
def test_each_setting(tags: tuple[str, str]) -> None:
    format = Format("hermes", think=tags)
    opens, closes = tags
    text = f"{opens}\nHm < 3\n\n {closes}\n\nHello.\n"
    for reasoning in ("auto", "deepseek"):
        assert parse_all_cuts(format, text, reasoning=reasoning) == Parsed("Hello.\n", "Hm < 3")
    assert parse_all_cuts(format, text, reasoning="none") == Parsed(text)
    assert parse_all_cuts(format, text, reasoning="deepseek-legacy") == Parsed(text, "Hm < 3")


def test_opened_by_the_prompt() -> None:
    text = "Hm.\n</think>\n\nHello."
    options = {"starts_in_reasoning": True}
    assert parse_all_cuts(THINKS, text, **options) == Parsed("Hello.", "Hm.")
    assert parse_all_cuts(THINKS, text, **options, reasoning="none") == Parsed(text)
    legacy = parse_all_cuts(THINKS, text, **options, reasoning="deepseek-legacy")
    assert legacy == Parsed("<think>" + text, "Hm.")


def test_never_closed() -> None:
    assert parse_all_cuts(THINKS, "<think>\nHm. </thin") == Parsed("", "Hm. </thin")
    assert parse_all_cuts(THINKS, "Hm.\n", starts_in_reasoning=True) == Parsed("", "Hm.")


def test_empty() -> None:
    assert parse_all_cuts(THINKS, "<think>\n\n</think>\n\nHello.") == Parsed("Hello.")
    assert parse_all_cuts(THINKS, "</think>Hello.", starts_in_reasoning=True) == Parsed("Hello.")
    assert parse_all_cuts(THINKS, "") == Parsed()


def test_a_tag_in_the_middle_is_text() -> None:
    assert parse_all_cuts(THINKS, "Write <think>x</think>.") == Parsed("Write <think>x</think>.")


def test_blanks_that_belong_to_the_answer_stay() -> None:
    assert parse_all_cuts(THINKS, "\n  a \n\n") == Parsed("\n  a \n\n")
    assert parse_all_cuts(THINKS, "\n  a \n\n", tools_on=False) == Parsed("\n  a \n\n")
    assert parse_all_cuts(THINKS, " \n") == Parsed(" \n")


@pytest.mark.parametrize("reasoning", ["none", "deepseek"])
def test_calls_in_a_thought_are_none(reasoning: str) -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    parsed = parse_all_cuts(THINKS, f"<think>{call}</think>{call}", reasoning=reasoning)
    assert parsed.calls == [Call("now", "{}")]


def test_thoughts_between_calls() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n'
    parsed = parse_all_cuts(THINKS, f"<think>a</think>{call}<think>b</think>{call}")
    assert parsed == Parsed("", "ab", [Call("now", "{}")] * 2)


def test_channels() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello."
    thought = "<|channel|>analysis<|message|>Hm.<|end|>"
    assert parse_all_cuts(HARMONY, text) == Parsed("Hello.", "Hm.")
    assert parse_all_cuts(HARMONY, text, reasoning="none") == Parsed(thought + "Hello.")
    assert parse_all_cuts(HARMONY, text, reasoning="deepseek-legacy") == Parsed(thought + "Hello.", "Hm.")
    opened = text.removeprefix("<|channel|>analysis<|message|>")
    assert parse_all_cuts(HARMONY, opened, starts_in_reasoning=True) == Parsed("Hello.", "Hm.")
