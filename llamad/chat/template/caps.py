"""Detects what a template supports by rendering small conversations and searching the output.

Pure. It calls the given `render` about thirty times; a TemplateError means "not supported".
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import msgspec

from llamad.chat.template.errors import TemplateError

SWITCHES = ("enable_thinking", "thinking")
# The variables that keep the reasoning of earlier turns, and those that drop it.
KEEPING = ("preserve_thinking", "keep_past_thinking", "preserved_thinking")
DROPPING = ("clear_thinking", "truncate_history_thinking", "drop_thinking")
EFFORTS = ("reasoning_effort", "reasoning_strength", "thinking_effort")

USER = {"role": "user", "content": "needle-user"}
DONE = {"role": "assistant", "content": "needle-answer"}
ARGUMENTS = {"needle_key": "needle-value"}
CALLED = ("needle_called", "other_called")
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "needle-description",
            "parameters": {
                "type": "object",
                "properties": {"needle_key": {"type": "string", "description": "needle-property"}},
                "required": ["needle_key"],
            },
        },
    }
    for name in ("needle_tool", "other_tool")
]


class Caps(msgspec.Struct, frozen=True):
    uses_system: bool  # a system message is written
    system_needs_user: bool  # the system's text is lost unless the user has the last word (Mistral Nemo)
    several_systems: bool  # all system messages at the beginning are written, not only one of them
    late_systems: bool  # system messages after the beginning are written
    must_alternate: bool  # two messages of the user, or two of the assistant, in a row are refused or lost
    needs_user: bool  # a conversation without a message of the user is refused or lost
    uses_tools: bool  # `tools` are described
    uses_tool_calls: bool  # an assistant's tool_calls are written
    uses_tool_role: bool  # a tool's result is written
    tool_arguments_as_object: bool  # arguments must be a dict; otherwise they must be JSON text
    supports_parallel_calls: bool  # two calls in one message are written
    accepts_string: bool  # content may be a string
    accepts_parts: bool  # content may be a list of parts
    tools_must_be_list: bool  # the template fails without tools, but not with an empty list
    calls_need_null: bool  # tool_calls are only written if content is None, not if it is ""
    call_ids_of_nine: bool  # the ids of calls must be nine letters and digits (Mistral)
    results_in_calls: bool  # results belong into the message with their calls (the first template of Gemma 4)
    content_beside_calls: bool  # content beside calls is written
    content_after_results: bool  # content beside calls is written after their results (Gemma 4)
    thinks_in_parts: bool  # reasoning is written as a part of the content only (Ministral 3)
    calls_need_one_text: bool  # calls with both content and reasoning are refused (gpt-oss)
    thinking_switch: str  # the variable that turns reasoning on or off; "" if there is none
    switch_acts_at_once: bool  # the switch changes how the answer begins, not only a text before it (Apertus)
    keeps_reasoning: bool  # the reasoning of earlier turns is written, if a variable says so
    takes_effort: bool  # there is a variable for the effort of reasoning

    def shown(self) -> dict[str, bool]:
        """Return the capabilities by llama-server's names."""
        return {
            "supports_string_content": self.accepts_string,
            "supports_typed_content": self.accepts_parts,
            "supports_tools": self.uses_tools,
            "supports_tool_calls": self.uses_tool_calls,
            "supports_parallel_tool_calls": self.supports_parallel_calls,
            "supports_system_role": self.uses_system,
            "supports_preserve_reasoning": self.keeps_reasoning,
            "supports_reasoning_effort": self.takes_effort,
            "supports_object_arguments": self.tool_arguments_as_object,
        }


class Render(Protocol):
    def __call__(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        kwargs: dict[str, Any] | None = None,
    ) -> str: ...


