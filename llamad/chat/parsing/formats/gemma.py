"""Gemma 4: call:name{key:value,...} between special tokens, with a token as the quote."""

from typing import Any

from llamad.chat.parsing.syntax import CallFormat, Dialect, Malformed, Steps, Stream, close, literal
from llamad.chat.parsing.syntax.grammar import Grammar, Tool, ToolError, until
from llamad.chat.parsing.syntax.tools import types_of
from llamad.chat.schema.expressions import Chars, Expr, Literal, Reference, alt, normal, opt, rep, seq

_CALL, _CALL_END = "<|tool_call>", "<tool_call|>"
_QUOTE = '<|"|>'
_LITERALS = Dialect((_QUOTE, '"'), has_escapes=False, has_bare_keys=True)


class Gemma(CallFormat):
    name = "gemma"
    signs = (_CALL + "call:",)
    think = ("<|channel>thought", "<channel|>")
    special = (_CALL, _CALL_END, _QUOTE, "<|channel>", "<channel|>")
    markers = (_CALL,)

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from stream.blanks()
        yield from stream.expect("call:")
        name = yield from stream.name()
        yield from stream.blanks()
        if (yield from stream.peek()) != "{":
            raise Malformed
        stream.begin(name)
        yield from literal(stream, stream.arguments, _LITERALS)
        stream.end()
        yield from close(stream, _CALL_END)

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        arguments = grammar.listed(tool, ",", ":", _value)
        return seq(Literal(f"{_CALL}call:{tool.name}{{"), arguments, Literal("}" + _CALL_END))


def _value(grammar: Grammar, tool: Tool, rule: str, key: str, schema: Any) -> Expr:
    kinds = types_of(schema, tool.schema)
    if kinds and not kinds & {"string", "object", "array"}:
        return grammar.argument(tool, rule, key)
    if kinds == {"string"}:
        return seq(Literal(_QUOTE), grammar.bare_text(tool, rule, key, schema, _QUOTE))
    if tool.strict:
        where = f"{tool.where}.properties.{key}"
        raise ToolError(f"{where}: this model does not write JSON; a strict tool can only have plain values")
    return _any_value(grammar)


def _any_value(grammar: Grammar) -> Expr:
    text = grammar.rule("gemma-string", seq(Literal(_QUOTE), until(_QUOTE)))
    whole = rep(Chars(((48, 57),)), 1, 15)
    number = seq(opt(Literal("-")), whole, opt(seq(Literal("."), whole)))
    words = alt(map(Literal, ("true", "false", "null")))
    value = Reference("gemma-value")
    key = rep(Chars(normal([(48, 57), (65, 90), (95, 95), (97, 122)])), 1, 64)
    member = seq(key, Literal(":"), value)

    def several(one: Expr) -> Expr:
        return opt(seq(one, rep(seq(Literal(","), one), 0, None)))

    nested = alt(
        [seq(Literal("{"), several(member), Literal("}")), seq(Literal("["), several(value), Literal("]"))]
    )
    return grammar.rule("gemma-value", alt([text, number, words, nested]))
