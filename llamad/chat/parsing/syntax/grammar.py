"""Builds grammars of tool calls from elements that formats share: JSON objects, parameters between tags, parameters in
parentheses, text up to a tag.

Each grammar is built by one thread. Knows no format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from llamad.chat.parsing.syntax.free_text import without
from llamad.chat.parsing.syntax.tools import function_of, types_of
from llamad.chat.schema import SchemaError, to_rules
from llamad.chat.schema.expressions import (
    EMPTY,
    Chars,
    Expr,
    Literal,
    Reference,
    alt,
    normal,
    opt,
    render,
    rep,
    seq,
)

ANY_OBJECT = {"type": "object"}
NO_ARGUMENTS = {"type": "object", "properties": {}}  # for a function without `parameters`
DIGITS = rep(Chars(((48, 57),)), 1, 3)
BLANK = Reference("space")  # optional whitespace in JSON; every grammar has this rule
COMMA = seq(Literal(","), BLANK)
LINE = Literal("\n")
_SHOWN = {"integer": "number"}  # how tags that name a type write it


class ToolError(ValueError):
    """A tool, or the choice of one, cannot be turned into a grammar; the text names the field."""


class Tool:
    """A function that the request offers, with the names of its rules."""

    def __init__(self, i: int, tool: Any) -> None:
        function = function_of(tool)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise ToolError(f"tools[{i}].function.name: a function needs a name")
        self.name: str = name
        self.quoted = json.dumps(name, ensure_ascii=False)
        self.rule = f"tool-{i}"
        self.where = f"tools[{i}].function.parameters"
        self.strict = function.get("strict") is True
        given = function.get("parameters")
        self.schema = NO_ARGUMENTS if given is None else given or ANY_OBJECT

    @property
    def parameters(self) -> list[tuple[str, Any, bool]]:
        """Return the name and the schema of each parameter, and whether it is required, in the schema's order."""
        schema = self.schema if isinstance(self.schema, dict) else {}
        properties, required = schema.get("properties"), schema.get("required")
        names = required if isinstance(required, list) else []
        return [
            (key, one, key in names)
            for key, one in (properties.items() if isinstance(properties, dict) else ())
        ]


class Tags(msgspec.Struct, frozen=True):
    """How a format writes a call with one tag per parameter. `key` makes the tag from a parameter's name and type."""

    opens: Expr
    closes: Expr
    key: Callable[[str, str], str]
    after: str
    line: str = "\n"
    typed: bool = False


