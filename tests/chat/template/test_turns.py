"""Orders of turns that many templates refuse, or of which they drop messages: nothing fails and nothing is lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from msgspec.structs import replace

from llamad.chat.host import ChatHost
from llamad.chat.template import CHATML, ChatTemplate, normalize

Message = dict[str, Any]
ALL = replace(
    ChatTemplate(CHATML).caps, uses_tools=True, uses_tool_calls=True, uses_tool_role=True, accepts_parts=True
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"f{n}",
            "description": "Does it",
            "parameters": {
                "type": "object",
                "properties": {"k": {"type": "string", "description": "A key"}},
                "required": ["k"],
            },
        },
    }
    for n in range(1, 4)
]


def system(n: int) -> Message:
    return {"role": "system", "content": f"word-system{n}"}


def user(n: int) -> Message:
    return {"role": "user", "content": f"word-user{n}"}


def said(n: int, **more: Any) -> Message:
    return {"role": "assistant", "content": f"word-answer{n}", **more}


def call(n: int, **more: Any) -> Message:
    function = {"name": f"f{n}", "arguments": json.dumps({"k": f"word-argument{n}"})}
    calls = [{"id": f"call0000{n}", "type": "function", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls, **more}


def result(n: int) -> Message:
    return {"role": "tool", "tool_call_id": f"call0000{n}", "content": f"word-result{n}"}


ORDERS = {
    "two system messages": [system(1), system(2), user(1)],
    "a late one": [system(1), user(1), said(1), system(2), user(2)],
    "a late one only": [user(1), said(1), system(2), user(2)],
    "one at the end": [user(1), said(1), user(2), system(2)],
    "one after a result": [user(1), call(1), result(1), system(2)],
    "one between calls": [system(1), user(1), call(1), result(1), system(2), call(2), result(2)],
    "two answers": [user(1), said(1), said(2), user(2)],
    "an answer and a call": [user(1), said(1), call(1), result(1)],
    "an answer, a call and an answer": [user(1), said(1), call(1), result(1), said(2), user(2)],
    "two questions": [user(1), user(2)],
    "a question after a result": [user(1), call(1), result(1), user(2), said(2), user(3)],
    "a call without a result": [user(1), call(1), user(2)],
    "two calls": [user(1), call(1), call(2), result(1), result(2)],
    "an answer first": [said(1), user(1)],
    "nothing but the system": [system(1)],
    "a system and calls": [system(1), user(1), call(1), result(1)],
}


def words(messages: list[Message]) -> list[str]:
    arguments = [
        json.loads(one["function"]["arguments"])["k"] for m in messages for one in m.get("tool_calls", ())
    ]
    return [m["content"] for m in messages if m["content"]] + arguments


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_fails_and_nothing_is_lost(templates: dict[str, ChatTemplate], order: str) -> None:
    messages = ORDERS[order]
    tools = TOOLS if "call" in str(messages) else None
    lost = {}
    for name, template in templates.items():
        text = template.prompt(messages, tools=tools)
        missing = [word for word in words(messages) if word not in text]
        if missing:
            lost[name] = missing
    assert lost == {}


def test_late_system_messages_stay_at_their_place(templates: dict[str, ChatTemplate]) -> None:
    """So the prompt of one turn is the beginning of the next one's, and stays in the cache."""
    begun = [system(1), user(1), said(1), system(2)]
    for name in ("Qwen3.5-4B", "MiniMax-M2", "openai-gpt-oss-120b", "NVIDIA-Nemotron-Nano-v2"):
        prompts = [
            templates[name].prompt(messages, add_generation_prompt=False)
            for messages in (begun, [*begun, said(2), user(3)])
        ]
        assert prompts[1].startswith(prompts[0]), name
        at = [prompts[0].index(word) for word in words(begun)]
        assert at == sorted(at), name


def roles(messages: list[Message]) -> list[str]:
    return [m["role"] + "*" * len(m.get("tool_calls", ())) for m in messages]


def test_one_system_message() -> None:
    one = replace(ALL, several_systems=False)
    assert normalize([system(1), system(2), user(1)], one) == [
        {"role": "system", "content": "word-system1\n\nword-system2"},
        user(1),
    ]
    assert normalize([system(1), user(1), system(2)], one) == [system(1), user(1), system(2)]
    parts = [{"type": "image"}]
    assert normalize([system(1), {"role": "system", "content": parts}], one)[0]["content"] == [
        {"type": "text", "text": "word-system1"},
        {"type": "text", "text": "\n\n"},
        *parts,
    ]


