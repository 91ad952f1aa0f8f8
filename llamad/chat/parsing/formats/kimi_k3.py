"""Kimi K3: tags of special tokens around everything, with the type of each parameter."""

from llamad.chat.parsing.syntax import Invoke
from llamad.chat.parsing.syntax.grammar import DIGITS
from llamad.chat.schema.expressions import Literal, opt, seq

_RESPONSE_END = "<|close|>response<|sep|>"


class KimiK3(Invoke):
    name = "invoke"
    variant = "kimi-k3"
    signs = ("<|open|>", "<|close|>", "<|end_of_msg|>")
    think = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")
    ignored = ("<|open|>response<|sep|>", _RESPONSE_END, "<|close|>message<|sep|>", "<|end_of_msg|>")
    special = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
    call_tag = '<|open|>call tool="'
    call_end = "<|close|>call<|sep|>"
    key_tag = '<|open|>argument key="'
    value_end = "<|close|>argument<|sep|>"
    calls_tag = "<|open|>tools<|sep|>"
    calls_end = "<|close|>tools<|sep|>"
    tag_end = "<|sep|>"
    type_attribute = "type"
    string = "string"
    line = ""
    before_calls = opt(Literal(_RESPONSE_END))  # without reasoning, the prompt has opened the response
    after_name = seq(Literal(' index="'), DIGITS, Literal('"'))
