"""DeepSeek V3.2 and V4: tags with a special token in each; an attribute says whether a parameter is a string."""

from __future__ import annotations

from llamad.chat.parsing.formats.base import Has
from llamad.chat.parsing.formats.invoke import Invoke

_TOKEN = "｜DSML｜"


class DeepSeekV4(Invoke):
    name = "invoke"
    variant = "deepseek-v4"
    special = (_TOKEN,)
    call_tag = f'<{_TOKEN}invoke name="'
    call_end = f"</{_TOKEN}invoke>"
    key_tag = f'<{_TOKEN}parameter name="'
    value_end = f"</{_TOKEN}parameter>"
    calls_tag = f"<{_TOKEN}tool_calls>"
    calls_end = f"</{_TOKEN}tool_calls>"
    type_attribute = "string"
    string = "true"

    @classmethod
    def is_in(cls, has: Has) -> bool:
        return has("DSML") and (has("dsml_token") or has(_TOKEN))


class DeepSeekV32(DeepSeekV4):
    name = "invoke"
    variant = "deepseek-v3.2"
    calls_tag = f"<{_TOKEN}function_calls>"
    calls_end = f"</{_TOKEN}function_calls>"

    @classmethod
    def is_in(cls, has: Has) -> bool:
        return super().is_in(has) and has("function_calls")
