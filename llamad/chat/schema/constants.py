"""`enum` and `const`: grammars of fixed values.

Each conversion runs on one thread. check.py decides which values are allowed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from typing import Any

from llamad.chat.schema.errors import Report
from llamad.chat.schema.expressions import EMPTY, NESTING, Expr, Literal, Reference, alt, seq
from llamad.chat.schema.layout import comma, enclosed, space
from llamad.chat.schema.rules import Rules


def of_values(rules: Rules, report: Report, values: Iterable[Any], hint: str) -> Expr:
    texts: dict[str, None] = {}
    others: list[Expr] = []
    for value in values:
        if isinstance(value, dict | list):
            others.append(_of_value(rules, value))
        else:
            texts.update(dict.fromkeys(spellings(value)))
    return alt([_of_texts(rules, report, list(texts), hint), *others]) if texts else alt(others)


def spellings(value: Any) -> list[str]:
    """Return the ways to write a scalar: beyond ASCII raw or escaped, and 1.0 also as 1."""
    texts = [json.dumps(value, ensure_ascii=False), json.dumps(value)]
    if isinstance(value, float) and value.is_integer():
        texts.append(str(int(value)))
    return list(dict.fromkeys(texts))


def spelled_text(value: Any) -> Expr:
    return alt(map(Literal, spellings(value)))


def _of_value(rules: Rules, value: Any) -> Expr:
    if isinstance(value, dict):
        members = [
            seq(spelled_text(k), Literal(":"), space(rules), _of_value(rules, v)) for k, v in value.items()
        ]
        return enclosed(rules, "{", _joined(rules, members), "}")
    if isinstance(value, list):
        return enclosed(rules, "[", _joined(rules, [_of_value(rules, item) for item in value]), "]")
    return spelled_text(value)


def _joined(rules: Rules, items: list[Expr]) -> Expr:
    return seq(*(seq(comma(rules), item) if i else item for i, item in enumerate(items)))


def _of_texts(rules: Rules, report: Report, texts: list[str], hint: str) -> Expr:
    """Return the rule for exactly these texts, with common prefixes written once."""
    name = rules.reserve(hint)
    queue = deque([(name, texts)])
    while queue:
        here, rest = queue.popleft()
        rules.define(here, _branches(rules, report, rest, hint, 0, queue))
    return Reference(name)


def _branches(
    rules: Rules, report: Report, texts: list[str], hint: str, depth: int, queue: deque[tuple[str, list[str]]]
) -> Expr:
    report.spend(len(texts))
    if len(texts) == 1:
        return Literal(texts[0])
    if depth == NESTING:
        name = rules.reserve(f"{hint}-more")
        queue.append((name, texts))
        return Reference(name)
    by_first: dict[str, list[str]] = {}
    for text in texts:
        by_first.setdefault(text[:1], []).append(text)
    options: list[Expr] = []
    for first, group in by_first.items():
        if not first:
            options.append(EMPTY)
            continue
        shared = _common(group)
        options.append(
            seq(
                Literal(shared),
                _branches(rules, report, [t[len(shared) :] for t in group], hint, depth + 1, queue),
            )
        )
    return alt(options)


def _common(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    low, high = min(texts), max(texts)
    for i, c in enumerate(low):
        if high[i] != c:
            return low[:i]
    return low