def test_late_system_messages_are_the_users() -> None:
    caps = replace(ALL, late_systems=False)
    late = {"role": "user", "content": "word-system2"}
    assert normalize([system(1), user(1), system(2)], caps) == [system(1), user(1), late]


STRICT = replace(ALL, must_alternate=True)


def test_neighbours_are_merged() -> None:
    first, second = (
        said(1, reasoning_content="one"),
        said(2, reasoning="two", tool_calls=call(2)["tool_calls"]),
    )
    asked, told = normalize([user(1), user(2), first, second, result(2)], STRICT)[:2]
    assert asked == {"role": "user", "content": "word-user1\n\nword-user2"}
    assert told["content"] == "word-answer1\n\nword-answer2"
    assert told["reasoning_content"] == "one\n\ntwo"
    assert "reasoning" not in told
    assert len(told["tool_calls"]) == 1
    both = normalize([user(1), call(1), call(2), result(1), result(2)], STRICT)
    assert roles(both) == ["user", "assistant**", "tool", "tool"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user(1), call(1), result(1), user(2)], ["user", "assistant*", "tool", "assistant", "user"]),
        ([said(1), user(1)], ["user", "assistant", "user"]),
        ([system(1), call(1), result(1)], ["system", "user", "assistant*", "tool"]),
        ([user(1), said(1), call(1), result(1), said(2)], ["user", "assistant*", "tool", "assistant"]),
        (
            [user(1), call(1), result(1), said(2), user(2)],
            ["user", "assistant*", "tool", "assistant", "user"],
        ),
    ],
)
def test_turns_alternate(messages: list[Message], expected: list[str]) -> None:
    assert roles(normalize(messages, STRICT)) == expected


def test_content_that_would_be_lost_stays_alone() -> None:
    caps = replace(STRICT, content_beside_calls=False)
    out = normalize([user(1), said(1), call(1), result(1), said(2)], caps)
    assert roles(out) == ["user", "assistant", "assistant*", "tool", "user", "assistant"]


THOUGHT = {"reasoning_content": "word-thought"}


def test_reasoning_as_a_part(templates: dict[str, ChatTemplate]) -> None:
    """Ministral 3 reads reasoning nowhere else."""
    text = templates["mistralai-Ministral-3-14B-Reasoning-2512"].prompt(
        [user(1), said(1, **THOUGHT), user(2)]
    )
    assert "[THINK]word-thought[/THINK]word-answer1</s>" in text
    called = call(1, content="word-content", **THOUGHT)
    text = templates["mistralai-Ministral-3-14B-Reasoning-2512"].prompt(
        [user(1), called, result(1)], tools=TOOLS
    )
    assert "[THINK]word-thought[/THINK]word-content[TOOL_CALLS]f1[ARGS]" in text


def test_content_and_reasoning_beside_a_call(templates: dict[str, ChatTemplate]) -> None:
    """The template of gpt-oss refuses both together."""
    called = call(1, content="word-content", **THOUGHT)
    text = templates["openai-gpt-oss-120b"].prompt([user(1), called, result(1)], tools=TOOLS)
    assert "<|channel|>analysis<|message|>word-thought\n\nword-content<|end|>" in text


def test_results_in_the_message_with_their_calls(templates: dict[str, ChatTemplate]) -> None:
    template = templates["google-gemma-4-31B-it-interleaved"]
    assert template.caps.results_in_calls
    assert not templates["google-gemma-4-31B-it"].caps.results_in_calls
    messages = [user(1), call(1), result(1), call(2, content="word-content"), result(2), said(3), user(2)]
    text = template.prompt(messages, tools=TOOLS)
    assert '<tool_call|><|tool_response>response:f1{value:<|"|>word-result1<|"|>}<tool_response|>' in text
    assert 'response:f2{value:<|"|>word-result2<|"|>}<tool_response|>word-answer3<turn|>' in text
    assert text.index("word-content") < text.index("call:f2")
    assert "turn>tool" not in text


