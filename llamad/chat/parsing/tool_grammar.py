"""Grammars of tool calls: GBNF for the calls of one format, with arguments by their schemas, as the whole answer or
behind free text, or instead of a value. Also for what precedes an answer shaped by a schema.

Any thread, no state. A grammar allows what the format's parser reads. If the model reasons, reasoning may come first:
calls are seldom better without it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from llamad.chat.parsing.formats import Format
from llamad.chat.parsing.grammar_parts import DIGITS, breaks, gemma_value, tags_of, until
from llamad.chat.parsing.harmony import CHANNEL, CONSTRAIN, END, MESSAGE, START
from llamad.chat.parsing.literal_calls import GEMMA_CALL, GEMMA_CALL_END, GEMMA_QUOTE, PYTHON_CALLS
from llamad.chat.parsing.parameter_calls import FUNCTION, HUNYUAN
from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, free_text
from llamad.chat.parsing.syntax.tools import function_of, types_of
from llamad.chat.parsing.tag_calls import SPELLINGS
from llamad.chat.parsing.token_calls import (
    APERTUS_CALLS,
    DEEPSEEK_CALL,
    DEEPSEEK_CALLS,
    KIMI_CALL,
    KIMI_CALLS,
    MISTRAL_CALLS,
    PYTHON_TAG,
    RECIPIENT,
    SOLAR_ARGUMENTS,
    SOLAR_CALL,
    SOLAR_CALL_END,
    SOLAR_CALLS,
    SOLAR_NAME,
)
from llamad.chat.parsing.triggers import HEADERS, TO, triggers
from llamad.chat.schema import SchemaError, to_rules
from llamad.chat.schema.expressions import (
    EMPTY,
    NEVER,
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
NO_ARGUMENTS = {"type": "object", "properties": {}}  # of a function that says nothing of parameters
_NINE = rep(Chars(normal([(48, 57), (65, 90), (97, 122)])), 9, 9)
_ONE_CALL = ("llama3", "gpt-oss", "functionary")  # whose templates do not support a second call in one answer


_TEN = rep(Chars(normal([(48, 57), (97, 122)])), 10, 10)
_FINAL = seq(Literal(f"{CHANNEL}final"), opt(Literal(f" {CONSTRAIN}json")), Literal(MESSAGE))
_SHOWN = {"integer": "number"}  # in tags that name a type


class ToolError(ValueError):
    """A tool, or a choice of one, that cannot be turned into a grammar; the text names the field."""


def tool_grammar(
    format: Format,
    tools: Sequence[Any],
    *,
    choice: str,
    parallel: bool,
    starts_in_reasoning: bool = False,
) -> str:
    """GBNF for one call, or several if `parallel`, of any tool ("required") or of the named one.

    With "auto" the text is free, and may go on with such calls; a schema that no grammar can be made of then counts
    only if its tool is strict. Raises ToolError if something is wrong with the tools. If the prompt ends inside
    reasoning, the end of it comes first.
    """
    named = [_Tool(i, tool) for i, tool in enumerate(tools)]
    if choice not in ("required", "auto"):
        named = [tool for tool in named if tool.name == choice]
        if not named:
            raise ToolError(f'tool_choice: there is no tool "{choice}" in tools')
    if not named:
        raise ToolError("tools: a call is required, but no tool is given")
    grammar = _Grammar(format, parallel and choice in ("required", "auto"), choice == "auto")
    root = grammar.free if choice == "auto" else grammar.forced
    return grammar.text(root(named, starts_in_reasoning))


def answer_grammar(
    format: Format,
    tools: Sequence[Any],
    schema: Any,
    *,
    parallel: bool,
    starts_in_reasoning: bool,
    strict: bool,
) -> tuple[str, list[str]]:
    """GBNF for an answer that is a value of the schema, or calls as with "auto"; and a warning for each constraint that
    was dropped. Raises ToolError, and SchemaError about the schema."""
    grammar = _Grammar(format, parallel, True)
    root, warnings = grammar.either([_Tool(i, tool) for i, tool in enumerate(tools)], schema, strict)
    return grammar.text(seq(grammar.thought(starts_in_reasoning), root)), warnings


@lru_cache(maxsize=8)
def before_answer(format: Format, starts_in_reasoning: bool) -> str:
    """GBNF for what must precede an answer shaped by a schema: the end of reasoning that the prompt has opened,
    gpt-oss's headers; "" if nothing."""
    if format.name == "gpt-oss":
        rest = seq(until(END), Literal(f"{START}assistant"))
        thought = rest if starts_in_reasoning else opt(seq(Literal(f"{CHANNEL}analysis{MESSAGE}"), rest))
        return render(seq(thought, _FINAL))
    if format.think and starts_in_reasoning:
        return render(seq(until(format.think[1]), rep(Literal("\n"), 0, 2)))
    return ""


