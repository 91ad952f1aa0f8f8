"""Granite 3: an array of objects after a special token, or after a tag."""

from llamad.chat.parsing.syntax import CallFormat, Calls, Format, Has, Think, array_of
from llamad.chat.parsing.syntax.grammar import COMMA
from llamad.chat.schema.expressions import Literal

_CALLS = "<|tool_call|>"


class Granite(CallFormat):
    name = "granite"
    signs = (_CALLS, "<|start_of_role|>")
    special = (_CALLS,)
    markers = (_CALLS, "<tool_call>")
    ends = ("</tool_call>",)
    around = (Literal(_CALLS + "["), COMMA, Literal("]"))
    openings = ("<tool_call>[",)

    @classmethod
    def found_in(cls, has: Has, think: Think) -> Format:
        return Format(cls.name, think=think, ignored=("<response>", "</response>") if think else ())

    def written(self, calls: Calls) -> str:
        return _CALLS + array_of(calls)
