"""MiniCPM5: <function name="..."> with a <param name="..."> for each argument, without tags around all calls."""

from llamad.chat.parsing.syntax import Invoke
from llamad.chat.parsing.syntax.grammar import LINE
from llamad.chat.schema.expressions import EMPTY


class MiniCpm5(Invoke):
    name = "invoke"
    variant = "minicpm5"
    call_tag = '<function name="'
    call_end = "</function>"
    key_tag = '<param name="'
    value_end = "</param>"
    signs = (call_tag, key_tag)
    line = ""
    around = (EMPTY, LINE, EMPTY)
