"""MiniMax M2: <invoke name="..."> with a <parameter name="..."> for each argument, between tags around all calls."""

from llamad.chat.parsing.syntax import Invoke


class MiniMax(Invoke):
    name = "invoke"
    variant = "minimax"
    call_tag = '<invoke name="'
    call_end = "</invoke>"
    key_tag = '<parameter name="'
    value_end = "</parameter>"
    calls_tag = "<minimax:tool_call>"
    calls_end = "</minimax:tool_call>"
    signs = (calls_tag,)
    special = (calls_tag, calls_end)
