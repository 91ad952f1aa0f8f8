"""Grammars of tool calls: GBNF for the calls of one format, whose arguments follow their schemas. The calls are the
whole answer, come after free text, or replace a value. Also GBNF for the text before an answer that follows a schema.

Any thread, no state. A grammar allows what the format's parser reads. If the model reasons, reasoning may come first,
because calls are seldom better without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from llamad.chat.parsing.formats import Format
from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, free_text
from llamad.chat.parsing.syntax.grammar import Grammar, Tool, ToolError, until
from llamad.chat.schema.expressions import EMPTY, NEVER, Expr, Literal, Reference, alt, opt, render, rep, seq


def tool_grammar(
    format: Format, tools: Sequence[Any], *, choice: str, parallel: bool, starts_in_reasoning: bool = False
) -> str:
    """Return GBNF for one call, or several if `parallel`, of any tool ("required") or of the named one.

    With "auto" the text is free and may continue with such calls; a schema that cannot become a grammar is then an
    error only if its tool is strict. If the prompt ends inside reasoning, the end of the reasoning comes first. Raises
    ToolError if something is wrong with the tools.
    """
    named = [Tool(i, tool) for i, tool in enumerate(tools)]
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
    """Return GBNF for an answer that is a value of the schema, or calls as with "auto", and a warning for each
    constraint that was dropped. Raises ToolError, and SchemaError about the schema."""
    grammar = _Grammar(format, parallel, True)
    root, warnings = grammar.either([Tool(i, tool) for i, tool in enumerate(tools)], schema, strict)
    return grammar.text(seq(grammar.thought(starts_in_reasoning), root)), warnings


@lru_cache(maxsize=8)
def before_answer(format: Format, starts_in_reasoning: bool) -> str:
    """Return GBNF for the text that must precede an answer that follows a schema: the end of reasoning that the prompt
    has opened, or gpt-oss's headers. Return "" if there is none."""
    calls = format.calls
    opens, closes, _ = calls.thought_tags
    thought: Expr = EMPTY
    if opens:
        rest = seq(until(closes), calls.after_thought)
        thought = rest if starts_in_reasoning else opt(seq(Literal(opens), rest))
    if calls.before_value == EMPTY and not (starts_in_reasoning and opens):
        return ""
    return render(seq(thought, calls.before_value))


class _Grammar(Grammar):
    """The rules of an answer in one format."""

    def __init__(self, format: Format, parallel: bool, is_free: bool) -> None:
        self._format = format
        self._own = format.calls
        super().__init__(parallel and self._own.has_several, is_free)

    def forced(self, tools: list[Tool], starts_in_reasoning: bool) -> Expr:
        return seq(self.thought(starts_in_reasoning), self._calls(tools))

    def free(self, tools: list[Tool], starts_in_reasoning: bool) -> Expr:
        """Return the rule for reasoning, free text, and calls from their first marker on."""
        calls, think = self._calls(tools), self._format.think
        anywhere: Expr = calls
        at_start: Expr = NEVER
        if self._own.starts_answer:
            anywhere = self._marked(tools)
            at_start = calls if think or not starts_in_reasoning else NEVER
        marks = self._own.triggers([tool.name for tool in tools])
        if think:
            marks.append(Mark((BLANKS, think[0]), at_start=True, then=Reference("thinking")))
            thought = free_text("thinking", [Mark((think[1],), then=Reference("free"))], self.rule)
        begun = free_text("free", marks, self.rule, anywhere=anywhere, at_start=at_start)
        return thought if think and starts_in_reasoning else begun

    def either(self, tools: list[Tool], schema: Any, strict: bool) -> tuple[Expr, list[str]]:
        """Return the rule for calls, in all their forms, or a value; and the warnings about the schema."""
        calls = self._calls(tools)
        warnings = self.value(schema, "content", strict)
        value = seq(self._own.before_value, Reference("content"))
        return alt([calls, self._marked(tools), value]), warnings

    def _calls(self, tools: list[Tool]) -> Reference:
        for tool in tools:
            self.rule(tool.rule, self._own.call(self, tool))
        self.rule("call", alt(Reference(tool.rule) for tool in tools))
        return self.rule("calls", self._own.calls(self, tools))

    def _marked(self, tools: list[Tool]) -> Expr:
        marked = self._own.marked_calls(self, tools)
        return NEVER if marked == NEVER else self.rule("marked", marked)

    def thought(self, started: bool) -> Expr:
        opens, closes, _ = self._own.thought_tags
        if not opens:
            return EMPTY
        rest = seq(self.rule("thought", until(closes)), self._own.after_thought)
        return rest if started else opt(seq(rep(Literal("\n"), 0, 1), Literal(opens), rest))
