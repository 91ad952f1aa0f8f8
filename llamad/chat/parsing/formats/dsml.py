"""DeepSeek V3.2 and V4: tags with a special token in each; an attribute says whether a parameter is a string."""

from typing import ClassVar

from llamad.chat.parsing.syntax import Invoke

_TOKEN = "｜DSML｜"


class DeepSeekV4(Invoke):
    name = "invoke"
    variant = "deepseek-v4"
    signs = ("DSML",)
    any_sign = ("dsml_token", _TOKEN)
    no_sign: ClassVar[tuple[str, ...]] = ("function_calls",)
    special = (_TOKEN,)
    call_tag = f'<{_TOKEN}invoke name="'
    call_end = f"</{_TOKEN}invoke>"
    key_tag = f'<{_TOKEN}parameter name="'
    value_end = f"</{_TOKEN}parameter>"
    calls_tag = f"<{_TOKEN}tool_calls>"
    calls_end = f"</{_TOKEN}tool_calls>"
    type_attribute = "string"
    string = "true"


class DeepSeekV32(DeepSeekV4):
    name = "invoke"
    variant = "deepseek-v3.2"
    no_sign = ()
    calls_tag = f"<{_TOKEN}function_calls>"
    calls_end = f"</{_TOKEN}function_calls>"