class Grammar:
    """The rules of one grammar. With `several`, more than one call may come. With `is_free`, the model may also write
    text, so every spelling that the parser reads is allowed."""

    def __init__(self, several: bool, is_free: bool) -> None:
        self.several = several
        self.is_free = is_free
        self._rules: dict[str, str] = {}
        breaks = seq(rep(LINE, 1, 2), rep(Chars(normal([(9, 9), (32, 32)])), 0, 20))  # as in schemas' rules
        self.rule(BLANK.name, alt([EMPTY, Literal(" "), breaks]))

    def text(self, root: Expr) -> str:
        lines = {"root": render(root), **self._rules}
        return "".join(f"{name} ::= {body}\n" for name, body in lines.items())

    def rule(self, name: str, body: Expr) -> Reference:
        self._rules[name] = render(body)
        return Reference(name)

    def value(self, schema: Any, rule: str, strict: bool) -> list[str]:
        """Add the rules of a schema, and return a warning for each constraint that was dropped."""
        rules, warnings = to_rules(schema, rule, strict=strict)
        self._rules.update(rules)
        return warnings

    def object(self, *members: tuple[str, Expr]) -> Expr:
        """Return the expression for a JSON object; keys are given with their quotes."""
        parts: list[Expr] = [Literal("{"), BLANK]
        for i, (key, value) in enumerate(members):
            parts += [COMMA] if i else []
            parts += [Literal(f"{key}:"), BLANK, value]
        return seq(*parts, BLANK, Literal("}"))

    def named(self, tool: Tool, name: str = "name", arguments: str = "arguments") -> Expr:
        """Return the expression for a call as a JSON object with two members."""
        return self.object(*self._members(tool, name, arguments))

    def unmarked(self, tool: Tool, arguments: str = "arguments") -> Expr:
        """Return the expression for a call as a JSON object without a marker; in free text also with its type first, as
        some models write it."""
        members = self._members(tool, "name", arguments)
        usual = self.object(*members)
        if not self.is_free:
            return usual
        return alt([usual, self.object(('"type"', Literal('"function"')), *members)])

    def _members(self, tool: Tool, name: str, arguments: str) -> tuple[tuple[str, Expr], ...]:
        return (f'"{name}"', Literal(tool.quoted)), (f'"{arguments}"', self.arguments(tool))

    def arguments(self, tool: Tool) -> Expr:
        """Return the rule for all arguments as a JSON object."""
        return self._schema(tool, f"{tool.rule}-arguments", ())

    def argument(self, tool: Tool, rule: str, key: str) -> Expr:
        """Return the rule for one argument as a JSON value."""
        return self._schema(tool, rule, ("properties", key))

    def _schema(self, tool: Tool, rule: str, at: Sequence[str]) -> Expr:
        if rule in self._rules:
            return Reference(rule)
        try:
            rules, _ = to_rules(tool.schema, rule, at=at, strict=tool.strict)
        except SchemaError as error:
            if not self.is_free or tool.strict:
                raise ToolError(f"{tool.where}: {error}") from None
            rules, _ = to_rules(True if at else ANY_OBJECT, rule)
        self._rules.update(rules)
        return Reference(rule)

    def tagged(self, tool: Tool, tags: Tags) -> Expr:
        """Return the expression for a call whose parameters come in the schema's order, each between tags; optional
        ones may be left out."""
        parts: list[Expr] = [tags.opens]
        for i, (key, schema, must) in enumerate(tool.parameters):
            rule = f"{tool.rule}-{i}"
            kinds = types_of(schema, tool.schema)
            options: list[Expr] = []
            if not kinds or "string" in kinds:
                text = self.bare_text(tool, rule, key, schema, tags.after)
                options.append(seq(Literal(tags.key(key, "string")), text))
            others = {_SHOWN.get(kind, kind): None for kind in sorted(kinds) if kind != "string"}
            if others and (tags.typed or not options):
                value = seq(self.argument(tool, f"{rule}-json", key), Literal(tags.after))
                options += [seq(Literal(tags.key(key, kind)), value) for kind in others]
            parameter = seq(alt(options), Literal(tags.line))
            parts.append(parameter if must else opt(parameter))
        return seq(*parts, tags.closes)

    def bare_text(self, tool: Tool, rule: str, key: str, schema: Any, end: str) -> Expr:
        """Return the expression for a string without quotes: one that the schema lists, else any text up to the end
        tag."""
        if not isinstance(schema, dict):
            schema = {}
        given = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(given, list):
            texts = [value if isinstance(value, str) else json.dumps(value) for value in given]
            return seq(alt(map(Literal, texts)), Literal(end))
        if tool.strict and schema.keys() & {"pattern", "format", "minLength", "maxLength"}:
            where = f"{tool.where}.properties.{key}"
            raise ToolError(
                f"{where}: this model writes strings without quotes; a strict tool cannot limit them"
            )
        return self.rule(rule, until(end))

    def listed(
        self, tool: Tool, comma: str, equals: str, value: Callable[[Grammar, Tool, str, str, Any], Expr]
    ) -> Expr:
        """Return the expression for the parameters of a call in the schema's order, with commas between them. `value`
        gets the name of a rule that it may use, the parameter's name and its schema."""
        rest: Expr = EMPTY  # what may follow a parameter, from the last one backwards
        first: Expr = EMPTY
        for i, (key, schema, must) in reversed(list(enumerate(tool.parameters))):
            one = seq(Literal(key + equals), value(self, tool, f"{tool.rule}-{i}", key, schema))
            begun = self.rule(f"{tool.rule}-{i}-begun", seq(one, rest))
            first = begun if must else alt([begun, first])
            more = seq(Literal(comma), begun)
            rest = more if must else alt([more, rest])
        return first


def until(tag: str) -> Expr:
    """Return the expression for any text without the tag, then the tag. If the tag's first character occurs in it
    again, the text must not contain the beginning of the tag up to there either."""
    first = tag[0]
    again_at = tag.find(first, 1)
    if again_at > 0:
        return seq(until(tag[:again_at]), Literal(tag[again_at:]))
    misses: list[Expr] = []
    begun: list[Expr] = []
    for n in range(1, len(tag)):
        misses.append(seq(Literal(tag[:n]), without(first + tag[n])))
        begun.append(Literal(tag[:n]))
    again = rep(alt(begun), 0, None)  # starts of the tag that are followed by its first character
    return seq(rep(alt([without(first), seq(again, alt(misses))]), 0, None), again, Literal(tag))