class _Tool:
    def __init__(self, i: int, tool: Any) -> None:
        function = function_of(tool)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise ToolError(f"tools[{i}].function.name: a function needs a name")
        self.name: str = name
        self.rule = f"tool-{i}"
        self.where = f"tools[{i}].function.parameters"
        self.strict = function.get("strict") is True
        given = function.get("parameters")
        self.schema = NO_ARGUMENTS if given is None else given or ANY_OBJECT

    @property
    def quoted(self) -> str:
        return json.dumps(self.name, ensure_ascii=False)


class _Grammar:
    def __init__(self, format: Format, parallel: bool, is_free: bool) -> None:
        self._format = format
        self._several = parallel and format.name not in _ONE_CALL and format.variant != "object"
        self._is_free = is_free
        self._rules: dict[str, str] = {}
        self._blank = self._rule("space", alt([EMPTY, Literal(" "), breaks()]))

    def text(self, root: Expr) -> str:
        lines = {"root": render(root), **self._rules}
        return "".join(f"{name} ::= {body}\n" for name, body in lines.items())

    def forced(self, tools: list[_Tool], starts_in_reasoning: bool) -> Expr:
        return seq(self.thought(starts_in_reasoning), self._rule("calls", self._calls(tools)))

    def free(self, tools: list[_Tool], starts_in_reasoning: bool) -> Expr:
        """Thoughts, text, and calls from their first mark on."""
        calls = self._rule("calls", self._calls(tools))
        anywhere: Expr = calls
        at_start: Expr = NEVER
        if self._format.name in ("llama3", "generic", "gpt-oss", "functionary"):
            anywhere = self._marked(tools)
            at_start = calls if not starts_in_reasoning or self._format.name != "gpt-oss" else NEVER
        marks = triggers(self._format, [tool.name for tool in tools])
        if self._format.think:
            opens, closes = self._format.think
            marks.append(Mark((BLANKS, opens), at_start=True, then=Reference("thinking")))
            thought = free_text("thinking", [Mark((closes,), then=Reference("free"))], self._rule)
        begun = free_text("free", marks, self._rule, anywhere=anywhere, at_start=at_start)
        return thought if self._format.think and starts_in_reasoning else begun

    def either(self, tools: list[_Tool], schema: Any, strict: bool) -> tuple[Expr, list[str]]:
        """Calls, in all their forms, or a value."""
        calls = self._rule("calls", self._calls(tools))
        rules, warnings = to_rules(schema, "content", strict=strict)
        self._rules.update(rules)
        content = Reference("content")
        value = seq(_FINAL, content) if self._format.name == "gpt-oss" else content
        return alt([calls, self._marked(tools), value]), warnings

    def _calls(self, tools: list[_Tool]) -> Expr:
        for tool in tools:
            self._rule(tool.rule, self._call(tool))
        one = self._rule("call", alt(Reference(tool.rule) for tool in tools))
        first, between, last = self._around()
        more = rep(seq(between, one), 0, None) if self._several else EMPTY
        calls = seq(first, one, more, last)
        if not self._is_free:
            return calls
        match self._format.name:  # what else the parser takes for calls
            case "deepseek" | "kimi-k2" | "solar" | "invoke":
                return alt([calls, seq(one, more)])
            case "glm" if self._format.variant:
                return alt([calls, seq(one, more)])
            case "granite":
                return alt([calls, seq(Literal("<tool_call>["), one, more, last)])
            case "generic":
                return self._bare_calls(tools, one)
            case "gpt-oss":
                return seq(Literal(TO), alt(self._recipient(tool, f"{CHANNEL}commentary") for tool in tools))
        return calls

    def _bare_calls(self, tools: list[_Tool], one: Expr) -> Expr:
        """{"tool_call":…}, {"tool_calls":[…]}, or the calls alone."""
        listed = seq(Literal(","), self._blank)
        several = seq(one, rep(seq(listed, one), 0, None) if self._several else EMPTY)
        array = seq(Literal("["), self._blank, several, self._blank, Literal("]"))
        single = self._object((('"tool_call"', one),))
        return alt([single, self._object((('"tool_calls"', array),)), one, array])

    def _marked(self, tools: list[_Tool]) -> Expr:
        """Calls that may come anywhere, of formats whose usual calls are the whole answer."""
        match self._format.name:
            case "llama3":
                tagged = [
                    seq(Literal(f"{FUNCTION}{tool.name}>"), self._arguments(tool), Literal("</function>"))
                    for tool in tools
                ]
                found = alt([seq(Literal(PYTHON_TAG), Reference("call")), *tagged])
            case "functionary":
                found = seq(Literal(RECIPIENT), Reference("call"))
            case "gpt-oss":
                usual = alt(map(Literal, HEADERS[:2]))
                before = seq(usual, alt(self._recipient(tool, "") for tool in tools))
                found = alt([before, seq(Literal(f"{START}assistant"), Reference("calls"))])
            case _:
                return NEVER
        return self._rule("marked", found)

    def _recipient(self, tool: _Tool, channel: str) -> Expr:
        kind = opt(alt([Literal(f" {CONSTRAIN}json"), Literal(" json")]))
        return seq(Literal(tool.name + channel), kind, Literal(MESSAGE), self._arguments(tool))

    def _rule(self, name: str, body: Expr) -> Reference:
        self._rules[name] = render(body)
        return Reference(name)

    def _around(self) -> tuple[Expr, Expr, Expr]:
        """The text before the first call, between two, and after the last."""
        format = self._format
        listed = seq(Literal(","), self._blank)
        match format.name:
            case "glm" if format.variant == "hunyuan":
                line = Literal("\n")
                return Literal(f"<tool_calls{HUNYUAN}>\n"), line, Literal(f"\n</tool_calls{HUNYUAN}>")
            case "hermes" | "qwen3-coder" | "glm":
                return EMPTY, Literal("\n"), EMPTY
            case "mistral" if not format.variant:
                return Literal(MISTRAL_CALLS + "["), listed, Literal("]")
            case "deepseek":
                between = Literal("\n") if format.variant else EMPTY
                opens = alt(map(Literal, DEEPSEEK_CALLS)) if self._is_free else Literal(DEEPSEEK_CALLS[0])
                return opens, between, Literal("<｜tool▁calls▁end｜>")
            case "kimi-k2":
                return Literal(KIMI_CALLS), EMPTY, Literal("<|tool_calls_section_end|>")
            case "granite":
                return Literal("<|tool_call|>["), listed, Literal("]")
            case "invoke":
                one = SPELLINGS[format.variant]
                if not one.open:
                    return EMPTY, Literal("\n"), EMPTY
                k3 = format.variant == "kimi-k3"  # without reasoning, its prompt has opened the response
                left = opt(Literal("<|close|>response<|sep|>")) if k3 else EMPTY
                return (
                    seq(left, Literal(one.open + one.line)),
                    Literal(one.line),
                    Literal(one.line + one.close),
                )
            case "python":
                return Literal(PYTHON_CALLS[0] + "["), Literal(", "), Literal("]" + PYTHON_CALLS[1])
            case "apertus":
                return Literal(APERTUS_CALLS[0] + "["), listed, Literal("]" + APERTUS_CALLS[1])
            case "solar":
                return Literal(SOLAR_CALLS), EMPTY, EMPTY
            case "list" if format.variant == "object":
                return Literal(format.open), EMPTY, EMPTY
            case "list" if format.variant == "fenced":
                return Literal("Action:\n```json\n["), listed, seq(self._blank, Literal("]\n```"))
            case "list" | "command-r":
                blank = self._blank
                return seq(Literal(format.open + "["), blank), listed, seq(blank, Literal("]" + format.close))
            case "generic" if self._several and not self._is_free:
                opens = seq(Literal("{"), self._blank, Literal('"tool_calls":'), self._blank, Literal("["))
                return opens, listed, seq(self._blank, Literal("]"), self._blank, Literal("}"))
        return EMPTY, EMPTY, EMPTY

    def _call(self, tool: _Tool) -> Expr:
        format = self._format
        if format.name in ("qwen3-coder", "glm", "invoke"):
            return self._written_bare(tool)
        if format.name in ("gemma", "python"):
            return self._literal(tool)
        arguments = self._arguments(tool)
        name = Literal(tool.quoted)
        usual = (('"name"', name), ('"arguments"', arguments))
        match format.name:
            case "hermes":
                line = self._blank if self._is_free else Literal("\n")
                return seq(Literal("<tool_call>"), line, self._object(usual), line, Literal("</tool_call>"))
            case "llama3":
                return self._bare_object((('"name"', name), ('"parameters"', arguments)))
            case "mistral":
                return self._mistral(tool, usual, arguments)
            case "deepseek":
                before, after = (
                    (f"function<｜tool▁sep｜>{tool.name}\n```json\n", "\n```")
                    if format.variant
                    else (f"{tool.name}<｜tool▁sep｜>", "")
                )
                return seq(Literal(DEEPSEEK_CALL + before), arguments, Literal(after + "<｜tool▁call▁end｜>"))
            case "kimi-k2":
                id = seq(Literal(f"functions.{tool.name}:"), DIGITS)
                begin = Literal("<|tool_call_argument_begin|>")
                return seq(Literal(KIMI_CALL), id, begin, arguments, Literal("<|tool_call_end|>"))
            case "gpt-oss":
                header = f"{CHANNEL}commentary to=functions.{tool.name}"
                return seq(Literal(header), opt(Literal(f" {CONSTRAIN}json")), Literal(MESSAGE), arguments)
            case "command-r":
                number = seq(Literal('"'), DIGITS, Literal('"'))
                members = (('"tool_call_id"', number), ('"tool_name"', name), ('"parameters"', arguments))
                return self._object(members)
            case "apertus":
                return self._object(((tool.quoted, arguments),))
            case "solar":
                named = Literal(SOLAR_NAME + tool.name + SOLAR_ARGUMENTS)
                return seq(Literal(SOLAR_CALL), _TEN, named, arguments, Literal(SOLAR_CALL_END))
            case "functionary":
                return seq(Literal(tool.name + "\n"), arguments)
            case "list" if format.variant == "fenced":
                return self._object((('"tool_name"', name), ('"parameters"', arguments)))
            case "generic" if not self._several and not self._is_free:
                return self._object((('"tool_call"', self._object(usual)),))
            case "generic":
                return self._bare_object(usual)
        return self._object(usual)

    def _mistral(self, tool: _Tool, usual: tuple[tuple[str, Expr], ...], arguments: Expr) -> Expr:
        if not self._format.variant:
            return self._object((*usual, ('"id"', seq(Literal('"'), _NINE, Literal('"')))))
        id = seq(Literal("[CALL_ID]"), _NINE) if self._format.variant == "call_id" else EMPTY
        return seq(Literal(MISTRAL_CALLS + tool.name), id, Literal("[ARGS]"), arguments)

    def _bare_object(self, members: tuple[tuple[str, Expr], ...]) -> Expr:
        """Also with its type first, as some models write it."""
        usual = self._object(members)
        if not self._is_free:
            return usual
        return alt([usual, self._object((('"type"', Literal('"function"')), *members))])

    def _object(self, members: Sequence[tuple[str, Expr]]) -> Expr:
        parts: list[Expr] = [Literal("{"), self._blank]
        for i, (key, value) in enumerate(members):
            parts += [Literal(","), self._blank] if i else []
            parts += [Literal(f"{key}:"), self._blank, value]
        return seq(*parts, self._blank, Literal("}"))

    def _arguments(self, tool: _Tool) -> Expr:
        return self._schema(tool, f"{tool.rule}-arguments", ())

    def _schema(self, tool: _Tool, rule: str, at: Sequence[str]) -> Expr:
        if rule in self._rules:
            return Reference(rule)
        try:
            rules, _ = to_rules(tool.schema, rule, at=at, strict=tool.strict)
        except SchemaError as error:
            if not self._is_free or tool.strict:
                raise ToolError(f"{tool.where}: {error}") from None
            rules, _ = to_rules(True if at else ANY_OBJECT, rule)
        self._rules.update(rules)
        return Reference(rule)

    def _parameters(self, tool: _Tool) -> list[tuple[str, Any, bool]]:
        """Name, schema, whether it is required; in the schema's order."""
        schema = tool.schema if isinstance(tool.schema, dict) else {}
        properties, required = schema.get("properties"), schema.get("required")
        names = required if isinstance(required, list) else []
        return [
            (key, one, key in names)
            for key, one in (properties.items() if isinstance(properties, dict) else ())
        ]

    def _written_bare(self, tool: _Tool) -> Expr:
        """Parameters in the schema's order, each between tags; optional ones may be left out."""
        tags = tags_of(self._format, tool.name)
        opens: Expr = tags.opens
        closes: Expr = Literal(tags.closes)
        if self._is_free and self._format.name == "qwen3-coder":  # often without the tags around it
            seed = "seed:" if self._format.variant else ""
            opens = seq(opt(Literal(f"<{seed}tool_call>\n")), Literal(f"{FUNCTION}{tool.name}>\n"))
            closes = seq(Literal("</function>"), opt(Literal(f"\n</{seed}tool_call>")))
        parts: list[Expr] = [opens]
        for i, (key, schema, must) in enumerate(self._parameters(tool)):
            rule = f"{tool.rule}-{i}"
            kinds = types_of(schema, tool.schema)
            options: list[Expr] = []
            if not kinds or "string" in kinds:
                text = self._bare_text(tool, rule, key, schema, tags.after)
                options.append(seq(Literal(tags.key(key, "string")), text))
            others = {_SHOWN.get(kind, kind): None for kind in sorted(kinds) if kind != "string"}
            if others and (tags.typed or not options):
                value = seq(self._schema(tool, f"{rule}-json", ("properties", key)), Literal(tags.after))
                options += [seq(Literal(tags.key(key, kind)), value) for kind in others]
            part = seq(alt(options), Literal(tags.line))
            parts.append(part if must else opt(part))
        return seq(*parts, closes)

    def _bare_text(self, tool: _Tool, rule: str, key: str, schema: Any, end: str) -> Expr:
        """Strings are written bare: those that a schema lists, else any text up to the end tag."""
        if not isinstance(schema, dict):
            schema = {}
        given = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(given, list):
            texts = [value if isinstance(value, str) else json.dumps(value) for value in given]
            return seq(alt(map(Literal, texts)), Literal(end))
        if tool.strict and schema.keys() & {"pattern", "format", "minLength", "maxLength"}:
            where = f"{tool.where}.properties.{key}"
            raise ToolError(f"{where}: this model writes strings bare; a strict tool cannot limit them")
        return self._rule(rule, until(end))

    def _literal(self, tool: _Tool) -> Expr:
        """name(key=value, ...) or Gemma's call:name{key:value,...}; parameters in the schema's order."""
        is_gemma = self._format.name == "gemma"
        opens = f"{GEMMA_CALL}call:{tool.name}{{" if is_gemma else f"{tool.name}("
        closes = "}" + GEMMA_CALL_END if is_gemma else ")"
        comma = Literal("," if is_gemma else ", ")
        rest: Expr = EMPTY  # what may follow a parameter, from the last one backwards
        first: Expr = EMPTY
        for i, (key, schema, must) in reversed(list(enumerate(self._parameters(tool)))):
            one = seq(Literal(key + (":" if is_gemma else "=")), self._literal_value(tool, i, key, schema))
            begun = self._rule(f"{tool.rule}-{i}-begun", seq(one, rest))
            first = begun if must else alt([begun, first])
            rest = seq(comma, begun) if must else alt([seq(comma, begun), rest])
        return seq(Literal(opens), first, Literal(closes))

    def _literal_value(self, tool: _Tool, i: int, key: str, schema: Any) -> Expr:
        kinds = types_of(schema, tool.schema)
        if self._format.name == "python":
            if kinds == {"boolean"}:
                return alt([Literal("True"), Literal("False")])
            return self._schema(tool, f"{tool.rule}-{i}", ("properties", key))
        if kinds and not kinds & {"string", "object", "array"}:
            return self._schema(tool, f"{tool.rule}-{i}", ("properties", key))
        if kinds != {"string"}:
            if tool.strict:
                where = f"{tool.where}.properties.{key}"
                raise ToolError(
                    f"{where}: this model does not write JSON; a strict tool can only have plain values"
                )
            return gemma_value(self._rule)
        end = GEMMA_QUOTE
        return seq(Literal(end), self._bare_text(tool, f"{tool.rule}-{i}", key, schema, end))

    def thought(self, started: bool) -> Expr:
        if self._format.name == "gpt-oss":
            opens, closes = f"{CHANNEL}analysis{MESSAGE}", END
            after: Expr = Literal(f"{START}assistant")
        elif self._format.think:
            (opens, closes), after = self._format.think, rep(Literal("\n"), 0, 2)
        else:
            return EMPTY
        rest = seq(self._rule("thought", until(closes)), after)
        return rest if started else opt(seq(rep(Literal("\n"), 0, 1), Literal(opens), rest))
