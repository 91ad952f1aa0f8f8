"""MiniCPM5."""

from __future__ import annotations

from llamad.chat.parsing.formats.invoke import Invoke


class MiniCpm5(Invoke):
    name = "invoke"
    variant = "minicpm5"
    call_tag = '<function name="'
    call_end = "</function>"
    key_tag = '<param name="'
    value_end = "</param>"
    signs = (call_tag, key_tag)
    line = ""