class Prober:
    """Renders test conversations. Content is sent as parts if the template takes no strings."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._parts = False
        self.needs_list = False
        if not self.text([USER]):
            self.needs_list = True
            self.needs_list = bool(self.text([USER]))
        self.accepts_parts = self._understands_parts()
        self.accepts_string = "needle-user" in self.text([USER])
        self._parts = self.accepts_parts and not self.accepts_string

    def _understands_parts(self) -> bool:
        text = self.text([{"role": "user", "content": [{"type": "text", "text": "needle-part"}]}])
        return "needle-part" in text and "'text'" not in text and '"text"' not in text

    def text(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        prompt: bool = True,
        kwargs: dict[str, Any] | None = None,
    ) -> str:
        """Return the rendered text, or "" if the template fails."""
        if self._parts:
            messages = [
                {**m, "content": [{"type": "text", "text": m["content"]}]}
                if isinstance(m["content"], str)
                else m
                for m in messages
            ]
        try:
            return self._render(
                messages,
                tools=tools or ([] if self.needs_list else None),
                add_generation_prompt=prompt,
                kwargs=kwargs,
            )
        except TemplateError:
            return ""

    def writes(self, messages: list[dict[str, Any]]) -> bool:
        """Return whether the template writes all of these messages, whose contents are texts."""
        text = self.text(messages)
        return all(message["content"] in text for message in messages)

    def with_calls(
        self,
        content: str | None,
        *arguments: object,
        id: str = "call{:05}",
        thought: str = "",
        last: bool = False,
    ) -> str:
        """Render a conversation with one call for each element of `arguments`, beside this content and reasoning. If
        they are not the `last` turn, an answer and a question follow."""
        calls = [
            {"id": id.format(i), "type": "function", "function": {"name": CALLED[i], "arguments": one}}
            for i, one in enumerate(arguments)
        ]
        results = [
            {"role": "tool", "name": "needle_tool", "tool_call_id": call["id"], "content": "needle-result"}
            for call in calls
        ]
        asked = {"role": "assistant", "content": content, "tool_calls": calls, **_thought(thought)}
        whole: list[dict[str, Any]] = [USER, asked, *results, DONE, USER]
        short = self.text(whole[:-2], TOOLS)
        return short if last else self.text(whole, TOOLS) or self.text(whole) or short


def probe(render: Render) -> Caps:
    prober = Prober(render)
    content: str | None = ""
    as_object, as_text = _with_both(prober, content)
    if CALLED[0] not in as_object + as_text and CALLED[0] in "".join(_with_both(prober, None)):
        content = None
        as_object, as_text = _with_both(prober, content)
    # A dict in Python's syntax, or JSON text that is quoted a second time, means "not supported".
    object_is_understood = "needle-value" in as_object and "'needle_key'" not in as_object
    text_is_understood = "needle-value" in as_text and '\\"needle_key' not in as_text
    takes_object = object_is_understood or not text_is_understood
    called = as_object if takes_object else as_text
    arguments: object = ARGUMENTS if takes_object else json.dumps(ARGUMENTS)
    two = prober.with_calls(content, arguments, arguments)
    beside = prober.with_calls("needle-content", arguments)
    system, late = ({"role": "system", "content": text} for text in ("needle-system", "needle-late"))
    return Caps(
        uses_system=prober.writes([system, USER]),
        system_needs_user=prober.writes([system, USER]) and not prober.writes([system, USER, DONE]),
        several_systems=prober.writes([system, late, USER]),
        late_systems=prober.writes([system, USER, DONE, late, USER]),
        must_alternate=not (
            prober.writes([USER, {**USER, "content": "needle-more"}])
            and prober.writes([USER, DONE, {**DONE, "content": "needle-more"}, USER])
        ),
        needs_user=not prober.writes([system]),
        uses_tools="needle_tool" in prober.text([USER], TOOLS),
        uses_tool_calls=CALLED[0] in called,
        uses_tool_role="needle-result" in called,
        tool_arguments_as_object=takes_object and "needle-value" in as_object,
        supports_parallel_calls=CALLED[0] in two and CALLED[1] in two,
        accepts_string=prober.accepts_string or not prober.accepts_parts,
        accepts_parts=prober.accepts_parts,
        tools_must_be_list=prober.needs_list,
        calls_need_null=content is None,
        call_ids_of_nine=CALLED[0] in called
        and CALLED[0] not in prober.with_calls(content, arguments, id="call_{:012}"),
        results_in_calls=_has_results_in_calls(prober, arguments),
        content_beside_calls="needle-content" in beside,
        content_after_results="needle-content"
        in beside.rpartition("needle-result")[2].partition("needle-user")[0],
        thinks_in_parts=_thinks_in_parts(prober),
        calls_need_one_text=bool(called)
        and not prober.with_calls("needle-content", arguments, thought="needle-thought")
        and bool(beside),
        thinking_switch=_switch(prober),
        switch_acts_at_once=_switch_acts_at_once(prober),
        keeps_reasoning=_keeps_reasoning(prober),
        takes_effort=len({_with_effort(prober, effort) for effort in ("none", "low", "high", "max")}) > 1,
    )


def _with_both(prober: Prober, content: str | None) -> tuple[str, str]:
    return prober.with_calls(content, ARGUMENTS), prober.with_calls(content, json.dumps(ARGUMENTS))


def _thought(text: str) -> dict[str, str]:
    return {"reasoning_content": text, "thinking": text} if text else {}


def _has_results_in_calls(prober: Prober, arguments: object) -> bool:
    """Whether the template writes `tool_responses` of a message with calls in a form of its own, but not a message of
    the role tool."""
    function = {"name": CALLED[0], "arguments": arguments}
    call = {"id": "call00000", "type": "function", "function": function}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    response = {"name": CALLED[0], "response": "needle-result"}
    inside = prober.text([USER, {**called, "tool_responses": [response]}], TOOLS)
    beside = {"role": "tool", "name": CALLED[0], "tool_call_id": "call00000", "content": "needle-result"}
    form = f"response:{CALLED[0]}"
    return (
        form in inside
        and "needle-result" in inside
        and form not in prober.text([USER, called, beside], TOOLS)
    )


def _thinks_in_parts(prober: Prober) -> bool:
    parts = [{"type": "thinking", "thinking": "needle-thought"}, {"type": "text", "text": "needle-answer"}]
    inside = prober.text([USER, {"role": "assistant", "content": parts}, USER])
    beside = prober.text([USER, {**DONE, **_thought("needle-thought")}, USER])
    is_written = "needle-thought" in inside and "needle-answer" in inside and "'thinking'" not in inside
    return is_written and '"thinking"' not in inside and "needle-thought" not in beside


def _keeps_reasoning(prober: Prober) -> bool:
    first, last = ({**DONE, "reasoning_content": thought} for thought in ("needle-thought", "other-thought"))
    switches = {"enable_thinking": True, **dict.fromkeys(KEEPING, True), **dict.fromkeys(DROPPING, False)}
    return "needle-thought" in prober.text([USER, first, USER, last, USER], kwargs=switches)


def _with_effort(prober: Prober, effort: str) -> str:
    return prober.text([USER], kwargs={"enable_thinking": True, **dict.fromkeys(EFFORTS, effort)})


def _switch_acts_at_once(prober: Prober) -> bool:
    name = _switch(prober)
    ends = {prober.text([USER], kwargs={name: on}).rpartition("needle-user")[2] for on in (True, False)}
    return bool(name) and len(ends) > 1


def _switch(prober: Prober) -> str:
    for name in SWITCHES:
        if prober.text([USER], kwargs={name: True}) != prober.text([USER], kwargs={name: False}):
            return name
    return ""
