"""Hunyuan 3: GLM's calls with a suffix in each tag, and a tag around all of them."""

from __future__ import annotations

from llamad.chat.parsing.formats.base import CallFormat
from llamad.chat.parsing.syntax.grammar import LINE, Grammar, Tags, Tool
from llamad.chat.parsing.syntax.json_calls import close, series
from llamad.chat.parsing.syntax.parameter_calls import glm_call
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Steps
from llamad.chat.schema.expressions import Expr, Literal

_SUFFIX = ":opensource"
_CALLS, _CALLS_END = f"<tool_calls{_SUFFIX}>", f"</tool_calls{_SUFFIX}>"
_SEP = f"<tool_sep{_SUFFIX}>"
_KEY, _KEY_END = f"<arg_key{_SUFFIX}>", f"</arg_key{_SUFFIX}>"
_VALUE, _VALUE_END = f"<arg_value{_SUFFIX}>", f"</arg_value{_SUFFIX}>"


class Hunyuan(CallFormat):
    name = "glm"
    variant = "hunyuan"
    signs = (_SUFFIX, "<tool_sep")
    think = (f"<think{_SUFFIX}>", f"</think{_SUFFIX}>")
    open = f"<tool_call{_SUFFIX}>"
    close = f"</tool_call{_SUFFIX}>"
    special = (_CALLS, _CALLS_END, _SEP, _KEY, _KEY_END, _VALUE, _VALUE_END)
    markers = (_CALLS, open)
    may_be_bare = True

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from series(stream, marker, self.open, lambda stream: glm_call(stream, _SUFFIX))
        yield from close(stream, _CALLS_END)

    def around(self, grammar: Grammar) -> tuple[Expr, Expr, Expr]:
        return Literal(f"{_CALLS}\n"), LINE, Literal(f"\n{_CALLS_END}")

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        tags = Tags(
            Literal(f"{self.open}{tool.name}{_SEP}\n"),
            Literal(self.close),
            lambda key, _: f"{_KEY}{key}{_KEY_END}\n{_VALUE}",
            _VALUE_END,
        )
        return grammar.tagged(tool, tags)
