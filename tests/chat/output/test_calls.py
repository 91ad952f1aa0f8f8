"""Outputs of each format as models write them, whole and cut at every byte, with the calls they mean."""

from __future__ import annotations

import pytest
from support.outputs import Call, Parsed, parse, parse_all_cuts

from llamad.chat.output import Format

THINK = ("<think>", "</think>")
HERMES = Format("hermes", think=THINK)
CODER = Format("qwen3-coder", think=THINK)
SEED = Format("qwen3-coder", "seed", ("<seed:think>", "</seed:think>"))
LLAMA = Format("llama3")
MISTRAL = Format("mistral", think=("[THINK]", "[/THINK]"))
DEEPSEEK = Format("deepseek", think=THINK)
HARMONY = Format("gpt-oss")
COMMAND = Format(
    "command-r",
    "",
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
GRANITE = Format("granite", think=THINK, ignored=("<response>", "</response>"))
GLM = Format("glm", think=THINK)
KIMI = Format("kimi-k2", think=THINK)
GENERIC = Format()
NEMOTRON = Format("list", "", THINK, "<TOOLCALL>", "</TOOLCALL>")

PARIS = '{"city": "Paris", "days": 3}'
OBJECT = f'{{"name": "get_weather", "arguments": {PARIS}}}'
WEATHER = Call("get_weather", PARIS)
NOW = Call("now", "{}")

CASES: dict[str, tuple[Format, str, Parsed]] = {
    "hermes": (
        HERMES,
        f"<think>\nA forecast.\n\nLet me look.\n</think>\n\n<tool_call>\n{OBJECT}\n</tool_call>",
        Parsed("", "A forecast.\n\nLet me look.", [WEATHER]),
    ),
    "hermes, content and two calls": (
        HERMES,
        f"I will look.\n<tool_call>\n{OBJECT}\n</tool_call>\n"
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n',
        Parsed("I will look.", "", [WEATHER, NOW]),
    ),
    "hermes, arguments first, then as a string, then missing": (
        HERMES,
        f'<tool_call>{{"arguments": {PARIS}, "name": "get_weather"}}</tool_call>'
        '<tool_call>{"name": "run", "arguments": "{\\"code\\": \\"1\\\\u00e9\\"}"}</tool_call>'
        '<tool_call>{"name": "now"}</tool_call> Done.',
        Parsed("Done.", "", [WEATHER, Call("run", '{"code": "1\\u00e9"}'), NOW]),
    ),
    "hermes, OpenAI's nesting and an id": (
        HERMES,
        '<tool_call>{"id": "call_1", "type": "function", "function": {"name": "now", "arguments": {}}}</tool_call>',
        Parsed("", "", [Call("now", "{}", "call_1")]),
    ),
    "hermes, never closed": (
        HERMES,
        f"<tool_call>\n{OBJECT}",
        Parsed("", "", [WEATHER]),
    ),
    "hermes, text after": (
        HERMES,
        'A\n<tool_call>{"name": "now", "arguments": {}}</tool_call>\n\nB',
        Parsed("A\n\nB", "", [NOW]),
    ),
    "hermes, raw control characters and odd escapes": (
        HERMES,
        '<tool_call>{"name": "run", "arguments": {"code": "a\n\tb\\d\\\'\\u12g ü"}}</tool_call>',
        Parsed("", "", [Call("run", '{"code": "a\\n\\tb\\\\d\'\\\\u12g ü"}')]),
    ),
    "qwen3-coder": (
        CODER,
        "On it.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        Parsed("On it.", "", [WEATHER]),
    ),
    "qwen3-coder, types": (
        CODER,
        "<tool_call>\n<function=mixed>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n-1.5e3\n</parameter>\n"
        '<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{"a": [1, "é"]}\n</parameter>\n'
        "<parameter=u>\n[1]\n</parameter>\n<parameter=m>\nnull\n</parameter>\n</function>\n</tool_call>",
        Parsed(
            "",
            "",
            [
                Call(
                    "mixed",
                    '{"s": "12", "n": -1.5e3, "b": true, "o": {"a": [1, "é"]}, "u": [1], "m": null}',
                )
            ],
        ),
    ),
    "qwen3-coder, code": (
        CODER,
        '<function=run>\n<parameter=code>\nif a < b:\n    print("</p>")\n\n</parameter>\n</function>',
        Parsed("", "", [Call("run", '{"code": "if a < b:\\n    print(\\"</p>\\")\\n"}')]),
    ),
    "qwen3-coder, nothing to say": (
        CODER,
        "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        Parsed("", "", [NOW]),
    ),
    "seed": (
        SEED,
        "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
        "<parameter=days>3</parameter>\n</function>\n</seed:tool_call>",
        Parsed("", "Hm.", [WEATHER]),
    ),
    "llama3": (
        LLAMA,
        f'{{"name": "get_weather", "parameters": {PARIS}}}',
        Parsed("", "", [WEATHER]),
    ),
    "llama3, typed": (
        LLAMA,
        f'\n{{"type": "function", "name": "get_weather", "parameters": {PARIS}}};'
        ' {"name": "now", "parameters": {}}',
        Parsed("", "", [WEATHER, NOW]),
    ),
    "llama3, python tag": (
        LLAMA,
        f'<|python_tag|>{{"name": "get_weather", "parameters": {PARIS}}}',
        Parsed("", "", [WEATHER]),
    ),
    "llama3, built-in": (
        LLAMA,
        '<|python_tag|>get_weather.call(city="Paris", days=3)',
        Parsed("", "", [WEATHER]),
    ),
    "llama3, function tag": (
        LLAMA,
        f"<function=get_weather>{PARIS}</function>",
        Parsed("", "", [WEATHER]),
    ),
    "llama3, JSON that is no call": (
        LLAMA,
        '{"name": "Bob", "age": 7}',
        Parsed('{"name": "Bob", "age": 7}'),
    ),
    "mistral nemo": (
        MISTRAL,
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {PARIS}, "id": "abc123XYZ"}}, '
        '{"id": "123456789", "name": "now", "arguments": {}}]',
        Parsed("", "", [WEATHER, Call("now", "{}", "123456789")]),
    ),
    "mistral small": (
        MISTRAL,
        f"[THINK]Hm.[/THINK]Sure.[TOOL_CALLS]get_weather[CALL_ID]abc123XYZ[ARGS]{PARIS}[TOOL_CALLS]now[ARGS]{{}}",
        Parsed("Sure.", "Hm.", [Call("get_weather", PARIS, "abc123XYZ"), NOW]),
    ),
    "deepseek v3": (
        DEEPSEEK,
        f"<think>\nHm.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{PARIS}\n```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        Parsed("", "Hm.", [WEATHER, NOW]),
    ),
    "deepseek v3.1": (
        DEEPSEEK,
        f"Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{PARIS}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        Parsed("Sure.", "", [WEATHER, NOW]),
    ),
    "deepseek r1, another spelling": (
        DEEPSEEK,
        f"<｜tool_calls_begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{PARIS}\n```<｜tool▁call▁end｜>",
        Parsed("", "", [WEATHER]),
    ),
    "gpt-oss": (
        HARMONY,
        "<|channel|>analysis<|message|>User wants weather.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "I will look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
        f"<|message|>{PARIS}<|call|>",
        Parsed("I will look.", "User wants weather.", [WEATHER]),
    ),
    "gpt-oss, recipient in the role": (
        HARMONY,
        f" to=functions.get_weather<|channel|>analysis json<|message|>{PARIS}",
        Parsed("", "", [WEATHER]),
    ),
    "gpt-oss, final": (
        HARMONY,
        "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hello <b>!<|return|>",
        Parsed("Hello <b>!", "Hm."),
    ),
    "gpt-oss, another recipient": (
        HARMONY,
        "<|channel|>commentary to=python code<|message|>print(1)<|call|>",
        Parsed("<|channel|>commentary to=python code<|message|>print(1)"),
    ),
    "command-r": (
        COMMAND,
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    "
        f'{{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {PARIS}}},\n    '
        '{"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        Parsed("", "Hm.", [Call("get_weather", PARIS, "0"), Call("now", "{}", "1")]),
    ),
    "command-r, answer": (
        COMMAND,
        "<|START_RESPONSE|>Hello there.<|END_RESPONSE|>",
        Parsed("Hello there."),
    ),
    "granite": (
        GRANITE,
        f'<|tool_call|>[{OBJECT}, {{"name": "now", "arguments": {{}}}}]',
        Parsed("", "", [WEATHER, NOW]),
    ),
    "granite, answer": (
        GRANITE,
        "<think>Hm.</think>\n<response>Hello.</response>",
        Parsed("Hello.", "Hm."),
    ),
    "glm": (
        GLM,
        "\n<think>Hm.</think>\nSure.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        Parsed("Sure.", "Hm.", [WEATHER, NOW]),
    ),
    "kimi": (
        KIMI,
        f"Sure.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{PARIS}<|tool_call_end|>"
        "<|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        Parsed(
            "Sure.",
            "",
            [Call("get_weather", PARIS, "functions.get_weather:0"), Call("now", "{}", "functions.now:1")],
        ),
    ),
    "nemotron": (
        NEMOTRON,
        f"<think>\nHm.\n</think>\n\n<TOOLCALL>[{OBJECT}]</TOOLCALL>",
        Parsed("", "Hm.", [WEATHER]),
    ),
    "generic, a call": (
        GENERIC,
        f'{{\n  "tool_call": {OBJECT}\n}}',
        Parsed("", "", [WEATHER]),
    ),
    "generic, calls": (
        GENERIC,
        f'{{"tool_calls": [{{"name": "get_weather", "arguments": {PARIS}, "id": "1"}}, '
        '{"name": "now", "arguments": {}}]}',
        Parsed("", "", [WEATHER, NOW]),
    ),
    "generic, a response": (
        GENERIC,
        '{"response": "Hello\\n\\"you\\" \\ud83d\\ude00 \\ud83d \\u00e9\\/ü"}',
        Parsed('Hello\n"you" 😀 \ufffd é/ü'),
    ),
    "generic, a response that is JSON": (
        GENERIC,
        '{"response": {"a": 1}}',
        Parsed('{"response": {"a": 1}}'),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_recorded(case: str) -> None:
    format, text, meant = CASES[case]
    assert parse_all_cuts(format, text) == meant


@pytest.mark.parametrize("case", [case for case, (_, _, meant) in CASES.items() if meant.calls])
def test_without_known_tools_the_names_are_the_same(case: str) -> None:
    format, text, meant = CASES[case]
    found = parse(format, text, tools=None)
    assert [call.name for call in found.calls] == [call.name for call in meant.calls]


@pytest.mark.parametrize("case", [case for case, (format, _, _) in CASES.items() if format.name != "gpt-oss"])
def test_with_tools_off_calls_are_text(case: str) -> None:
    format, text, _ = CASES[case]
    found = parse(format, text, tools_on=False, reasoning="none")
    for tag in format.ignored:
        text = text.replace(tag, "")
    assert found == Parsed(text)


def test_gpt_oss_with_tools_off() -> None:
    text = f"<|channel|>commentary to=functions.get_weather json<|message|>{PARIS}<|call|>"
    assert parse_all_cuts(HARMONY, text, tools_on=False) == Parsed(text.removesuffix("<|call|>"))


def test_one_call_only() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert parse_all_cuts(HERMES, call + call, parallel=False) == Parsed(call, "", [NOW])


def test_code_after_llamas_python_tag() -> None:
    tools = [{"type": "function", "function": {"name": "python", "parameters": {"type": "object"}}}]
    found = parse_all_cuts(LLAMA, '<|python_tag|>print("a")\nb', tools=tools)
    assert found == Parsed("", "", [Call("python", '{"code": "print(\\"a\\")\\nb"}')])
