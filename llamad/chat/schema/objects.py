"""Objects: `properties` in the schema's order, `required`, and the properties that may follow them (keys.py).

Each conversion runs on one thread. Without `additionalProperties`, listed properties are the only ones.
The first member has no comma before it. The tail after a member is a chain of optional members; a tail that several
members may begin is a rule, so that the grammar grows linearly with the properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from llamad.chat.schema.constants import spelled_text
from llamad.chat.schema.context import Context
from llamad.chat.schema.document import Node
from llamad.chat.schema.expressions import EMPTY, MOST_REPEATS, NEVER, Expr, Literal, alt, opt, rep, seq
from llamad.chat.schema.goals import Goal, schema
from llamad.chat.schema.keys import Members, extra_member
from llamad.chat.schema.layout import Chain, comma, enclosed, space

MOST_COUNTED = 4_000


class Property(msgspec.Struct, frozen=True):
    expr: Expr
    required: bool


def object_(context: Context, owns: Sequence[Node], hint: str) -> Expr:
    for node in owns:
        _refuse(context, node)
    required = {name for node in owns for name in node.value.get("required", ())}
    names = dict.fromkeys(name for node in owns for name in node.value.get("properties", ()))
    names.update(dict.fromkeys(name for node in owns for name in node.value.get("required", ())))
    members = _members(owns)
    properties = []
    for name in names:
        if _is_name(context, owns, name):
            expr = context.ask(_goal(context, members, name), name)
            member = seq(spelled_text(name), Literal(":"), space(context.rules), expr)
            properties.append(Property(member, name in required))
        elif name in required:
            return NEVER
    extra = extra_member(context, members, list(names), f"{hint}-extra")
    least, most = _bounds(context, owns, properties, extra)
    if most is not None and properties:
        inside = _counted(context, properties, extra, least, most, hint)
    elif least > 1:
        inside = _counted(context, properties, extra, least, None, hint)
    else:
        inside = _listed(context, properties, extra, least, most, hint)
    return enclosed(context.rules, "{", inside, "}")


def _members(owns: Sequence[Node]) -> Members:
    asked = any("additionalProperties" in node.value for node in owns)
    rest = next(
        (node.child("unevaluatedProperties") for node in owns if "unevaluatedProperties" in node.value), None
    )
    listed = any(node.value.keys() & {"properties", "patternProperties"} for node in owns)
    return Members(owns, asked or rest is not None or not listed, None if asked else rest)


def _goal(context: Context, members: Members, name: str) -> Goal:
    """Return everything that is required of the value of one listed property."""
    schemas: list[Node] = []
    matched: list[Node] = []
    for node in members.owns:
        here = context.checker.schemas_of(node, name)
        if here:
            matched.append(node)
            schemas += here
    return tuple(map(schema, schemas)) + members.additional(matched)


def _is_name(context: Context, owns: Sequence[Node], name: str) -> bool:
    goal = tuple(schema(node.child("propertyNames")) for node in owns if "propertyNames" in node.value)
    return context.checker.satisfies(name, goal)


def _refuse(context: Context, node: Node) -> None:
    for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
        if node.get(keyword):
            context.report.refuse(node.pointer, keyword, "it cannot be honoured; list the cases with anyOf")


def _bounds(
    context: Context, owns: Sequence[Node], properties: Sequence[Property], extra: Expr
) -> tuple[int, int | None]:
    """Return `minProperties` and `maxProperties`, without bounds that always hold or cannot be honoured.

    An additional name may occur twice and then counts once, so more than one of them cannot be required.
    """
    sure = sum(item.required for item in properties)
    least, most = 0, None
    for node in owns:
        if "minProperties" in node.value and node.get("minProperties") > sure:
            bound = int(node.get("minProperties"))
            if (extra != NEVER and bound > sure + 1) or bound * len(properties) > MOST_COUNTED:
                context.report.refuse(
                    node.pointer, "minProperties", "a grammar cannot count names that may repeat"
                )
            else:
                least = max(least, bound)
        if "maxProperties" in node.value and (extra != NEVER or node.get("maxProperties") < len(properties)):
            bound = int(node.get("maxProperties"))
            if bound > MOST_REPEATS or bound * len(properties) > MOST_COUNTED:
                context.report.refuse(node.pointer, "maxProperties", "the number is too large to count")
            else:
                most = bound if most is None else min(most, bound)
    return least, most


def _listed(
    context: Context, properties: Sequence[Property], extra: Expr, least: int, most: int | None, hint: str
) -> Expr:
    """Return the expression for the members; at least one if `least` is 1. `most` is given only if none are listed."""
    between = comma(context.rules)
    more = rep(seq(between, extra), 0, None if most is None else most - 1)
    first_required = next((i for i, item in enumerate(properties) if item.required), len(properties))
    chain = Chain(context.rules, f"{hint}-rest", more)
    options = [seq(extra, more)] if first_required == len(properties) and most != 0 else []

    def before(item: Property, tail: Expr) -> Expr:
        member = seq(between, item.expr)
        return seq(member if item.required else opt(member), tail)

    for i in reversed(range(len(properties))):
        tail = chain.expr
        if i <= first_required:
            tail = context.rules.shared(f"{hint}-rest", tail)
            options.append(seq(properties[i].expr, tail))
            chain.expr = tail
        chain.wrap(partial(before, properties[i]))
    inside = alt(reversed(options))
    return inside if least or first_required < len(properties) else opt(inside) if options else EMPTY


def _counted(
    context: Context, properties: Sequence[Property], extra: Expr, least: int, most: int | None, hint: str
) -> Expr:
    """Return the expression for the members, counted: with a rule for each property and number of members before it."""
    between = comma(context.rules)
    top = max(1, least) if most is None else most
    tails = [_ending(extra, between, count, least, most) for count in range(top + 1)]
    for item in reversed(properties):
        before = []
        for count in range(top + 1):
            full = most is not None and count >= most
            after = NEVER if full else tails[min(count + 1, top)]
            taken = seq(*[between] if count else [], item.expr, after)
            before.append(
                context.rules.shared(f"{hint}-rest", taken if item.required else alt([taken, tails[count]]))
            )
        tails = before
    return tails[0]


def _ending(extra: Expr, between: Expr, count: int, least: int, most: int | None) -> Expr:
    need = max(0, least - count)
    left = None if most is None else most - count
    if extra == NEVER:
        return NEVER if need else EMPTY
    if count:
        return rep(seq(between, extra), need, left)
    if left == 0:
        return NEVER if need else EMPTY
    members = seq(extra, rep(seq(between, extra), max(0, need - 1), None if left is None else left - 1))
    return members if need else opt(members)
