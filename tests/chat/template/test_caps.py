"""What probing finds in templates whose ways are known."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.chat.template import CHATML, ChatTemplate

KNOWN: dict[str, dict[str, Any]] = {
    "Qwen-Qwen3-0.6B": {
        "uses_system": True,
        "uses_tools": True,
        "uses_tool_calls": True,
        "uses_tool_role": True,
        "tool_arguments_as_object": True,
        "supports_parallel_calls": True,
        "thinking_switch": "enable_thinking",
        "keeps_reasoning": False,
        "takes_effort": False,
    },
    "Qwen3.5-4B": {
        "accepts_parts": True,
    },
    "meta-llama-Llama-3.1-8B-Instruct": {
        "uses_tools": True,
        "supports_parallel_calls": False,
        "tool_arguments_as_object": True,
    },
    "google-gemma-2-2b-it": {
        "uses_system": False,
        "uses_tools": False,
        "uses_tool_role": False,
        "uses_tool_calls": False,
    },
    "meetkai-functionary-medium-v3.2": {"uses_tool_calls": True, "tool_arguments_as_object": False},
    "microsoft-Phi-3.5-mini-instruct": {"uses_tools": False},
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {
        "calls_need_null": True,
        "uses_tool_calls": True,
        "tool_arguments_as_object": False,
        "uses_tools": False,
    },
    "GLM-4.7-Flash": {"keeps_reasoning": True},
    "deepseek-ai-DeepSeek-V3.1": {"thinking_switch": "enable_thinking", "uses_system": True},
    "ibm-granite-granite-3.3-2B-Instruct": {"thinking_switch": "thinking"},
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": {"tools_must_be_list": True, "uses_tools": True},
    "openai-gpt-oss-120b": {"uses_tools": True, "thinking_switch": "", "takes_effort": True},
    "mistralai-Mistral-Nemo-Instruct-2407": {
        "uses_tool_role": True,
        "call_ids_of_nine": True,
    },
}


@pytest.mark.parametrize("name", KNOWN)
def test_known(templates: dict[str, ChatTemplate], name: str) -> None:
    caps = templates[name].caps
    assert {key: getattr(caps, key) for key in KNOWN[name]} == KNOWN[name]


def test_chatml() -> None:
    caps = ChatTemplate(CHATML).caps
    assert (caps.uses_system, caps.uses_tools, caps.uses_tool_calls) == (True, False, False)


def test_parts_only() -> None:
    """SmolVLM's manner: every content is a list of parts."""
    source = (
        "{% for m in messages %}{{ m.role }}:{% for part in m.content %}{% if part.type == 'text' %}"
        "{{ part.text }}{% endif %}{% endfor %};{% endfor %}"
    )
    template = ChatTemplate(source)
    assert (template.caps.accepts_string, template.caps.accepts_parts) == (False, True)
    assert template.prompt([{"role": "user", "content": "hello"}]) == "user:hello;"


def test_a_template_that_always_fails_has_caps() -> None:
    caps = ChatTemplate("{{ raise_exception('never') }}").caps
    assert not caps.uses_system
    assert caps.accepts_string
