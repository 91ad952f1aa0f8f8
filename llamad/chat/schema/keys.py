"""Property names that the schema does not list: which ones are allowed, and the schemas of their values.

Each conversion runs on one thread. Names are partitioned by the `patternProperties` that they match, so that each gets
exactly the schemas that apply to it. Listed names are excluded, in any spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import msgspec

from llamad.chat.schema import automaton as automata
from llamad.chat.schema.automaton import Automaton, TooLarge
from llamad.chat.schema.context import Context
from llamad.chat.schema.document import Node
from llamad.chat.schema.expressions import NEVER, Expr, Literal, alt, seq
from llamad.chat.schema.goals import Goal, schema
from llamad.chat.schema.layout import space
from llamad.chat.schema.quoted import of_automaton
from llamad.chat.schema.strings import Pattern, Text

MOST_PATTERNS = 4
MOST_NAME_STATES = 15_000


class Members(msgspec.Struct, frozen=True):
    """What several object schemas together say about members that they do not list by name."""

    owns: Sequence[Node]
    is_open: bool  # whether names that no keyword covers are allowed
    rest: Node | None  # `unevaluatedProperties` of the outermost schema

    def additional(self, matched: Iterable[Node]) -> Goal:
        """Return the goal of a name that `properties` and `patternProperties` of the `matched` schemas cover, by the
        `additionalProperties` of the others."""
        spoken = {node.pointer for node in matched}
        goal = [
            schema(node.child("additionalProperties"))
            for node in self.owns
            if "additionalProperties" in node.value and node.pointer not in spoken
        ]
        return tuple(goal) if goal or spoken or self.rest is None else (schema(self.rest),)


def extra_member(context: Context, members: Members, names: Sequence[str], hint: str) -> Expr:
    """Return the expression for one member with a name that is not listed, or NEVER if there can be none."""
    patterns = _patterns(context, members.owns)
    names_text, names_known = _names_text(context, members.owns)
    if not patterns and not members.is_open:
        return NEVER
    if not patterns and names_text.is_free and names_known is None and not names:
        return _member(context, context.strings.any_string(), members.additional(()), hint)
    options = []
    try:
        for chosen, key in _regions(context, patterns, names, names_text, names_known):
            if not chosen and not members.is_open:
                continue
            goal = tuple(schema(child) for _, child, _ in chosen) + members.additional(
                node for node, _, _ in chosen
            )
            options.append(_member(context, of_automaton(context.rules, key, f"{hint}-key"), goal, hint))
    except TooLarge:
        _refuse_names(context, members.owns)
        return _member(context, context.strings.any_string(), members.additional(()), hint)
    return context.rules.shared(hint, alt(options))


def _member(context: Context, key: Expr, goal: Goal, hint: str) -> Expr:
    return seq(key, Literal(":"), space(context.rules), context.ask(goal, f"{hint}-value"))


# The object schema, the schema of the members that match, and the parsed pattern.
PatternSchema = tuple[Node, Node, list[Pattern]]


def _patterns(context: Context, owns: Iterable[Node]) -> list[PatternSchema]:
    patterns: list[PatternSchema] = []
    for node in owns:
        for pattern in node.value.get("patternProperties", ()):
            parsed = context.strings.patterns(node.pointer, "patternProperties", pattern)
            if len(patterns) == MOST_PATTERNS:
                reason = f"there are more than {MOST_PATTERNS} patterns"
                context.report.refuse(node.pointer, "patternProperties", reason)
            elif parsed:
                patterns.append((node, node.child("patternProperties", pattern), parsed))
    return patterns


def _names_text(context: Context, owns: Iterable[Node]) -> tuple[Text, list[str] | None]:
    """Return what `propertyNames` requires, and the names that it lists, or None if it lists none."""
    goal = tuple(schema(node.child("propertyNames")) for node in owns if "propertyNames" in node.value)
    flat = context.flattener.flatten(goal)
    if flat is None:
        return Text(), []
    nodes = [atom.node for atom in flat if atom.kind == "own"]
    listed = next((node for node in nodes if "enum" in node.value or "const" in node.value), None)
    if listed is not None:
        values = listed.get("enum") if "enum" in listed.value else [listed.get("const")]
        return Text(), [v for v in values if isinstance(v, str) and context.checker.satisfies(v, goal)]
    if any(node.value.keys() & {"not", "if"} for node in nodes) or any(atom.kind != "own" for atom in flat):
        asking = next(node for node in owns if "propertyNames" in node.value)
        context.report.refuse(
            asking.pointer, "propertyNames", "a choice or a negation of names cannot be honoured"
        )
        return Text(), None
    if any("type" in node.value and not _may_be_string(node) for node in nodes):
        return Text(), []
    return context.strings.gather(nodes), None


def _may_be_string(node: Node) -> bool:
    kinds = node.get("type")
    return kinds == "string" or "string" in kinds


def _regions(
    context: Context, patterns: list[PatternSchema], names: Sequence[str], text: Text, known: list[str] | None
) -> Iterator[tuple[list[PatternSchema], Automaton]]:
    """Yield each set of patterns, with the names that match exactly these and are not listed."""
    spend = context.report.spend
    if sum(map(len, names)) > MOST_NAME_STATES:
        raise TooLarge
    base: list[tuple[Automaton, bool]] = [(automata.of_texts(names), False)]
    if known is not None:
        base.append((automata.of_texts(known), True))
    elif not text.is_free:
        base.append((context.strings.automaton(text), True))
    each = [context.strings.automaton(Text(parsed)) for _, _, parsed in patterns]
    limit = automata.MOST_STATES if patterns or not text.is_free else MOST_NAME_STATES
    for flags in product((False, True), repeat=len(patterns)):
        region = automata.together([*base, *zip(each, flags, strict=True)], spend, limit)
        if not region.is_empty:
            yield [pattern for pattern, flag in zip(patterns, flags, strict=True) if flag], region


def _refuse_names(context: Context, owns: Iterable[Node]) -> None:
    for node in owns:
        for keyword in ("patternProperties", "propertyNames", "additionalProperties"):
            if keyword in node.value:
                context.report.refuse(
                    node.pointer, keyword, "the property names are too complex for a grammar"
                )
