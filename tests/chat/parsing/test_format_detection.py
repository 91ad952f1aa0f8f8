"""Which format a template's text means. The texts are the parts of real templates that tell."""

from __future__ import annotations

import re

import pytest

from llamad.chat.parsing import Format, detect, ends_in_reasoning, new_call_id, without_thought

THINK = ("<think>", "</think>")
CASES = {
    '<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>': Format(
        "hermes"
    ),
    "'<think>\\n' + reasoning + '\\n</think>' <tool_call>": Format("hermes", think=THINK),
    "<tool_call>\\n<function=example>\\n<parameter=a>\\n": Format("qwen3-coder"),
    "<seed:think> <seed:tool_call>\\n<function=f>\\n<parameter=a>": Format(
        "qwen3-coder", "seed", ("<seed:think>", "</seed:think>")
    ),
    "'<|python_tag|>' + tool_call.name + '.call('": Format("llama3"),
    "<|start_header_id|>ipython<|end_header_id|>": Format("llama3"),
    "<function={name}>{{params}}</function>": Format("llama3"),
    "'[TOOL_CALLS][' {}": Format("mistral"),
    "'[TOOL_CALLS]' name '[ARGS]' [THINK]": Format("mistral", "args", ("[THINK]", "[/THINK]")),
    "'[TOOL_CALLS]' name '[CALL_ID]' id '[ARGS]'": Format("mistral", "call_id"),
    "<｜tool▁calls▁begin｜> '```json' '</think>'": Format("deepseek", "fenced", THINK),
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>": Format("deepseek"),
    "<|start|>assistant<|channel|>analysis<|message|>": Format("gpt-oss"),
    "<|tool_calls_section_begin|><|tool_call_begin|>": Format("kimi-k2"),
    "<think></think><tool_call>{f}\n<arg_key>{k}</arg_key>": Format("glm", think=THINK),
    "<|start_of_role|> respond only with <|tool_call|> followed by": Format("granite"),
    "<TOOLCALL>[": Format("list", "", None, "<TOOLCALL>", "</TOOLCALL>"),
    "within <tool_call></tool_call> XML tags <tool_calls>[": Format(
        "list", "", None, "<tool_calls>", "</tool_calls>"
    ),
    "' functools[' + calls": Format("list", "", None, "functools", ""),
    "{% for m in messages %}<|im_start|>{{ m.role }}": Format(),
    "<minimax:tool_call><invoke name=": Format("invoke", "minimax"),
    "dsml_token = '｜DSML｜' 'function_calls'": Format("invoke", "deepseek-v3.2"),
    "<｜DSML｜tool_calls>": Format("invoke", "deepseek-v4"),
    '<function name="f"><param name="a">': Format("invoke", "minicpm5"),
    "<|tool_list_start|>": Format("python"),
    "<|tools_prefix|>[": Format("apertus"),
    ">>>all >>>${recipient}": Format("functionary"),
    "<|header_start|>ipython": Format("llama3"),
    "]<]minimax[>[<tool_call>\n<invoke name=": Format(),
    "": Format(),
}


@pytest.mark.parametrize("source", CASES)
def test_detect(source: str) -> None:
    assert detect(source) == CASES[source]


def test_command_r() -> None:
    format = detect("<|START_THINKING|> <|START_ACTION|>[ <|START_RESPONSE|>")
    assert (format.name, format.open, format.close) == ("command-r", "<|START_ACTION|>", "<|END_ACTION|>")
    assert format.think == ("<|START_THINKING|>", "<|END_THINKING|>")
    assert "<|START_RESPONSE|>" in format.ignored


def test_what_must_reach_the_parser() -> None:
    assert {"<think>", "</think>", "<tool_call>", "</tool_call>"} <= set(
        detect("<think> <tool_call>").special
    )
    assert {"<|channel|>", "<|message|>", "<|call|>"} <= set(detect("<|channel|><|message|>").special)
    assert detect("").special == ()
    assert [detect(text).reasons for text in ("", "<think>", "<|channel|><|message|>")] == [False, True, True]


def test_ids() -> None:
    assert re.fullmatch("[a-zA-Z0-9]{9}", new_call_id(Format("mistral"), "f", 0))
    assert new_call_id(Format("kimi-k2"), "f", 3) == "functions.f:3"
    made = {new_call_id(Format("hermes"), "f", 0) for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch("call_[a-zA-Z0-9]{24}", id) for id in made)
    assert new_call_id(Format(), "f", 0, "toolu_").startswith("toolu_")
    assert re.fullmatch("[a-z0-9]{10}", new_call_id(Format("solar"), "f", 0))


def test_prompts_that_open_a_thought() -> None:
    thinks = Format("hermes", think=THINK)
    assert ends_in_reasoning(thinks, "<|im_start|>assistant\n<think>\n")
    assert not ends_in_reasoning(thinks, "<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not ends_in_reasoning(Format(), "<think>")
    assert ends_in_reasoning(Format("gpt-oss"), "<|start|>assistant<|channel|>analysis<|message|>")


def test_prompts_without_a_thought() -> None:
    thinks = Format("hermes", think=THINK)
    assert without_thought(thinks, "a<think>\n", is_sure=True) == "a<think>\n\n</think>\n\n"
    assert without_thought(thinks, "a<think>", is_sure=True) == "a<think></think>"
    assert without_thought(thinks, "a<think>", is_sure=True, last="Hm.") == "a<think>Hm.\n</think>\n\n"
    assert without_thought(thinks, "a", is_sure=True) == "a"
    assert without_thought(thinks, "a", is_sure=False) == "a<think>\n\n</think>\n\n"
    assert without_thought(thinks, "a<think></think>", is_sure=False) == "a<think></think>"
    assert without_thought(Format(), "a", is_sure=False) == "a"
    analysis = "<|channel|>analysis<|message|>"
    ended = f"a{analysis}Hm.<|end|><|start|>assistant"
    assert without_thought(Format("gpt-oss"), "a", is_sure=False, last="Hm.") == ended
    assert without_thought(Format("gpt-oss"), f"a{analysis}", is_sure=False, last="Hm.") == ended
