"""Strings: `minLength`, `maxLength`, `pattern` and `format`, alone and combined.

Each conversion runs on one thread. A single pattern is written as it is, if possible. Combinations become one automaton
(automaton.py); those that grow too large cannot be honoured.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import msgspec

from llamad.chat.schema import automaton as automata
from llamad.chat.schema import regex
from llamad.chat.schema.automaton import Automaton, TooLarge
from llamad.chat.schema.charsets import any_char
from llamad.chat.schema.document import Node
from llamad.chat.schema.errors import Report, SchemaError
from llamad.chat.schema.expressions import MOST_REPEATS, NEVER, Expr, rep, seq
from llamad.chat.schema.formats import ANY_TEXT, BESIDE_PATTERN, NUMBERS, PATTERNS, SHORT, SHORT_MAX, WRITTEN
from llamad.chat.schema.quoted import QUOTE, edges, of_automaton, of_edges
from llamad.chat.schema.regex import Cat, Malformed, Or, Set, Times, Tree, Unsupported
from llamad.chat.schema.rules import Rules

FEW_STATES = 100  # an unanchored pattern with at most this many states is written state by state


class Pattern(msgspec.Struct):
    """A pattern that the text must, or must not, match."""

    pointer: str
    keyword: str
    tree: Tree
    must_match: bool = True


class Text(msgspec.Struct):
    """Everything that is required of a string."""

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
        for pattern in text.patterns if text.most is not None else ():
            self._shorten(pattern, text)
        return text

    def _shorten(self, pattern: Pattern, text: Text) -> None:
        """Use the pattern of short texts for a format whose texts may be longer than `maxLength`."""
        short = _short_patterns().get(pattern.tree) if pattern.keyword == "format" else None
        longest = regex.lengths(pattern.tree)[1] if short is not None else None
        if short is None or text.most is None or longest is None or longest <= text.most:
            return
        pattern.tree, text.most = self._tree(short), min(text.most, SHORT_MAX)

    def patterns(self, pointer: str, keyword: str, pattern: str) -> list[Pattern]:
        """Return the pattern, and one more for each look-ahead at its start. Return none if it cannot be honoured."""
        rest, ahead = _split_lookaheads(pattern)
        try:
            tree = self._tree(rest)
            if ahead and isinstance(tree, Or):
                raise Unsupported("a look-ahead in one of several alternatives cannot be honoured")
            more = [Pattern(pointer, keyword, self._tree(one), must_match) for one, must_match in ahead]
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
        """Return the expression for the whole JSON string, with its quotes."""
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
        if len(text.patterns) == 1 and text.least == 0 and text.most is None and text.patterns[0].must_match:
            return self._single(text.patterns[0], hint)
        try:
            return of_automaton(self._rules, self.automaton(text), hint)
        except TooLarge:
            return self._without(text, hint)

    def automaton(self, text: Text) -> Automaton:
        """Return the automaton of all requirements. Raises TooLarge."""
        each = [(self._of(pattern.tree), pattern.must_match) for pattern in text.patterns]
        if text.least or text.most is not None:
            each.append((automata.of_length(text.least, text.most), True))
        return automata.together(each, self._report.spend) if each else automata.everything()

    def _of(self, tree: Tree, limit: int = automata.MOST_STATES) -> Automaton:
        if (tree, limit) not in self._automata and tree in _format_trees():
            self._automata[tree, limit] = _of_format(tree)
        if (tree, limit) not in self._automata:
            self._automata[tree, limit] = automata.of_pattern(tree, self._report.spend, limit)
        return self._automata[tree, limit]

    def _single(self, pattern: Pattern, hint: str) -> Expr:
        """Return the expression for one pattern: as it is written if both ends are anchored; otherwise, or with unusual
        repetitions, state by state."""
        options = edges(pattern.tree)
        whole = options is not None and all(begins and ends for begins, _, ends in options)
        plain = whole and (
            pattern.tree in _written_trees()
            or (pattern.keyword != "format" and not regex.loops_on_nothing(pattern.tree))
        )
        try:
            if not plain:
                limit = automata.MOST_STATES if options is None else FEW_STATES
                return of_automaton(self._rules, self._of(pattern.tree, limit), hint)
        except TooLarge:
            if options is None:
                self._report.refuse(pattern.pointer, pattern.keyword, "it is too complex for a grammar")
                return self.any_string()
        assert options is not None
        return of_edges(self._rules, self._report, options)

    def _without(self, text: Text, hint: str) -> Expr:
        """Return an expression with fewer requirements, because all together are too large: drop the length first, then
        one pattern after the other."""
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
def _short_patterns() -> dict[Tree, str]:
    return {regex.parse(PATTERNS[name]): short for name, short in SHORT.items()}


@cache
def _written_trees() -> frozenset[Tree]:
    return frozenset(regex.parse(PATTERNS[name]) for name in WRITTEN)


@cache
def _of_format(tree: Tree) -> Automaton:
    """Return the automaton of a format. It is made once for all conversions, because automata never change."""
    return automata.of_pattern(tree, lambda steps: None)


def _fewer(text: Text) -> Text:
    """Return the requirements without redundant ones: equal patterns, and lengths that the patterns imply."""
    patterns: list[Pattern] = []
    for pattern in text.patterns:
        if all(pattern.tree != other.tree or pattern.must_match != other.must_match for other in patterns):
            patterns.append(pattern)
    fewer = Text(patterns, text.least, text.most, dict(text.at))
    for pattern in patterns:
        if not pattern.must_match:
            continue
        least, most = regex.lengths(pattern.tree)
        options = edges(pattern.tree)
        bound = options is not None and all(begins and ends for begins, _, ends in options)
        if least >= fewer.least:
            fewer.least = 0
            fewer.at.pop("minLength", None)
        if bound and most is not None and fewer.most is not None and most <= fewer.most:
            fewer.most = None
            fewer.at.pop("maxLength", None)
    return fewer


def _counted(text: Text) -> list[tuple[bool, Tree, bool]] | None:
    """Turn ^[class]*$ with a length into a repetition of the class; return None for anything else."""
    if len(text.patterns) != 1 or (text.least == 0 and text.most is None) or not text.patterns[0].must_match:
        return None
    options = edges(text.patterns[0].tree)
    if not options or len(options) != 1:
        return None
    begins, core, ends = options[0]
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


def _split_lookaheads(pattern: str) -> tuple[str, list[tuple[str, bool]]]:
    """Return the pattern without the look-aheads at its start, and each of these as a pattern, with whether the text
    must match. They are conditions on the whole text: `^(?!a)(?=b)c` is `^c`, and not `^a`, and `^b`."""
    conditions: list[tuple[str, bool]] = []
    at = 1
    while pattern.startswith("^") and pattern.startswith(("(?!", "(?="), at):
        end = _group_end(pattern, at)
        if end < 0 or pattern[end + 1 : end + 2] in ("*", "+", "?", "{"):
            return pattern, []
        conditions.append((f"^(?:{pattern[at + 3 : end]})", pattern[at + 2] == "="))
        at = end + 1
    return ("^" + pattern[at:] if conditions else pattern), conditions


def _group_end(pattern: str, at: int) -> int:
    """Return where the group that opens at `at` closes, or -1 if it does not."""
    depth, in_class, escaped = 0, False, False
    for i in range(at, len(pattern)):
        c = pattern[i]
        if escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif in_class:
            in_class = c != "]"
        elif c == "[":
            in_class = True
        elif c == "(":
            depth += 1
        elif c == ")":
            depth -= 1
            if depth == 0:
                return i
    return -1
