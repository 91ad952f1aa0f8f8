"""The built-in templates write what llama.cpp's own function writes, for any order of roles and any text."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamad
from llamad.chat.template import CHATML, ChatTemplate, builtin, builtin_names

LIBRARY = Path(llamad.__file__).parent / "lib" / "libllama.so.0"


class Message(ctypes.Structure):
    _fields_ = (("role", ctypes.c_char_p), ("content", ctypes.c_char_p))


@pytest.fixture(scope="module")
def llama() -> Any:
    library = ctypes.CDLL(str(LIBRARY))
    library.llama_chat_apply_template.restype = ctypes.c_int32
    library.llama_chat_apply_template.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(Message),
        ctypes.c_size_t,
        ctypes.c_bool,
        ctypes.c_char_p,
        ctypes.c_int32,
    ]
    library.llama_chat_builtin_templates.restype = ctypes.c_int32
    library.llama_chat_builtin_templates.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
    return library


def applied(llama: Any, name: str, messages: list[dict[str, Any]], prompt: bool) -> str:
    array = (Message * len(messages))(*[Message(m["role"].encode(), m["content"].encode()) for m in messages])
    buffer = ctypes.create_string_buffer(1 << 16)
    n = llama.llama_chat_apply_template(name.encode(), array, len(messages), prompt, buffer, len(buffer))
    assert 0 <= n < len(buffer)
    return buffer.raw[:n].decode()


def names_of(llama: Any) -> list[str]:
    n = llama.llama_chat_builtin_templates(None, 0)
    array = (ctypes.c_char_p * n)()
    llama.llama_chat_builtin_templates(array, n)
    return sorted((one or b"").decode() for one in array)


def test_every_name_of_llama_cpp(llama: Any) -> None:
    assert builtin_names() == names_of(llama)
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
def test_ordinary_conversations(llama: Any, name: str) -> None:
    template = ChatTemplate(builtin(name) or "", bos="<s>", eos="</s>", name=name)
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
            assert got == applied(llama, name, messages, prompt)


@settings(max_examples=400)
@given(name=st.sampled_from(builtin_names()), messages=MESSAGES, prompt=st.booleans())
def test_any_conversation(llama: Any, name: str, messages: list[dict[str, Any]], prompt: bool) -> None:
    template = ChatTemplate(builtin(name) or "")
    got = template.render(messages, add_generation_prompt=prompt)
    assert got == applied(llama, name, messages, prompt)
