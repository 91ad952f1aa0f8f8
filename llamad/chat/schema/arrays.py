"""Arrays: `items`, `prefixItems` (and draft 7's list of items), `minItems`, `maxItems`.

Each conversion runs on one thread. Each element's schemas become a goal for the converter; nothing is converted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llamad.chat.schema.document import Node
from llamad.chat.schema.errors import Report
from llamad.chat.schema.expressions import EMPTY, MOST_REPEATS, NEVER, Expr, opt, rep, seq
from llamad.chat.schema.goals import Goal, schema
from llamad.chat.schema.layout import Chain, comma, enclosed
from llamad.chat.schema.rules import Rules

Ask = Callable[[Goal, str], Expr]


def leading(node: Node) -> list[Node]:
    """Return the schemas of the first elements, one for each."""
    keyword = "prefixItems" if "prefixItems" in node.value else "items"
    items = node.get(keyword)
    return [node.child(keyword, i) for i in range(len(items))] if isinstance(items, list) else []


def following(node: Node) -> Node | None:
    """Return the schema of the elements after the leading ones."""
    if isinstance(node.get("items"), list):
        keyword = "additionalItems"
    else:
        keyword = "items"
    if keyword not in node.value and "unevaluatedItems" in node.value:
        keyword = "unevaluatedItems"
    return node.child(keyword) if keyword in node.value else None


def array(rules: Rules, report: Report, owns: Sequence[Node], ask: Ask, hint: str) -> Expr:
    for node in owns:
        if node.get("uniqueItems") and node.value.get("maxItems", 2) > 1:
            report.refuse(node.pointer, "uniqueItems", "a grammar cannot compare the elements")
    least, most = counts(report, owns)
    if most is not None and most < least:
        return NEVER
    goals: list[Goal] = []
    for i in range(max((len(leading(node)) for node in owns), default=0)):
        goals.append(element(owns, i))
    items = [ask(goal, f"{hint}-{i}") for i, goal in enumerate(goals[:most])]
    rest = (
        NEVER if most is not None and most <= len(items) else ask(element(owns, len(goals)), f"{hint}-item")
    )
    return enclosed(rules, "[", _elements(rules, items, rest, least, most, hint), "]")


def counts(report: Report, owns: Sequence[Node]) -> tuple[int, int | None]:
    """Return the least and the most number of elements."""
    for node in owns:
        if "contains" in node.value and (node.get("minContains") != 0 or "maxContains" in node.value):
            report.refuse(node.pointer, "contains", "a grammar cannot count the elements that match")
    least = max((int(node.get("minItems")) for node in owns if _counts(report, node, "minItems")), default=0)
    most = min(
        (int(node.get("maxItems")) for node in owns if _counts(report, node, "maxItems")), default=None
    )
    return least, most


def element(owns: Sequence[Node], i: int) -> Goal:
    """Return the goal of the i-th element."""
    schemas: list[Node] = []
    for node in owns:
        first = leading(node)
        after = following(node)
        if i < len(first):
            schemas.append(first[i])
        elif after is not None:
            schemas.append(after)
    return tuple(map(schema, schemas))


def _elements(rules: Rules, items: list[Expr], rest: Expr, least: int, most: int | None, hint: str) -> Expr:
    between = comma(rules)
    left = None if most is None else most - len(items)
    if not items:
        more = rep(seq(between, rest), max(0, least - 1), None if left is None else left - 1)
        elements = EMPTY if most == 0 else seq(rest, more)
        return elements if least else opt(elements)
    chain = Chain(rules, f"{hint}-rest", rep(seq(between, rest), max(0, least - len(items)), left))

    def before(i: int, tail: Expr) -> Expr:
        here = seq(*[between] if i else [], items[i], tail)
        return here if i < least else opt(here)

    for i in reversed(range(len(items))):
        chain.wrap(partial(before, i))
    return chain.expr


def _counts(report: Report, node: Node, keyword: str) -> bool:
    if keyword not in node.value:
        return False
    if node.get(keyword) <= MOST_REPEATS:
        return True
    report.refuse(node.pointer, keyword, f"counts above {MOST_REPEATS} cannot be honoured")
    return False
