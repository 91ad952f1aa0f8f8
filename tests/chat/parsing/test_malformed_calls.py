"""Calls that go wrong: never an exception, and no text is lost or shown twice."""

from __future__ import annotations

import pytest
from support.chat_outputs import Call, Parsed, parse_all_cuts

from llamad.chat.parsing import Format, make_parser

HERMES = Format("hermes")
CODER = Format("qwen3-coder")
GLM = Format("glm")
DEEPSEEK = Format("deepseek")
MISTRAL = Format("mistral", "args")
KIMI = Format("kimi-k2")
HARMONY = Format("gpt-oss")
LLAMA = Format("llama3")

AS_TEXT = [
    (HERMES, "<tool_call>"),
    (HERMES, "<tool_call>\n\n"),
    (HERMES, "Use <tool_call> and </tool_call> as tags, <tool_call"),
    (HERMES, '<tool_call>{"name": "unknown", "arguments": {"a": 1}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "now", "arguments": 7}</tool_call>'),
    (HERMES, '<tool_call>{"name": 7, "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"arguments": {"city": "Paris"}}</tool_call>'),
    (HERMES, '<tool_call>{"arguments": {"city": "Pa'),
    (HERMES, '<tool_call>{"name": "get_wea'),
    (HERMES, "<tool_call>[]</tool_call>"),
    (HERMES, "<tool_call>get weather</tool_call>"),
    (HERMES, "<function=now"),
    (HERMES, "<function=now>stop</function>"),
    (CODER, "<tool_call>\n<function=unknown>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"),
    (CODER, "<tool_call>\n<parameter=a>"),
    (CODER, "<tool_call>\n<function=now>\n<param"),
    (GLM, "<tool_call>unknown\n<arg_key>a</arg_key>"),
    (GLM, "<tool_call>now\n<arg"),
    (LLAMA, '{"name": "unknown", "parameters": {}}'),
    (LLAMA, '{"name": "now", "who": 1}'),
    (LLAMA, '{"a": [1, 2, {"b": "c"}]} and so on'),
    (LLAMA, "<|python_tag|>print(1)"),
    (LLAMA, "<|python_tag|>unknown.call(a=1)"),
    (LLAMA, "{ 1: 2 }"),
    (DEEPSEEK, "<｜tool▁calls▁begin｜>Hello"),
    (DEEPSEEK, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>none"),
    (DEEPSEEK, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>unknown\n```json\n{}\n```"),
    (MISTRAL, "[TOOL_CALLS]"),
    (MISTRAL, "[TOOL_CALLS]now[ARGS]none"),
    (MISTRAL, '[TOOL_CALLS][{"name": "unknown"}]'),
    (MISTRAL, "[TOOL_CALLS]" + "n" * 300 + "[ARGS]{}"),
    (
        KIMI,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.unknown:0<|tool_call_argument_begin|>{}",
    ),
    (Format(), '{"answer": 42}'),
    (Format(), '{"tool_call": null}'),
    (Format(), "Hello {}"),
    (HARMONY, "Hello"),
    (HARMONY, "<|channel|>commentary to=functions.unknown<|message|>{}"),
    (HARMONY, "<|channel|>commentary to=functions.now<|message|>none"),
    (HARMONY, "<|channel|>" + "x" * 600 + "<|message|>Hi"),
    (HARMONY, "<|channel|>final<b><|message|>Hi"),
]


@pytest.mark.parametrize(("format", "text"), AS_TEXT)
def test_what_is_no_call_is_text(format: Format, text: str) -> None:
    assert parse_all_cuts(format, text) == Parsed(text)


def test_a_call_that_fails_later_stays_as_far_as_it_came() -> None:
    text = '<tool_call>{"name": "run", "arguments": {"code": "a", oops}}</tool_call> Sorry.'
    meant = Parsed("oops}}</tool_call> Sorry.", "", [Call("run", '{"code": "a", ')])
    assert parse_all_cuts(HERMES, text) == meant
    text = "<function=run>\n<parameter=code>\na\n</parameter>\nSo: done."
    assert parse_all_cuts(CODER, text) == Parsed("So: done.", "", [Call("run", '{"code": "a"')])
    text = '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "unknown", "arguments": {}}]'
    meant = Parsed(', {"name": "unknown", "arguments": {}}]', "", [Call("now", "{}")])
    assert parse_all_cuts(MISTRAL, text) == meant


@pytest.mark.parametrize(
    ("format", "text", "arguments"),
    [
        (HERMES, '<tool_call>{"name": "run", "arguments": {"code": "print(', '{"code": "print('),
        (HERMES, '<tool_call>{"name": "run", "arguments": {"code": "\\u00', '{"code": "\\u00'),
        (HERMES, '<tool_call>{"name": "run", "arguments": {"code": 12', '{"code": 12'),
        (HERMES, '<tool_call>{"name": "run", "arguments": {"code": tru', '{"code": tru'),
        (HERMES, '<tool_call>{"name": "run", "arguments": {}, "id": "1', "{}"),
        (HERMES, '<tool_call>{"name": "run", "arguments": {}}\n</tool_c', "{}"),
        (CODER, "<function=run><parameter=code>\na", '{"code": "a'),
        (CODER, "<function=run><parameter=other>\n12", '{"other": 12'),
        (CODER, "<function=run><parameter=code>\na\n</parameter>", '{"code": "a"'),
        (GLM, "<tool_call>run\n<arg_key>code</arg_key><arg_value>a", '{"code": "a'),
        (HARMONY, '<|channel|>commentary to=functions.run<|message|>{"code": "a', '{"code": "a'),
    ],
)
def test_a_call_that_is_cut_off_keeps_what_it_has(format: Format, text: str, arguments: str) -> None:
    assert parse_all_cuts(format, text) == Parsed("", "", [Call("run", arguments)])


def test_the_next_call_is_found() -> None:
    good = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert parse_all_cuts(HERMES, "<tool_call>" + good) == Parsed("<tool_call>", "", [Call("now", "{}")])


def test_half_a_header_is_dropped() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>fin"
    assert parse_all_cuts(HARMONY, text) == Parsed("", "Hm.")


def test_nothing_that_may_be_a_marker_is_given_out() -> None:
    parser = make_parser(
        HERMES, reasoning="auto", tools_on=True, parallel=True, starts_in_reasoning=False, tools=None
    )
    assert [d.text for d in parser.feed("a <tool_cal")] == ["a"]
    assert [d.text for d in parser.feed("m")] == [" <tool_calm"]
    assert parser.finish() == []
    assert parser.feed("more") == parser.finish() == []
