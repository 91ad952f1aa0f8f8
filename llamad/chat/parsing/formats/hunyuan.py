"""Hunyuan 3: GLM's calls with a suffix in each tag, and a tag around all of them."""

from llamad.chat.parsing.formats.glm import glm_tags
from llamad.chat.parsing.syntax import Section, Steps, Stream, glm_call
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.schema.expressions import Expr

_SUFFIX = ":opensource"
_CALLS, _CALLS_END = f"<tool_calls{_SUFFIX}>", f"</tool_calls{_SUFFIX}>"
_INNER = ("tool_sep", "arg_key", "/arg_key", "arg_value", "/arg_value")


class Hunyuan(Section):
    name = "glm"
    variant = "hunyuan"
    signs = (_SUFFIX, "<tool_sep")
    think = (f"<think{_SUFFIX}>", f"</think{_SUFFIX}>")
    open = f"<tool_call{_SUFFIX}>"
    close = f"</tool_call{_SUFFIX}>"
    calls_tag = _CALLS
    calls_end = _CALLS_END
    call_tag = open
    line = "\n"
    special = (_CALLS, _CALLS_END, *(f"<{tag}{_SUFFIX}>" for tag in _INNER))

    def read_call(self, stream: Stream) -> Steps[None]:
        yield from glm_call(stream, _SUFFIX)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        opens = f"{self.open}{tool.name}<tool_sep{_SUFFIX}>\n"
        return grammar.tagged(tool, glm_tags(opens, self.close, _SUFFIX))
