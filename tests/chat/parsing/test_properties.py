"""Random texts made of what formats are made of: no parser raises, cutting changes nothing, time stays linear."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chat_outputs import parse
from support.recorded_outputs import CASES

from llamad.chat.parsing import Format, make_parser

FORMATS = list(dict.fromkeys(format for format, _, _ in CASES.values()))


def of(name: str) -> Format:
    return next(format for format in FORMATS if format.name == name)


HERMES, LLAMA, HARMONY = of("hermes"), of("llama3"), of("gpt-oss")
SHOWN = [one for one in FORMATS if not one.ignored and one.name not in ("gpt-oss", "functionary")]
PARTS = (
    *'{}[]",:;=()<>\n\\u5 ',
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "<tool_", "call>"),
    *("<function=", "now>", "</function>", "<parameter=", "code>\n", "\n</parameter>", "get_weather"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|python_tag|>", ".call(", "[TOOL_CALLS]"),
    *("[ARGS]", "[CALL_ID]", "abc123XYZ", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function"),
    *("<｜tool▁sep｜>", "```json\n", "\n```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<|channel|>"),
    *("analysis", "final", "commentary", " to=functions.now", "<|message|>", "<|end|>", "<|start|>assistant"),
    *("<|call|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|tool_call|>", "é", "😀"),
    *(
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "functions.now:0",
        "<|tool_call_argument_begin|>",
    ),
    *("<minimax:tool_call>", '<invoke name="', 'now">', '<parameter name="', "</parameter>", "</invoke>"),
    *(
        "<｜DSML｜function_calls>",
        '<｜DSML｜invoke name="',
        ' string="true">',
        "</｜DSML｜parameter>",
        "<![CDATA[",
    ),
    *("<|open|>tools<|sep|>", '<|open|>call tool="', "<|sep|>", "<|close|>", "<|tool_call>call:", '<|"|>'),
    *("<tool_call|>", "<|channel>thought", "<channel|>", "<|tool_call_start|>[", "run(code='", "True", "]"),
    *("<|tools_prefix|>[", "<|tool_call:begin|>", "<|tool_call:args|>", ">>>", "all\n", "now\n", "Action:"),
    *("<|tool_call_end|>", '"name"', ': "now"', '"arguments": {}', '{"name": "run", "arguments": {"code": "'),
    *(
        '"id": "1"',
        '{"tool_call": ',
        '{"tool_calls": [',
        '{"response": "',
        "\\ud83d\\ude00",
        "null",
        "-1.5e3",
    ),
)
OPTIONS = st.fixed_dictionaries(
    {
        "reasoning": st.sampled_from(["none", "auto", "deepseek-legacy"]),
        "tools_on": st.sampled_from([True, True, True, False]),
        "parallel": st.booleans(),
        "starts_in_reasoning": st.sampled_from([False, False, True]),
    }
)


@settings(max_examples=350, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.lists(st.sampled_from(PARTS), max_size=24).map("".join),
    OPTIONS,
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_cutting_changes_nothing(
    format: Format, text: str, options: dict[str, Any], random: Any, known: bool
) -> None:
    if not known:
        options = {**options, "tools": None}
    whole = parse(format, [text], **options)
    assert parse(format, text, **options) == whole
    for _ in range(3):
        cuts = sorted(random.randrange(len(text) + 1) for _ in range(random.randrange(6)))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert parse(format, pieces, **options) == whole


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SHOWN), st.lists(st.sampled_from(PARTS), max_size=16).map("".join))
def test_without_calls_and_thoughts_the_text_is_whole(format: Format, text: str) -> None:
    parsed = parse(format, text, tools_on=False, reasoning="none")
    assert (parsed.content, parsed.reasoning, parsed.calls) == (text, "", [])


WHOLE = list(CASES.values())
FIRST, LAST = "Abacus", "Zyzzyva"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(WHOLE), st.data())
def test_recorded_outputs_that_went_wrong(case: Any, data: st.DataObject) -> None:
    """Parts are cut out, repeated or replaced: nothing raises, cutting changes nothing, and the words at both ends
    are told. Only where a call was found may the last be part of a member that no call has."""
    format, text, _ = case
    for _ in range(data.draw(st.integers(0, 3))):
        a = data.draw(st.integers(0, len(text)))
        b = data.draw(st.integers(a, min(len(text), a + 12)))
        new = data.draw(st.one_of(st.just(""), st.just(text[a:b] * 2), st.sampled_from(PARTS)))
        text = text[:a] + new + text[b:]
    text = f"{FIRST} {text} {LAST}"
    parsed = parse(format, [text])
    assert parse(format, text) == parsed
    assert FIRST in parsed.content
    is_half_header = format.name == "gpt-oss" and not parsed.content.endswith(LAST)
    assert parsed.calls or LAST in parsed.content + parsed.reasoning or is_half_header


N = 12_000
LONG = {
    "text": (HERMES, "abc <b> def\n" * (N // 12)),
    "blanks": (HERMES, "<tool_call>" + " " * N),
    "markers": (HERMES, "<tool_call>" * (N // 11)),
    "half markers": (HERMES, "<tool_cal" * (N // 9)),
    "names": (HERMES, "<function=a" * (N // 11)),
    "a thought": (HERMES, "<think>" + "a <\n" * (N // 4)),
    "strings": (HERMES, '<tool_call>{"name": "run", "arguments": {"code": "' + "a\\n" * (N // 3)),
    "depth": (HERMES, '<tool_call>{"name": "run", "arguments": {"code": ' + "[" * N),
    "arguments first": (HERMES, '<tool_call>{"arguments": {"code": [' + "1, " * (N // 3)),
    "a number": (HERMES, '<tool_call>{"name": "run", "arguments": {"code": ' + "1" * N),
    "a parameter": (HERMES, "<function=run><parameter=other>" + "[1, " * (N // 4)),
    "bare": (LLAMA, '{"name": "' + "a" * N),
    "channels": (HARMONY, "<|channel|>" * (N // 11)),
    "literals": (of("python"), "<|tool_call_start|>[run(code=[" + "1, " * (N // 3)),
    "quotes": (of("python"), "<|tool_call_start|>[run(code='" + "a\\n" * (N // 3)),
    "depth of literals": (of("gemma"), "<|tool_call>call:run{code:" + "[" * N),
    "a text of gemma's": (of("gemma"), '<|tool_call>call:run{code:<|"|>' + "<|a" * (N // 3)),
    "invocations": (of("invoke"), '<invoke name="' * (N // 14)),
    "recipients": (of("functionary"), ">>>a\n" * (N // 5)),
    "messages": (HARMONY, "<|message|>a<|end|>" * (N // 19)),
}


@pytest.mark.parametrize("case", LONG)
def test_the_work_grows_with_the_text_only(case: str) -> None:
    """Counts the calls of Python functions: eight times the text, about eight times the calls and no more."""
    format, text = LONG[case]

    def n_calls(text: str) -> int:
        parser = make_parser(
            format, reasoning="auto", tools_on=True, parallel=True, starts_in_reasoning=False
        )
        count = 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(profile)
        try:
            for i in range(0, len(text), 3):
                parser.feed(text[i : i + 3])
            parser.finish()
        finally:
            sys.setprofile(None)
        return count

    assert n_calls(text) < 10 * n_calls(text[: len(text) // 8]) + 1000