@pytest.mark.parametrize(
    "name", ["meta-llama-Llama-3.1-8B-Instruct", "GigaChat3-10B-A1.8B", "openai-gpt-oss-120b"]
)
def test_calls_one_by_one_where_the_template_writes_no_more(
    templates: dict[str, ChatTemplate], name: str
) -> None:
    """With two calls in a message the first template raises, and the others drop the second call."""
    both = call(1)["tool_calls"] + call(2)["tool_calls"]
    messages = [user(1), call(1, tool_calls=both), result(2), result(1), said(3), user(2)]
    text = templates[name].prompt(messages, tools=TOOLS)
    words = ["user1", "argument1", "result1", "argument2", "result2", "answer3", "user2"]
    assert (
        re.findall(r"word-(\w+)", text.partition("word-user1")[1] + text.partition("word-user1")[2]) == words
    )


RESULTS = {
    '{"b": [1, "two"], "a": true}': 'response:f1{a:true,b:[1,<|"|>two<|"|>]}',
    "20": "response:f1{value:20}",
    "20 degrees": 'response:f1{value:<|"|>20 degrees<|"|>}',
    "{broken": 'response:f1{value:<|"|>{broken<|"|>}',
    "[" * 5000: f'response:f1{{value:<|"|>{"[" * 5000}<|"|>}}',
    "NaN": 'response:f1{value:<|"|>NaN<|"|>}',
}


@pytest.mark.parametrize("content", RESULTS, ids=lambda content: content[:20])
def test_results_of_gemma_that_are_json_are_values(templates: dict[str, ChatTemplate], content: str) -> None:
    template = templates["google-gemma-4-31B-it-interleaved"]
    text = template.prompt([user(1), call(1), {**result(1), "content": content}], tools=TOOLS)
    assert f"<|tool_response>{RESULTS[content]}<tool_response|>" in text


def test_an_answer_is_opened_after_calls_with_content(sources: dict[str, str]) -> None:
    """The template of Gemma 4 closes such a turn, and opens none."""
    host = ChatHost(
        sources["google-gemma-4-31B-it"], bos="<s>", eos="</s>", adds_bos=True, kwargs={}, prefill=True
    )
    messages = [user(1), call(1, content="word-content"), result(1)]
    text = host.prompt(messages, tools=TOOLS, kwargs={})
    assert text.endswith("word-content<turn|>\n<|turn>model\n")
    assert host.prompt([user(1), call(1), result(1)], tools=TOOLS, kwargs={}).endswith("<tool_response|>")


@pytest.mark.parametrize("name", ["Kimi-K2-Instruct", "Kimi-K2-Thinking", "moonshotai-Kimi-K2"])
def test_results_of_kimi_are_turns_of_tools(templates: dict[str, ChatTemplate], name: str) -> None:
    text = templates[name].prompt([user(1), call(1), result(1)], tools=TOOLS)
    assert "## Return of" in text.partition("<|im_system|>")[2]
    assert "tool_response" not in text


def test_firefunction_knows_tools_by_another_name(templates: dict[str, ChatTemplate]) -> None:
    template = templates["fireworks-ai-llama-3-firefunction-v2"]
    assert template.caps.uses_tools
    assert json.dumps(TOOLS, indent=2) in template.prompt([user(1)], tools=TOOLS)
    assert "Today is" in template.prompt([user(1)])


def test_the_switch_of_apertus_has_its_own_default(sources: dict[str, str]) -> None:
    """It changes a text, not how an answer begins."""
    host = ChatHost(
        sources["Apertus-8B-Instruct"], bos="<s>", eos="</s>", adds_bos=True, kwargs={}, prefill=True
    )
    assert "Deliberation: disabled" in host.prompt([user(1)], tools=None, kwargs={})
    assert "Deliberation: enabled" in host.prompt([user(1)], tools=None, kwargs={}, thinking=True)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ absent.a.b }}{{ 'x' + absent + 'y' }}{{ messages[9].role + 'z' }}", "xyz"),
        ("{{ 'x' + none }}{{ none + 'y' }}", "xy"),
        ("{% for x in absent %}a{% endfor %}{{ 1 in absent }}", "False"),
        ("{% set a = [1] %}{% set _ = a.append(2) %}{{ a.pop(0) }}{{ a }}", "1[2]"),
    ],
)
def test_as_lenient_as_llama_cpp(source: str, text: str) -> None:
    assert ChatTemplate(source).render([user(1)]) == text
