"""Jinja's filters and tests under a budget, and `tojson` as Hugging Face's templates expect it.

Every filter is wrapped: its arguments are measured, its iteration counted, its result charged. Runs on the rendering
thread.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import Environment, pass_environment
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.tests import TESTS
from jinja2.utils import _PassArg

from llamad.chat.template import result_size
from llamad.chat.template.budget import ELEMENT, LARGE, Budget, Exhausted, current

# Filters that use the value itself or pass its elements on, so that the content of the elements does not matter.
SHALLOW = frozenset(
    "attr batch count d default first items last length list map random reject rejectattr reverse select "
    "selectattr slice".split()
)
# Filters that consume a whole iterator, and filters that pass elements on one by one.
GATHERING = frozenset("groupby join list max min reverse slice sort sum unique".split())
PASSING = frozenset("batch map reject rejectattr select selectattr".split())
# Filters that take quadratic time, or are made for short texts.
SLOW = frozenset("pprint striptags title urlencode urlize wordcount wordwrap xmlattr".split())
COMPARING = frozenset(
    "!= < <= == > >= divisibleby eq equalto ge greaterthan gt in le lessthan lower lt ne upper".split()
)


def guarded_filters() -> dict[str, Callable[..., Any]]:
    made = {name: _guarded(name, one) for name, one in FILTERS.items()}
    made["tojson"] = _guarded("tojson", tojson)
    made["sum"] = _guarded("sum", _sum)
    return made


def guarded_tests() -> dict[str, Any]:
    tests: dict[str, Any] = TESTS
    return {name: _weighed(one) if name in COMPARING else one for name, one in tests.items()}


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    skip = 0 if _PassArg.from_obj(original) is None else 1
    before = BEFORE.get(name)

    @functools.wraps(original)
    def guarded(*args: Any, **named: Any) -> Any:
        budget = current()
        budget.tick()
        if len(args) > skip:
            value = args[skip]
            if name in GATHERING and isinstance(value, Iterator):
                value = budget.gather(value)
                args = (*args[:skip], value, *args[skip + 1 :])
            if name not in SHALLOW:
                weight = sum(map(budget.weigh, args[skip:])) + (budget.weigh(named) if named else 0)
                if name in SLOW and weight > LARGE:
                    raise Exhausted(f"the filter {name} was given more than {LARGE:,} characters")
            if before is not None:
                before(budget, *args[skip:], **named)
            if name in PASSING and isinstance(value, (list, tuple, range, Iterator)):
                args = (*args[:skip], budget.ticked(value), *args[skip + 1 :])
        result = original(*args, **named)
        if isinstance(result, Iterator):
            return budget.ticked(result)
        budget.charge(result)
        return result

    return guarded


def _weighed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def weighed(*args: Any) -> Any:
        budget = current()
        budget.tick()
        for one in args:
            budget.weigh(one)
        return original(*args)

    return weighed


def tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is None:
        return json.dumps(x, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    budget = current()
    pieces: list[str] = []
    size = 0
    for piece in encoder.iterencode(x):  # in pieces: deep values are mostly indentation
        budget.tick()
        size += len(piece)
        budget.fit(size)
        pieces.append(piece)
    return "".join(pieces)


@pass_environment
def _sum(
    environment: Environment, iterable: Iterable[Any], attribute: str | int | None = None, start: Any = 0
) -> Any:
    """Sum the values. They may be lists, and then each partial sum is a new list, so each is charged."""
    budget = current()
    getter = make_attrgetter(environment, attribute) if attribute is not None else None
    total = start
    for value in budget.ticked(iterable):
        if getter is not None:
            value = getter(value)
        result_size.before_binop(budget, "+", total, value)
        total = total + value
        budget.charge(total)
    return total


def _center(budget: Budget, value: Any, width: Any = 80) -> None:
    budget.fit(result_size.count_of(width))


def _indent(budget: Budget, s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> None:
    size = len(width) if isinstance(width, str) else result_size.count_of(width)
    if isinstance(s, str):
        budget.fit(len(s) + size * (len(s.splitlines()) + 1))


def _wordwrap(
    budget: Budget,
    s: Any,
    width: Any = 79,
    break_long_words: Any = True,
    wrapstring: Any = None,
    break_on_hyphens: Any = True,
) -> None:
    if isinstance(wrapstring, str):
        budget.fit(len(wrapstring) * (len(str(s)) + 1))


def _batch(budget: Budget, value: Any, linecount: Any, fill_with: Any = None) -> None:
    budget.fit(result_size.count_of(linecount) * ELEMENT)


def _round(budget: Budget, value: Any, precision: Any = 0, method: Any = "common") -> None:
    if abs(result_size.count_of(precision)) > 400:  # a float has no more digits
        raise Exhausted("the filter round was given a precision above 400")


def _replace(budget: Budget, s: Any, old: Any, new: Any, count: Any = None) -> None:
    result_size.replaced(budget, s if isinstance(s, str) else str(s), str(old), str(new), count)


def _join(budget: Budget, value: Any, d: Any = "", attribute: Any = None) -> None:
    if hasattr(value, "__len__"):
        budget.fit(budget.weigh(value) + budget.weigh(d) * len(value))


def _format(budget: Budget, value: Any, *args: Any, **named: Any) -> None:
    result_size.percent(budget, str(value), named or args)


def _list(budget: Budget, value: Any) -> None:
    if isinstance(value, (str, bytes, range)):
        budget.fit(len(value) * ELEMENT)


def _tojson(budget: Budget, x: Any, *args: Any, **named: Any) -> None:
    """Check that the indentation and the separators are short, because each element has them. The value itself is
    weighed already."""
    separators = named.get("separators", args[2] if len(args) > 2 else None)
    if budget.weigh(separators) > 64 + 2 * ELEMENT:
        raise Exhausted("tojson was given separators longer than 64 characters")
    indent = named.get("indent", args[1] if len(args) > 1 else None)
    if (len(indent) if isinstance(indent, str) else result_size.count_of(indent)) > 64:
        raise Exhausted("tojson was given an indent above 64")


def _text(budget: Budget, value: Any, *args: Any, **named: Any) -> None:
    """Check a text before it is escaped, because one character can become six or more."""
    if isinstance(value, (str, Mapping, list, tuple)):
        budget.fit(budget.weigh(value))


BEFORE: dict[str, Callable[..., None]] = {
    "batch": _batch,
    "center": _center,
    "e": _text,
    "escape": _text,
    "forceescape": _text,
    "format": _format,
    "indent": _indent,
    "join": _join,
    "list": _list,
    "replace": _replace,
    "round": _round,
    "slice": _batch,
    "tojson": _tojson,
    "urlencode": _text,
    "wordwrap": _wordwrap,
}
