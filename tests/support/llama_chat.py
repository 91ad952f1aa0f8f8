"""llama.cpp's own function for chat templates, as an oracle: built-in ones only, by name or by the marks of a text."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llamad

LIBRARY = Path(llamad.__file__).parent / "lib" / "libllama.so.0"


class Message(ctypes.Structure):
    _fields_ = (("role", ctypes.c_char_p), ("content", ctypes.c_char_p))


_llama = ctypes.CDLL(str(LIBRARY))
_llama.llama_chat_apply_template.restype = ctypes.c_int32
_llama.llama_chat_apply_template.argtypes = [
    ctypes.c_char_p,
    ctypes.POINTER(Message),
    ctypes.c_size_t,
    ctypes.c_bool,
    ctypes.c_char_p,
    ctypes.c_int32,
]
_llama.llama_chat_builtin_templates.restype = ctypes.c_int32
_llama.llama_chat_builtin_templates.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]


def applied(template: str, messages: list[dict[str, Any]], prompt: bool) -> str | None:
    """None: it does not know the template."""
    array = (Message * len(messages))(*[Message(m["role"].encode(), m["content"].encode()) for m in messages])
    buffer = ctypes.create_string_buffer(1 << 16)
    n = _llama.llama_chat_apply_template(template.encode(), array, len(messages), prompt, buffer, len(buffer))
    assert n < len(buffer)
    return buffer.raw[:n].decode() if n >= 0 else None


def names() -> list[str]:
    n = _llama.llama_chat_builtin_templates(None, 0)
    array = (ctypes.c_char_p * n)()
    _llama.llama_chat_builtin_templates(array, n)
    return sorted((one or b"").decode() for one in array)
