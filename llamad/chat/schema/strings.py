"""Strings: `minLength`, `maxLength`, `pattern` and `format`, alone and combined.

One conversion, one thread. A single pattern is written as is if possible; combinations become one automaton
(automaton.py), and what grows too large cannot be honoured.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec

from llamad.chat.schema import automaton as automata
from llamad.chat.schema import lookahead, regex
from llamad.chat.schema.automaton import Automaton, TooLarge
from llamad.chat.schema.charsets import any_char
from llamad.chat.schema.document import Node
from llamad.chat.schema.errors import Report, SchemaError
from llamad.chat.schema.expressions import MOST_REPEATS, NEVER, Expr, rep, seq
from llamad.chat.schema.formats import ANY_TEXT, BESIDE_PATTERN, NUMBERS, PATTERNS, WRITTEN
from llamad.chat.schema.quoted import QUOTE, edges, of_automaton, of_edges
from llamad.chat.schema.regex import Cat, Malformed, Or, Set, Times, Tree, Unsupported
from llamad.chat.schema.rules import Rules

FEW_STATES = 100  # an unanchored pattern with at most this many is written state by state


class Pattern(msgspec.Struct):
    """A pattern that the text must, or must not, match."""

    pointer: str
    keyword: str
    tree: Tree
    wanted: bool = True


class Text(msgspec.Struct):
    """All that is required of a string."""

    patterns: list[Pattern] = msgspec.field(default_factory=list)
    least: int = 0
    most: int | None = None
    at: dict[str, str] = msgspec.field(default_factory=dict)  # where the bounds come from

    @property
    def is_free(self) -> bool:
        return not self.patterns and self.least == 0 and self.most is None


class Strings:
    def __init__(self, rules: Rules, report: Report) -> None:
        self._rules = rules
        self._report = report
        self._trees: dict[str, Tree] = {}
        self._automata: dict[tuple[Tree, int], Automaton] = {}

    def any_string(self) -> Expr:
        rules = self._rules
        return rules.once("string", lambda: seq(QUOTE, rep(any_char(rules), 0, None), QUOTE))

    def gather(self, owns: Iterable[Node]) -> Text:
        text = Text()
        for node in owns:
            if "minLength" in node.value and self._countable(node, "minLength"):
                text.least = max(text.least, int(node.get("minLength")))
                text.at["minLength"] = node.pointer
            if "maxLength" in node.value and self._countable(node, "maxLength"):
                most = int(node.get("maxLength"))
                text.most = most if text.most is None else min(text.most, most)
                text.at["maxLength"] = node.pointer
            if "pattern" in node.value:
                text.patterns += self.patterns(node.pointer, "pattern", node.get("pattern"))
            known = node.get("format")
            if known in PATTERNS:
                formats = BESIDE_PATTERN if "pattern" in node.value else PATTERNS
                text.patterns += self.patterns(node.pointer, "format", formats[known])
            elif known is not None and known not in NUMBERS and known not in ANY_TEXT:
                listed = ", ".join(PATTERNS)
                self._report.refuse(node.pointer, "format", f'"{known}" is not known; use {listed}')
        return text

    def patterns(self, pointer: str, keyword: str, pattern: str) -> list[Pattern]:
        """One, and one more for each look-ahead at its start; none if it cannot be honoured."""
        rest, ahead = lookahead.split(pattern)
        try:
            tree = self._tree(rest)
            if ahead and isinstance(tree, Or):
                raise Unsupported("a look-ahead in one of several alternatives cannot be honoured")
            more = [Pattern(pointer, keyword, self._tree(one), wanted) for one, wanted in ahead]
        except Unsupported as error:
            self._report.refuse(pointer, keyword, f"{_shown(pattern)}: {error}")
            return []
        except Malformed as error:
            raise SchemaError(
                pointer, keyword, f"{_shown(pattern)} is not a regular expression: {error}"
            ) from None
        return [Pattern(pointer, keyword, tree), *more]

    def _tree(self, pattern: str) -> Tree:
        if pattern not in self._trees:
            self._report.spend(len(pattern))
            self._trees[pattern] = regex.parse(pattern)
        return self._trees[pattern]

    def expr(self, text: Text, hint: str) -> Expr:
        """The whole JSON string, quotes included."""
        if text.most is not None and text.most < text.least:
            return NEVER
        if text.is_free:
            return self.any_string()
        if not text.patterns:
            return seq(QUOTE, rep(any_char(self._rules), text.least, text.most), QUOTE)
        text = _fewer(text)
        counted = _counted(text)
        if counted:
            return of_edges(self._rules, self._report, counted)
        if len(text.patterns) == 1 and text.least == 0 and text.most is None and text.patterns[0].wanted:
            return self._single(text.patterns[0], hint)
        try:
            return of_automaton(self._rules, self.automaton(text), hint)
        except TooLarge:
            return self._without(text, hint)

    def automaton(self, text: Text) -> Automaton:
        """Raises TooLarge."""
        parts = [(self._of(pattern.tree), pattern.wanted) for pattern in text.patterns]
        if text.least or text.most is not None:
            parts.append((automata.of_length(text.least, text.most), True))
        return automata.together(parts, self._report.spend) if parts else automata.everything()

    def _of(self, tree: Tree, limit: int = automata.MOST_STATES) -> Automaton:
        if (tree, limit) not in self._automata and tree in _format_trees():
            self._automata[tree, limit] = _of_format(tree)
        if (tree, limit) not in self._automata:
            self._automata[tree, limit] = automata.of_pattern(tree, self._report.spend, limit)
        return self._automata[tree, limit]

    def _single(self, pattern: Pattern, hint: str) -> Expr:
        """As written if both ends are anchored; otherwise, or with unusual repetitions, state by state."""
        found = edges(pattern.tree)
        whole = found is not None and all(begins and ends for begins, _, ends in found)
        plain = whole and (
            pattern.tree in _written_trees()
            or (pattern.keyword != "format" and not regex.loops_on_nothing(pattern.tree))
        )
        try:
            if not plain:
                limit = automata.MOST_STATES if found is None else FEW_STATES
                return of_automaton(self._rules, self._of(pattern.tree, limit), hint)
        except TooLarge:
            if found is None:
                self._report.refuse(pattern.pointer, pattern.keyword, "it is too complex for a grammar")
                return self.any_string()
        assert found is not None
        return of_edges(self._rules, self._report, found)

    def _without(self, text: Text, hint: str) -> Expr:
        """Too large together: drop the length first, then one pattern after the other."""
        for keyword in ("minLength", "maxLength"):
            if keyword in text.at:
                self._report.refuse(
                    text.at[keyword], keyword, "it cannot be honoured together with the pattern"
                )
        if text.least or text.most is not None:
            return self.expr(Text(text.patterns), hint)
        dropped = text.patterns[-1]
        self._report.refuse(
            dropped.pointer, dropped.keyword, "it cannot be honoured together with the other patterns"
        )
        return self.expr(Text(text.patterns[:-1]), hint)

    def _countable(self, node: Node, keyword: str) -> bool:
        if node.get(keyword) <= MOST_REPEATS:
            return True
        self._report.refuse(node.pointer, keyword, f"lengths above {MOST_REPEATS} cannot be honoured")
        return False


@cache
def _format_trees() -> frozenset[Tree]:
    return frozenset(map(regex.parse, PATTERNS.values()))


@cache
def _written_trees() -> frozenset[Tree]:
    return frozenset(regex.parse(PATTERNS[name]) for name in WRITTEN)


@cache
def _of_format(tree: Tree) -> Automaton:
    """Made once for all conversions; an automaton is never changed."""
    return automata.of_pattern(tree, lambda steps: None)


def _fewer(text: Text) -> Text:
    """Without what is redundant: equal patterns, and lengths that the patterns imply."""
    patterns: list[Pattern] = []
    for pattern in text.patterns:
        if all(pattern.tree != other.tree or pattern.wanted != other.wanted for other in patterns):
            patterns.append(pattern)
    fewer = Text(patterns, text.least, text.most, dict(text.at))
    for pattern in patterns:
        if not pattern.wanted:
            continue
        least, most = regex.lengths(pattern.tree)
        found = edges(pattern.tree)
        bound = found is not None and all(begins and ends for begins, _, ends in found)
        if least >= fewer.least:
            fewer.least = 0
            fewer.at.pop("minLength", None)
        if bound and most is not None and fewer.most is not None and most <= fewer.most:
            fewer.most = None
            fewer.at.pop("maxLength", None)
    return fewer


def _counted(text: Text) -> list[tuple[bool, Tree, bool]] | None:
    """^[class]*$ with a length: the length becomes the repetition."""
    if len(text.patterns) != 1 or (text.least == 0 and text.most is None) or not text.patterns[0].wanted:
        return None
    found = edges(text.patterns[0].tree)
    if not found or len(found) != 1:
        return None
    begins, core, ends = found[0]
    body = core.parts[0] if isinstance(core, Cat) and len(core.parts) == 1 else core
    if not (begins and ends and isinstance(body, Times) and isinstance(body.body, Set)):
        return None
    bounds = [most for most in (body.most, text.most) if most is not None]
    least, most = max(body.least, text.least), min(bounds, default=None)
    if most is not None and most < least:
        return [(True, Set(()), True)]
    return [(True, Times(body.body, least, most), True)]


def _shown(pattern: str) -> str:
    return ascii(pattern if len(pattern) <= 60 else pattern[:59] + "…")
