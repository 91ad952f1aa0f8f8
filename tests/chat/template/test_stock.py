"""The built-in templates write what llama.cpp's own function writes, for any order of roles and any text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import llama_chat

from llamad.chat.template import CHATML, ChatTemplate, builtin, builtin_names


def test_every_name_of_llama_cpp() -> None:
    assert builtin_names() == llama_chat.names()
    assert builtin("chatml") == CHATML
    assert builtin("no such name") is None


TEXTS = st.text(
    st.sampled_from("ab <|>{}%\"'\\\n\r\t\v\f\x1c\x85\xa0\u2003é漢🦙"), max_size=8
) | st.sampled_from(["", " padded ", "\n\nlines\n", "{{ content }}", "{% raw %}"])
ROLES = st.sampled_from(
    ["system", "user", "assistant", "tool", "function", "model", "assistant_tool_call", "other"]
)
MESSAGES = st.lists(
    st.builds(lambda role, content: {"role": role, "content": content}, ROLES, TEXTS), min_size=1, max_size=6
)


@pytest.mark.parametrize("name", builtin_names())
def test_ordinary_conversations(name: str) -> None:
    template = ChatTemplate(builtin(name) or "", bos="<s>", eos="</s>")
    system, user, assistant = (
        {"role": role, "content": f" The {role}'s\ntext. "} for role in ("system", "user", "assistant")
    )
    for messages in (
        [user],
        [system, user],
        [user, assistant, user],
        [system, user, assistant, user],
        [system, user, assistant],
        [system],
        [user, assistant, system, user],
    ):
        for prompt in (True, False):
            got = template.render(messages, add_generation_prompt=prompt)
            assert got == llama_chat.applied(name, messages, prompt)


@settings(max_examples=400)
@given(name=st.sampled_from(builtin_names()), messages=MESSAGES, prompt=st.booleans())
def test_any_conversation(name: str, messages: list[dict[str, Any]], prompt: bool) -> None:
    template = ChatTemplate(builtin(name) or "")
    got = template.render(messages, add_generation_prompt=prompt)
    assert got == llama_chat.applied(name, messages, prompt)
