"""Outputs of each format as models write them, with what they mean."""

# ruff: noqa: E501

from __future__ import annotations

from llamad.chat.parsing import Format, detect
from support.chat_outputs import Call, Parsed

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
HUNYUAN = detect(":opensource <tool_sep")
KIMI = Format("kimi-k2", think=THINK)
GENERIC = Format()
NEMOTRON = Format("list", "", THINK, "<TOOLCALL>", "</TOOLCALL>")
MINIMAX = Format("invoke", "minimax", THINK)
DSML = Format("invoke", "deepseek-v3.2", THINK)
MINICPM = Format("invoke", "minicpm5", THINK)
KIMI_K3 = detect("<|open|> <|close|> <|end_of_msg|>")
GEMMA = detect("<|tool_call>call:")
LFM = Format("python", think=THINK)
APERTUS = Format("apertus", think=("<|inner_prefix|>", "<|inner_suffix|>"))
SOLAR = detect("<|tool_call:begin|>")
FUNCTIONARY = Format("functionary")
GIGACHAT = Format("list", "object", None, "<|function_call|>", "", ("<|message_sep|>",))
COMMAND_PLUS = Format("list", "fenced", None, "Action:")

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
    "hunyuan": (
        HUNYUAN,
        "<think:opensource>Hm.</think:opensource>Sure.<tool_calls:opensource>\n"
        "<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n"
        "<arg_value:opensource>Paris</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n"
        "<arg_value:opensource>3</arg_value:opensource>\n</tool_call:opensource>\n"
        "<tool_call:opensource>now<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
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
    "minimax": (
        MINIMAX,
        'Hm.</think>\n\nSure.\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
        Parsed("Hm.</think>\n\nSure.", "", [WEATHER, NOW]),
    ),
    "minimax, types": (
        MINIMAX,
        '<think>\nHm.\n</think>\n<minimax:tool_call><invoke name="mixed"><parameter name="s">1 < 2\n"3"</parameter>'
        '<parameter name="o">{"a": [1]}</parameter><parameter name="u">x</parameter></invoke></minimax:tool_call>',
        Parsed("", "Hm.", [Call("mixed", '{"s": "1 < 2\\n\\"3\\"", "o": {"a": [1]}, "u": "x"}')]),
    ),
    "deepseek v3.2": (
        DSML,
        '<think>Hm.</think>Sure.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="now">\n\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        Parsed("Sure.", "Hm.", [WEATHER, NOW]),
    ),
    "deepseek v3.2, what the attribute says counts": (
        DSML,
        '<｜DSML｜function_calls><｜DSML｜invoke name="mixed"><｜DSML｜parameter name="u" string="true">1</｜DSML｜parameter>'
        '<｜DSML｜parameter name="m" string="false">1</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>',
        Parsed("", "", [Call("mixed", '{"u": "1", "m": "1"}')]),
    ),
    "minicpm5": (
        MINICPM,
        'Sure.\n<function name="get_weather"><param name="city">Paris</param><param name="days">3</param></function>\n'
        '<function name="run"><param name="code"><![CDATA[a < b\n</param>]]></param></function>',
        Parsed("Sure.", "", [WEATHER, Call("run", '{"code": "a < b\\n</param>"}')]),
    ),
    "kimi k3": (
        KIMI_K3,
        "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Sure.<|close|>response<|sep|><|open|>tools<|sep|>"
        '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>'
        '<|open|>call tool="now" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>',
        Parsed("Sure.", "Hm.", [WEATHER, NOW]),
    ),
    "gemma 4": (
        GEMMA,
        '<|channel>thought\nHm.\n<channel|><|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>'
        "<|tool_call>call:now{}<tool_call|>",
        Parsed("", "Hm.", [WEATHER, NOW]),
    ),
    "gemma 4, types": (
        GEMMA,
        '<|tool_call>call:mixed{s:<|"|>a "b"\n<|"|>,n:-1.5e3,b:true,o:{k:[1,{<|"|>x y<|"|>:null}],e:[]}, u: "q"}<tool_call|>',
        Parsed(
            "",
            "",
            [
                Call(
                    "mixed",
                    '{"s": "a \\"b\\"\\n", "n": -1.5e3, "b": true, "o": {"k": [1, {"x y": null}], "e": []}, "u": "q"}',
                )
            ],
        ),
    ),
    "lfm2": (
        LFM,
        '<think>Hm.</think><|tool_call_start|>[get_weather(city="Paris", days=3), now()]<|tool_call_end|>',
        Parsed("", "Hm.", [WEATHER, NOW]),
    ),
    "lfm2, types": (
        LFM,
        "<|tool_call_start|>[mixed(s='it\\'s \\x41\\u00e9 \\d \"q\"', n=-1.5, b=True, o={'a': [1, (2, None), {}]}, u=[],)]"
        "<|tool_call_end|>Done.",
        Parsed(
            "Done.",
            "",
            [
                Call(
                    "mixed",
                    '{"s": "it\'s \\u0041\\u00e9 \\\\d \\"q\\"", "n": -1.5, "b": true,'
                    ' "o": {"a": [1, [2, null], {}]}, "u": []}',
                )
            ],
        ),
    ),
    "lfm2, as JSON": (
        LFM,
        f'<|tool_call_start|>[{OBJECT}, {{"name": "now", "arguments": {{}}}}]<|tool_call_end|>',
        Parsed("", "", [WEATHER, NOW]),
    ),
    "apertus": (
        APERTUS,
        f'<|inner_prefix|>Hm.<|inner_suffix|>Sure.<|tools_prefix|>[{{"get_weather": {PARIS}}}, {{"now": {{}}}}]<|tools_suffix|>',
        Parsed("Sure.", "Hm.", [WEATHER, NOW]),
    ),
    "solar": (
        SOLAR,
        "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather"
        f"<|tool_call:args|>{PARIS}<|tool_call:end|><|tool_call:begin|>0123456789<|tool_call:name|>now"
        "<|tool_call:args|>{}<|tool_call:end|><|calls|>",
        Parsed("", "Hm.", [Call("get_weather", PARIS, "a1b2c3d4e5"), Call("now", "{}", "0123456789")]),
    ),
    "solar, answer": (
        SOLAR,
        "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hello.<|end|>",
        Parsed("Hello.", "Hm."),
    ),
    "functionary": (
        FUNCTIONARY,
        f"all\nSure.>>>get_weather\n{PARIS}>>>now\n{{}}",
        Parsed("Sure.", "", [WEATHER, NOW]),
    ),
    "functionary, a call alone": (FUNCTIONARY, f"get_weather\n{PARIS}", Parsed("", "", [WEATHER])),
    "functionary, no recipient": (FUNCTIONARY, "Well >>> that", Parsed("Well >>> that")),
    "gigachat": (
        GIGACHAT,
        f"Sure.<|message_sep|>\n\n<|function_call|>{OBJECT}<|message_sep|>",
        Parsed("Sure.", "", [WEATHER]),
    ),
    "command-r+": (
        COMMAND_PLUS,
        'Plan: look.\nAction:\n```json\n[\n    {\n        "tool_name": "get_weather",\n'
        f'        "parameters": {PARIS}\n    }}\n]\n```',
        Parsed("Plan: look.", "", [WEATHER]),
    ),
    "xlam, bare": (
        GENERIC,
        f'[{OBJECT}, {{"name": "now", "arguments": {{}}}}]',
        Parsed("", "", [WEATHER, NOW]),
    ),
    "generic, a bare call": (GENERIC, OBJECT, Parsed("", "", [WEATHER])),
    "generic, a list that is no call": (GENERIC, '[{"name": "Bob"}, 1]', Parsed('[{"name": "Bob"}, 1]')),
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
