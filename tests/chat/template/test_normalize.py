"""Messages as clients send them: each polyfill alone, and that no real template loses a word of a conversation."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from msgspec.structs import replace

from llamad.chat.template import CHATML, Caps, ChatTemplate, builtin, normalize

ALL = Caps(
    uses_system=True,
    system_needs_user=False,
    several_systems=True,
    late_systems=True,
    must_alternate=False,
    needs_user=False,
    uses_tools=True,
    uses_tool_calls=True,
    uses_tool_role=True,
    tool_arguments_as_object=True,
    supports_parallel_calls=True,
    accepts_string=True,
    accepts_parts=True,
    tools_must_be_list=False,
    calls_need_null=False,
    call_ids_of_nine=False,
    results_in_calls=False,
    content_beside_calls=True,
    content_after_results=False,
    thinks_in_parts=False,
    calls_need_one_text=False,
    thinking_switch="",
    switch_acts_at_once=False,
    keeps_reasoning=True,
    takes_effort=True,
)
SYSTEM = {"role": "system", "content": "S"}
USER = {"role": "user", "content": "U"}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "D", "parameters": {"type": "object", "properties": {}}},
}


def called(arguments: object, content: object = None) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


RESULT = {"role": "tool", "tool_call_id": "c1", "content": "R"}


def test_what_a_template_knows_is_left_alone() -> None:
    messages = [SYSTEM, USER, {"role": "critic", "content": "C", "mood": 1}]
    assert normalize(messages, ALL, [TOOL]) == messages


def test_nothing_given_is_changed() -> None:
    messages = [
        {"role": "developer"},
        {**USER, "content": [{"type": "text", "text": "x"}]},
        called("{}"),
        RESULT,
    ]
    before = copy.deepcopy(messages)
    none = replace(ALL, uses_system=False, uses_tools=False, uses_tool_calls=False, uses_tool_role=False)
    normalize(messages, none, [TOOL])
    assert messages == before


def test_developer_and_missing_content() -> None:
    assert normalize([{"role": "developer", "content": "D"}, {"role": "assistant"}], ALL) == [
        {"role": "system", "content": "D"},
        {"role": "assistant", "content": ""},
    ]


def test_content_parts() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    image = {"type": "image_url", "image_url": {"url": "x"}}
    strings = replace(ALL, accepts_parts=False)
    assert normalize([{**USER, "content": texts}], strings)[0]["content"] == "a\nb"
    assert normalize([{**USER, "content": [image, *texts]}], strings)[0]["content"] == "a\nb"
    assert normalize([{**USER, "content": [image, *texts]}], ALL)[0]["content"] == [image, *texts]
    assert normalize([{**USER, "content": texts}], ALL)[0]["content"] == texts
    assert normalize([{**SYSTEM, "content": texts}], ALL)[0]["content"] == "a\nb"
    parts = replace(ALL, accepts_string=False)
    assert normalize([USER], parts)[0]["content"] == [{"type": "text", "text": "U"}]
    assert normalize([{**USER, "content": texts}], parts)[0]["content"] == texts


@pytest.mark.parametrize(
    ("given", "as_object", "want"),
    [
        ('{"a": 1}', True, {"a": 1}),
        ('{"a": 1}', False, '{"a": 1}'),
        ({"a": "é"}, False, '{"a": "é"}'),
        ({"a": 1}, True, {"a": 1}),
        ("", True, {}),
        ("no json", True, "no json"),
        ("[1]", True, "[1]"),
        ("[" * 100_000, True, "[" * 100_000),
    ],
)
def test_arguments(given: object, as_object: bool, want: object) -> None:
    caps = replace(ALL, tool_arguments_as_object=as_object)
    assert normalize([called(given)], caps)[0]["tool_calls"][0]["function"]["arguments"] == want


def test_null_beside_calls() -> None:
    assert normalize([called("{}", "")], replace(ALL, calls_need_null=True))[0]["content"] is None
    assert normalize([called("{}", "text")], replace(ALL, calls_need_null=True))[0]["content"] == "text"
    assert normalize([called("{}", None)], ALL)[0]["content"] == ""


def test_no_calls_is_no_field() -> None:
    assert normalize([{"role": "assistant", "content": "x", "tool_calls": []}], ALL) == [
        {"role": "assistant", "content": "x"}
    ]


def test_a_result_gets_its_name() -> None:
    assert normalize([called("{}"), RESULT], ALL)[1]["name"] == "weather"


def test_ids_of_nine() -> None:
    call, result = normalize([called("{}"), RESULT], replace(ALL, call_ids_of_nine=True))
    id = call["tool_calls"][0]["id"]
    assert len(id) == 9
    assert id.isalnum()
    assert result["tool_call_id"] == id
    assert normalize([{**RESULT, "tool_call_id": "abc123XYZ"}], replace(ALL, call_ids_of_nine=True))[0][
        "tool_call_id"
    ] == ("abc123XYZ")


def test_calls_and_results_as_text() -> None:
    caps = replace(ALL, uses_tool_calls=False, uses_tool_role=False)
    messages = [USER, called('{"a": 1}', "Wait."), RESULT, {**RESULT, "tool_call_id": "c2"}]
    _, call, results = normalize(messages, caps)
    text, line = call["content"].split("\n")
    assert text == "Wait."
    assert json.loads(line) == {"tool_calls": [{"name": "weather", "arguments": {"a": 1}}]}
    assert "tool_calls" not in call
    assert results["role"] == "user"
    assert [json.loads(one) for one in results["content"].split("\n")] == [
        {"tool_response": {"name": "weather", "content": "R"}},
        {"tool_response": {"name": "c2", "content": "R"}},
    ]
    assert set(results) == {"role", "content"}


def test_results_are_joined_with_each_other_only() -> None:
    caps = replace(ALL, uses_tool_role=False)
    parts = {"role": "user", "content": [{"type": "image"}]}
    claims = {"role": "user", "content": '{"tool_response": 1}'}
    roles = [m["role"] for m in normalize([parts, RESULT, RESULT, claims, RESULT], caps)]
    assert roles == ["user"] * 4


def test_tools_are_described() -> None:
    caps = replace(ALL, uses_tools=False)
    with_system, alone = normalize([SYSTEM, USER], caps, [TOOL]), normalize([USER], caps, [TOOL])
    assert with_system[0]["content"].startswith("S\n\n")
    assert alone[0]["role"] == "system"
    for messages in (with_system, alone):
        assert json.dumps(TOOL["function"]) in messages[0]["content"].split("\n")
        assert len(messages) == 2
    assert normalize([USER], caps, []) == [USER]


def test_system_without_a_system_role() -> None:
    caps = replace(ALL, uses_system=False)
    assert normalize([SYSTEM, USER], caps) == [{"role": "user", "content": "S\n\nU"}]
    assert normalize([SYSTEM, SYSTEM], caps) == [{"role": "user", "content": "S\n\nS"}]
    image = {"type": "image"}
    assert normalize([SYSTEM, {**USER, "content": [image]}], caps)[0]["content"] == [
        {"type": "text", "text": "S\n\n"},
        image,
    ]
    system = {"role": "system", "content": [{"type": "text", "text": "S"}]}
    assert normalize([system, USER], caps) == [{"role": "user", "content": "S\n\nU"}]


def test_hostile_shapes_do_not_break_it() -> None:
    """The API checks messages; what it lets through must not raise here."""
    odd: list[dict[str, Any]] = [
        {},
        {"role": "tool"},
        {"role": "assistant", "tool_calls": [None, {}, {"function": None}, {"id": [], "function": {}}]},
        {"role": "tool", "tool_call_id": [1], "content": [None, "x", {"type": "text"}]},
        {"role": "system", "content": [[]]},
        {"role": "user", "content": 5},
    ]
    none = replace(ALL, uses_system=False, uses_tools=False, uses_tool_calls=False, uses_tool_role=False)
    for caps in (ALL, none, replace(none, accepts_parts=False), replace(none, accepts_string=False)):
        assert normalize(odd, caps, [TOOL])


CONVERSATION = [
    {"role": "developer", "content": [{"type": "text", "text": "word-system"}]},
    {"role": "user", "content": [{"type": "text", "text": "word-one"}, {"type": "text", "text": "word-two"}]},
    called('{"city": "word-city"}'),
    {**RESULT, "content": "word-result"},
    {"role": "assistant", "content": "word-answer"},
    {"role": "user", "content": "word-last"},
]
WORDS = "word-system word-one word-two weather word-city word-result word-answer word-last".split()


def test_no_word_is_lost(templates: dict[str, ChatTemplate]) -> None:
    """A whole round trip of tools, through every real template."""
    for name, template in {**templates, "chatml": ChatTemplate(CHATML)}.items():
        text = template.prompt(CONVERSATION, tools=[TOOL])
        assert [word for word in WORDS if word not in text] == [], name


@pytest.mark.parametrize("name", ["gemma", "llama2", "mistral-v1", "yandex", "vicuna", "command-r"])
def test_no_word_is_lost_in_a_builtin(name: str) -> None:
    text = ChatTemplate(builtin(name) or "").prompt(CONVERSATION, tools=[TOOL])
    assert [word for word in WORDS if word not in text] == []
