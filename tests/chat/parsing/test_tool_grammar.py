"""Forced calls: each format's grammar takes the calls its parser reads, and nothing that is no such call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.chat_outputs import TOOLS, Call, parse

from llamad.chat.parsing import Format, ToolError, tool_grammar
from llamad.chat.parsing.tool_grammar import answer_grammar
from llamad.grammar.grammar import Grammar

THINK = ("<think>", "</think>")
PARIS = '{"city": "Paris", "days": 3}'
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>'
GLM = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>%s</arg_value>\n<arg_key>days</arg_key>\n"
FENCED = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n%s\n```<｜tool▁call▁end｜>"
ACTION = '{"tool_call_id": "%d", "tool_name": "get_weather", "parameters": %s}'
KIMI = "<|tool_call_begin|>functions.%s<|tool_call_argument_begin|>%s<|tool_call_end|>"
OBJECT = '{"name": "get_weather", "arguments": %s}' % PARIS  # noqa: UP031

# format, a call, two calls ("" where the format has only one)
CASES: dict[str, tuple[Format, str, str]] = {
    "hermes": (Format("hermes"), HERMES % PARIS, HERMES % PARIS + "\n" + HERMES % PARIS),
    "qwen3-coder": (
        Format("qwen3-coder"),
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
    ),
    "seed": (
        Format("qwen3-coder", "seed"),
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n<parameter=days>3</parameter>\n"
        "</function>\n</seed:tool_call>",
        "",
    ),
    "llama3": (Format("llama3"), '{"name": "get_weather", "parameters": %s}' % PARIS, ""),  # noqa: UP031
    "mistral": (
        Format("mistral"),
        f'[TOOL_CALLS][{OBJECT[:-1]}, "id": "abc123XYZ"}}]',
        f'[TOOL_CALLS][{OBJECT[:-1]}, "id": "abc123XYZ"}}, {OBJECT[:-1]}, "id": "abc123XYy"}}]',
    ),
    "mistral, args": (
        Format("mistral", "args"),
        f"[TOOL_CALLS]get_weather[ARGS]{PARIS}",
        f"[TOOL_CALLS]get_weather[ARGS]{PARIS}[TOOL_CALLS]now[ARGS]{{}}",
    ),
    "mistral, call_id": (
        Format("mistral", "call_id"),
        f"[TOOL_CALLS]get_weather[CALL_ID]abc123XYZ[ARGS]{PARIS}",
        "",
    ),
    "deepseek, fenced": (
        Format("deepseek", "fenced"),
        "<｜tool▁calls▁begin｜>" + FENCED % ("get_weather", PARIS) + "<｜tool▁calls▁end｜>",
        "<｜tool▁calls▁begin｜>"
        + FENCED % ("get_weather", PARIS)
        + "\n"
        + FENCED % ("now", "{}")
        + "<｜tool▁calls▁end｜>",
    ),
    "deepseek": (
        Format("deepseek"),
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{PARIS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
    ),
    "gpt-oss": (
        Format("gpt-oss"),
        f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{PARIS}",
        "",
    ),
    "command-r": (
        Format("command-r", "", None, "<|START_ACTION|>", "<|END_ACTION|>"),
        "<|START_ACTION|>[\n    " + ACTION % (0, PARIS) + "\n]<|END_ACTION|>",
        f"<|START_ACTION|>[{ACTION % (0, PARIS)}, {ACTION % (1, PARIS)}]<|END_ACTION|>",
    ),
    "granite": (Format("granite"), f"<|tool_call|>[{OBJECT}]", f"<|tool_call|>[{OBJECT}, {OBJECT}]"),
    "list": (
        Format("list", "", None, "<TOOLCALL>", "</TOOLCALL>"),
        f"<TOOLCALL>[{OBJECT}]</TOOLCALL>",
        f"<TOOLCALL>[{OBJECT}, {OBJECT}]</TOOLCALL>",
    ),
    "glm": (Format("glm"), GLM % "Paris" + "<arg_value>3</arg_value>\n</tool_call>", ""),
    "minimax": (
        Format("invoke", "minimax"),
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n</minimax:tool_call>',
        '<minimax:tool_call>\n<invoke name="now">\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    ),
    "deepseek v4": (
        Format("invoke", "deepseek-v4"),
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        "",
    ),
    "minicpm5": (
        Format("invoke", "minicpm5"),
        '<function name="get_weather"><param name="city">Paris</param><param name="days">3</param></function>',
        '<function name="now"></function>\n<function name="now"></function>',
    ),
    "kimi-k3": (
        Format("invoke", "kimi-k3"),
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
        '<|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>'
        "<|close|>call<|sep|><|close|>tools<|sep|>",
        "",
    ),
    "gemma": (
        Format("gemma"),
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>',
        "<|tool_call>call:now{}<tool_call|><|tool_call>call:now{}<tool_call|>",
    ),
    "python": (
        Format("python"),
        '<|tool_call_start|>[get_weather(city="Paris", days=3)]<|tool_call_end|>',
        "<|tool_call_start|>[now(), now()]<|tool_call_end|>",
    ),
    "apertus": (
        Format("apertus"),
        f'<|tools_prefix|>[{{"get_weather": {PARIS}}}]<|tools_suffix|>',
        '<|tools_prefix|>[{"now": {}}, {"now": {}}]<|tools_suffix|>',
    ),
    "solar": (
        Format("solar"),
        f"<|tool_calls|><|tool_call:begin|>abcdefghij<|tool_call:name|>get_weather<|tool_call:args|>{PARIS}<|tool_call:end|>",
        "",
    ),
    "functionary": (Format("functionary"), f"get_weather\n{PARIS}", ""),
    "gigachat": (
        Format("list", "object", None, "<|function_call|>"),
        "<|function_call|>" + OBJECT,
        "",
    ),
    "command-r+": (
        Format("list", "fenced", None, "Action:"),
        'Action:\n```json\n[{"tool_name": "get_weather", "parameters": %s}]\n```' % PARIS,  # noqa: UP031
        "",
    ),
    "hunyuan": (
        Format("glm", "hunyuan"),
        "<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
        "<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Paris</arg_value:opensource>\n"
        "<arg_key:opensource>days</arg_key:opensource>\n<arg_value:opensource>3</arg_value:opensource>\n"
        "</tool_call:opensource>\n</tool_calls:opensource>",
        "",
    ),
    "kimi-k2": (
        Format("kimi-k2"),
        "<|tool_calls_section_begin|>" + KIMI % ("get_weather:0", PARIS) + "<|tool_calls_section_end|>",
        "<|tool_calls_section_begin|>"
        + KIMI % ("get_weather:0", PARIS)
        + KIMI % ("now:1", "{}")
        + "<|tool_calls_section_end|>",
    ),
}


def grammar(format: Format, tools: Any = TOOLS, **options: Any) -> Grammar:
    return Grammar(tool_grammar(format, tools, **{"choice": "required", "parallel": True, **options}))


@pytest.mark.parametrize("case", CASES)
def test_calls_or_a_value(case: str) -> None:
    """The content is held to a schema where the model may call instead."""
    format, one, two = CASES[case]
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}

    def either(started: bool) -> Grammar:
        options = {"parallel": True, "starts_in_reasoning": started, "strict": True}
        text, warnings = answer_grammar(format, TOOLS, schema, **options)
        assert warnings == []
        return Grammar(text)

    before = "<|channel|>final<|message|>" if format.name == "gpt-oss" else ""
    found = either(False)
    for text in filter(None, (one, two, before + '{"ok": true}')):
        assert found.accepts(text.encode()), text
    for text in ("text", "text" + one, before + '{"ok": 1}', before + '{"ok": true}' + one):
        assert not found.accepts(text.encode()), text
    if format.think:
        thought = f"Hm.{format.think[1]}"
        assert found.accepts(f'{format.think[0]}{thought}\n{before}{{"ok": true}}'.encode())
        assert either(True).accepts((thought + one).encode())
        assert not either(True).accepts(one.encode())


@pytest.mark.parametrize("case", CASES)
def test_forced_calls(case: str) -> None:
    format, one, two = CASES[case]
    forced = grammar(format)
    single = grammar(format, parallel=False)
    assert forced.accepts(one.encode())
    assert single.accepts(one.encode())
    assert [call.name for call in parse(format, one).calls] == ["get_weather"]
    assert parse(format, one).content == ""
    if two:
        assert forced.accepts(two.encode())
        assert not single.accepts(two.encode())
        assert len(parse(format, two).calls) == 2
    for wrong in ("", "Hello.", one + "x", one[:-1], "x" + one, one.replace("get_weather", "unknown")):
        assert not forced.accepts(wrong.encode()), wrong
    for bad in (one.replace("3", '"3"'), one.replace("city", "town")):
        assert not forced.accepts(bad.encode()), bad


@pytest.mark.parametrize("case", CASES)
def test_a_named_function(case: str) -> None:
    format, one, two = CASES[case]
    assert grammar(format, choice="get_weather").accepts(one.encode())
    assert not grammar(format, choice="now").accepts(one.encode())
    if two:
        assert not grammar(format, choice="get_weather").accepts(two.encode())


def test_generic() -> None:
    one = b'{"tool_call": %s}' % OBJECT.encode()
    two = b'{"tool_calls": [%s, %s]}' % (OBJECT.encode(), OBJECT.encode())
    answer = b'{"response": "Hi \\"you\\""}'
    single = grammar(Format(), parallel=False)
    assert [single.accepts(text) for text in (one, two, answer)] == [True, False, False]
    several = grammar(Format())
    assert [several.accepts(text) for text in (one, two, answer)] == [False, True, False]
    free = grammar(Format(), parallel=False, choice="auto")
    assert [free.accepts(text) for text in (one, two, answer)] == [True, False, True]
    bare = OBJECT.encode()
    assert [grammar(Format(), choice="auto").accepts(text) for text in (two, bare, b"[%s]" % bare)] == [
        True
    ] * 3


FREE = (
    "",
    "Hello.",
    "a < b, <tool, [TOOL, {, Action: none, >>> 1 + 1, to=functions, <|tool",
    '{"name": "Bob", "days": "3"}',
    '["get_weather"]',
    "\n\nget_weather is a function",
)
AT_START = ("llama3", "gpt-oss", "functionary")  # whose usual calls are the whole answer


@pytest.mark.parametrize("case", CASES)
def test_free_text_up_to_a_call(case: str) -> None:
    """With "auto" all text is free but calls, and what reads as a call fits its schema."""
    format, one, two = CASES[case]
    free = grammar(format, choice="auto")
    for text in FREE:
        assert free.accepts(text.encode()), text
        assert not parse(format, text).calls
    before = "" if format.name in AT_START else "Let me see. <<"
    assert free.accepts((before + one).encode())
    assert [call.name for call in parse(format, before + one).calls] == ["get_weather"]
    if two:
        assert free.accepts((before + two).encode())
        assert not grammar(format, choice="auto", parallel=False).accepts((before + two).encode())
    for wrong in (one + "x", one[:-1], one.replace("3", '"3"'), one.replace("city", "town")):
        assert not free.accepts((before + wrong).encode()), wrong


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (Format("llama3"), 'Sure. <|python_tag|>{"name": "now", "parameters": {}}'),
        (Format("llama3"), "Sure. <function=now>{}</function>"),
        (Format("llama3"), '\n{"type": "function", "name": "now", "parameters": {}}'),
        (Format("functionary"), "all\nSure.\n>>>now\n{}"),
        (Format("gpt-oss"), "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.now"
            "<|channel|>commentary json<|message|>{}"),
        (Format("gpt-oss"), " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}"),
        (Format("deepseek"), "Sure.<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"),
        (Format("qwen3-coder"), "Sure. <function=now>\n</function>"),
        (Format("granite"), 'Sure. <tool_call>[{"name": "now", "arguments": {}}]'),
        (Format("hermes"), 'Sure. <tool_call>{"name": "now", "arguments": {}}</tool_call>'),
        (Format("kimi-k2"), KIMI % ("now:0", "{}")),
    ],
)  # fmt: skip
def test_other_spellings_of_calls(format: Format, text: str) -> None:
    """What the parser takes for a call besides the usual form is held to the schema as well."""
    free = grammar(format, choice="auto")
    assert free.accepts(text.encode())
    assert [call.name for call in parse(format, text).calls] == ["now"]
    for wrong in (text.replace("{}", '{"a": 1}'), text[:-1]):
        assert wrong == text or not free.accepts(wrong.encode()), wrong


def test_thoughts_in_free_text() -> None:
    """A call in a thought is none; the text behind it is free again."""
    format = Format("hermes", think=THINK)
    call, other = HERMES % PARIS, "<tool_call> or not"
    free = grammar(format, choice="auto")
    for good in (f"<think>{other}</think>\n{call}", f"\n<think>{other}</think>Hi", f"<think>{other}", call):
        assert free.accepts(good.encode()), good
    for bad in (f"a <think>{other}</think>", f"<think></think>{other}", f"<think>{call}</think>{call}a"):
        assert not free.accepts(bad.encode()), bad
    opened = grammar(format, choice="auto", starts_in_reasoning=True)
    for good in (f"{other}</think>{call}", f"{other}</think>Hi", other):
        assert opened.accepts(good.encode()), good
    assert not opened.accepts(f"</think>{other}".encode())


def test_schemas_of_free_calls() -> None:
    """One that no grammar can be made of leaves the arguments free, unless its tool is strict."""
    tool: dict[str, Any] = {"name": "f", "parameters": {"type": "dict"}}
    call = '<tool_call>{"name": "f", "arguments": {"a": [1]}}</tool_call>'
    assert grammar(Format("hermes"), [tool], choice="auto").accepts(call.encode())
    with pytest.raises(ToolError, match=r"tools\[0\]"):
        grammar(Format("hermes"), [{**tool, "strict": True}], choice="auto")


def test_a_thought_may_come_first() -> None:
    format = Format("hermes", think=THINK)
    call = HERMES % PARIS
    forced = grammar(format)
    for thought in ("", "<think>\nHm </thin <</think>\n\n", "\n<think></think>"):
        assert forced.accepts((thought + call).encode()), thought
        assert parse(format, thought + call).calls == [Call("get_weather", PARIS)]
    for wrong in ("<think>a</think>b</think>", "a</think>", "<think>", "<think></think>\n\n\n"):
        assert not forced.accepts((wrong + call).encode()), wrong
    opened = grammar(format, starts_in_reasoning=True)
    assert opened.accepts(("Hm.</think>" + call).encode())
    assert not opened.accepts(call.encode())
    harmony = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + CASES["gpt-oss"][1]
    assert grammar(Format("gpt-oss")).accepts(harmony.encode())


def test_bare_parameters() -> None:
    tools = [
        {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "color": {"enum": ["red", "green"]},
                    "item": {"$ref": "#/$defs/item"},
                    "any": {},
                },
                "required": ["text"],
                "$defs": {"item": {"type": "array", "items": {"type": "integer"}}},
            },
        }
    ]
    forced = grammar(Format("qwen3-coder"), tools)

    def call(*parameters: tuple[str, str]) -> bytes:
        inside = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
        return f"<tool_call>\n<function=f>\n{inside}</function>\n</tool_call>".encode()

    for good in (
        [("text", "a\n\n</param\n<b>"), ("color", "red"), ("item", "[1, 2]"), ("any", "what")],
        [("text", "")],
        [("text", ""), ("any", "{}")],
    ):
        assert forced.accepts(call(*good)), good
    for bad in (
        [],
        [("text", ""), ("color", "blue")],
        [("text", ""), ("item", '["a"]')],
        [("any", ""), ("text", "")],
    ):
        assert not forced.accepts(call(*bad)), bad


OPTIONAL = {
    "name": "f",
    "parameters": {
        "type": "object",
        "properties": {
            "a": {"type": "string", "enum": ["x", "y"]},
            "b": {"type": "boolean"},
            "c": {"type": "array", "items": {"type": "integer"}},
            "d": {"type": ["string", "integer"]},
        },
        "required": ["b"],
    },
}


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        (
            Format("python"),
            ("f(b=True)", 'f(a="x", b=False)', 'f(b=True, c=[1], d="q")', "f(b=True, d=7)"),
            ("f()", "f(b=1)", "f(b=True, )", 'f(a="z", b=True)', "f(c=[1])", "f(b=True, a='x')"),
        ),
        (
            Format("gemma"),
            (
                "{b:true}",
                '{a:<|"|>x<|"|>,b:false}',
                '{b:true,c:[1,{k:<|"|>v<|"|>}],d:<|"|>q<|"|>}',
                "{b:true,d:7}",
            ),
            ("{}", "{b:1}", "{b:true,}", '{a:<|"|>z<|"|>,b:true}', "{c:[1]}"),
        ),
    ],
)
def test_literals(format: Format, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    forced = grammar(format, [OPTIONAL], parallel=False)
    opens, closes = ("<|tool_call_start|>[", "]<|tool_call_end|>")
    if format.name == "gemma":
        opens, closes = "<|tool_call>call:f", "<tool_call|>"
    for one in good:
        text = opens + one + closes
        assert forced.accepts(text.encode()), one
        assert json.loads(parse(format, text, tools=[OPTIONAL]).calls[0].arguments)["b"] in (True, False)
    for one in bad:
        assert not forced.accepts((opens + one + closes).encode()), one


def test_errors_name_the_field() -> None:
    def error(tools: Any, format: Format = Format("hermes"), **options: Any) -> str:  # noqa: B008
        with pytest.raises(ToolError) as raised:
            tool_grammar(format, tools, **{"choice": "required", "parallel": True, **options})
        return str(raised.value)

    assert "tool_choice" in error(TOOLS, choice="unknown")
    assert error([]).startswith("tools: ")
    assert error([{"type": "function"}]).startswith("tools[0].function.name: ")
    assert error([{"name": "f", "parameters": {"type": 7}}]).startswith("tools[0].function.parameters: ")
    limited = {"type": "object", "properties": {"a": {"type": "string", "pattern": "a+"}}}
    strict = {"name": "f", "strict": True, "parameters": limited}
    assert "properties.a" in error([strict], Format("glm"))
    nested = {"type": "object", "properties": {"a": {"type": "array"}}}
    assert "properties.a" in error([{"name": "f", "strict": True, "parameters": nested}], Format("gemma"))
    tool_grammar(Format("glm"), [{**strict, "strict": False}], choice="required", parallel=True)
