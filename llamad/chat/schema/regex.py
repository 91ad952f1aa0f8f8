r"""Parses `pattern`, an ECMAScript regular expression, to a tree. Groups capture nothing; laziness is ignored.

Any thread; pure. Look-around, back-references, word boundaries and \p raise `Unsupported`; a text that is not a regular
expression raises `Malformed`.
"""

from __future__ import annotations

import re

import msgspec

from llamad.chat.schema.charsets import DIGITS, EVERY, LINE_ENDS, SPACES, WORD, complement, union
from llamad.chat.schema.expressions import MOST_REPEATS, Ranges

DEEPEST = 60
LONGEST = 10_000
SYNTAX = set("^$\\.*+?()[]{}|/")
CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACES}


class Malformed(ValueError):
    pass


class Unsupported(ValueError):
    pass


class Set(msgspec.Struct, frozen=True):
    ranges: Ranges


class Cat(msgspec.Struct, frozen=True):
    parts: tuple[Tree, ...]


class Or(msgspec.Struct, frozen=True):
    options: tuple[Tree, ...]


class Times(msgspec.Struct, frozen=True):
    body: Tree
    least: int
    most: int | None


class Anchor(msgspec.Struct, frozen=True):
    at_end: bool


Tree = Set | Cat | Or | Times | Anchor

BEGIN, END = Anchor(False), Anchor(True)


def parse(pattern: str) -> Tree:
    if len(pattern) > LONGEST:
        raise Unsupported(f"it is longer than {LONGEST:,} characters")
    return _Parser(pattern).whole()


def below(tree: Tree) -> tuple[Tree, ...]:
    match tree:
        case Cat(parts):
            return parts
        case Or(options):
            return options
        case Times(body):
            return (body,)
    return ()


def has_anchor(tree: Tree) -> bool:
    return isinstance(tree, Anchor) or any(map(has_anchor, below(tree)))


def loops_on_nothing(tree: Tree) -> bool:
    """Return whether something that may be empty is repeated: harmless in a regular expression, but endless in a
    grammar."""
    here = isinstance(tree, Times) and tree.most != 1 and lengths(tree.body)[0] == 0
    return here or any(map(loops_on_nothing, below(tree)))


def lengths(tree: Tree) -> tuple[int, int | None]:
    """Return the least and the most number of characters that the tree can match."""
    match tree:
        case Set():
            return 1, 1
        case Anchor():
            return 0, 0
        case Cat(parts):
            each = list(map(lengths, parts))
            tops = [most for _, most in each if most is not None]
            return sum(least for least, _ in each), sum(tops) if len(tops) == len(each) else None
        case Or(options):
            each = list(map(lengths, options))
            tops = [most for _, most in each if most is not None]
            return min(least for least, _ in each), max(tops) if len(tops) == len(each) else None
        case Times(body, least, most):
            low, high = lengths(body)
            if high == 0 or most == 0:
                return 0, 0
            return low * least, None if high is None or most is None else high * most


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.depth = 0

    def whole(self) -> Tree:
        tree = self.options()
        if self.at < len(self.text):
            raise Malformed(f"there is an unmatched ) at character {self.at + 1}")
        return tree

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> bool:
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def found(self, pattern: str) -> re.Match[str] | None:
        match = re.compile(pattern).match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def options(self) -> Tree:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unsupported(f"groups are nested deeper than {DEEPEST}")
        options = [self.sequence()]
        while self.take("|"):
            options.append(self.sequence())
        self.depth -= 1
        return options[0] if len(options) == 1 else Or(tuple(options))

    def sequence(self) -> Tree:
        items: list[Tree] = []
        while self.peek() not in ("", "|", ")"):
            item = self.quantified(self.atom())
            items.extend(item.parts if isinstance(item, Cat) else [item])
        return items[0] if len(items) == 1 else Cat(tuple(items))

    def quantified(self, body: Tree) -> Tree:
        match = self.found(r"[*+?]|\{([0-9]+)(,?)([0-9]*)\}")
        if not match:
            return body
        if isinstance(body, Anchor):
            raise Malformed(f"nothing to repeat before {match[0]}")
        if match[0][0] == "{":
            if len(match[0]) > 16:
                raise Unsupported(f"the repetition {match[0][:16]}… is too large")
            least = int(match[1])
            most = least if not match[2] else int(match[3]) if match[3] else None
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[match[0]]
        if most is not None and most < least:
            raise Malformed(f"the repetition {match[0]} is out of order")
        if max(least, most or 0) > MOST_REPEATS:
            raise Unsupported(f"the repetition {match[0]} is larger than {MOST_REPEATS}")
        self.take("?")
        if self.found(r"[*+?]|\{[0-9]+(,[0-9]*)?\}"):
            raise Malformed("a repetition is repeated; put it in a group")
        return Times(body, least, most)

    def atom(self) -> Tree:
        c = self.peek()
        self.at += 1
        match c:
            case "(":
                return self.group()
            case "[":
                return Set(self.char_class())
            case ".":
                return Set(complement(LINE_ENDS))
            case "^":
                return BEGIN
            case "$":
                return END
            case "\\":
                return Set(self.escape(in_class=False))
            case "*" | "+" | "?":
                raise Malformed(f"nothing to repeat before {c}")
            case "{" if re.compile(r"[0-9]+(,[0-9]*)?\}").match(self.text, self.at):
                raise Malformed("nothing to repeat before {")
        return Set(((ord(c), ord(c)),))

    def group(self) -> Tree:
        if self.take("?"):
            if self.found("<?[=!]"):
                raise Unsupported("look-around cannot be honoured")
            if not self.found(r":|P?<[A-Za-z_$][A-Za-z0-9_$]*>"):
                raise Unsupported("of the groups that start with (?, only (?:…) and (?<name>…) are supported")
        tree = self.options()
        if not self.take(")"):
            raise Malformed("a group is not closed")
        return tree

    def char_class(self) -> Ranges:
        negated = self.take("^")
        sets: list[Ranges] = []
        while not self.take("]"):
            low = self.class_atom()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                high = self.class_atom()
                if _single(low) is None or _single(high) is None:
                    sets += [low, ((0x2D, 0x2D),), high]  # in [\w-x] the - stands for itself
                    continue
                if low[0][0] > high[0][0]:
                    raise Malformed("a range in a class is out of order")
                low = ((low[0][0], high[0][0]),)
            sets.append(low)
        ranges = union(*sets)
        return complement(ranges) if negated else complement(complement(ranges))

    def class_atom(self) -> Ranges:
        c = self.peek()
        if not c:
            raise Malformed("a class is not closed")
        self.at += 1
        return self.escape(in_class=True) if c == "\\" else ((ord(c), ord(c)),)

    def escape(self, in_class: bool) -> Ranges:
        c = self.peek()
        if not c:
            raise Malformed("it ends in a lone \\")
        self.at += 1
        if c in CLASSES:
            return CLASSES[c]
        if c.lower() in CLASSES:
            return complement(CLASSES[c.lower()])
        if c in "pP":
            raise Unsupported(f"\\{c} (Unicode properties) cannot be honoured")
        if not in_class and (c in "123456789k"):
            raise Unsupported(f"\\{c} (a back-reference) cannot be honoured")
        if not in_class and c in "bB":
            raise Unsupported(f"\\{c} (a word boundary) cannot be honoured")
        code = self.escaped_code(c, in_class)
        if 0xD800 <= code <= 0xDFFF:
            raise Malformed("a lone surrogate is not a character")
        return ((code, code),)

    def escaped_code(self, c: str, in_class: bool) -> int:
        if c in CONTROLS:
            return CONTROLS[c]
        if c == "b" and in_class:
            return 8
        if c == "0" and not self.peek().isdigit():
            return 0
        if c == "c" and (match := self.found("[A-Za-z]")):
            return ord(match[0]) % 32
        if c == "x" and (match := self.found("[0-9a-fA-F]{2}")):
            return int(match[0], 16)
        if c == "u" and (match := self.found(r"\{([0-9a-fA-F]{1,8})\}")):
            code = int(match[1], 16)
            if code > EVERY[-1][1]:
                raise Malformed(f"\\u{match[0]} is not a character")
            return code
        if c == "u" and (match := self.found(r"([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")):
            return 0x10000 + (int(match[1], 16) - 0xD800) * 0x400 + int(match[2], 16) - 0xDC00
        if c == "u" and (match := self.found("[0-9a-fA-F]{4}")):
            return int(match[0], 16)
        if c in SYNTAX or not (c.isalnum() or c == "_"):
            return ord(c)
        raise Malformed(f"\\{c} is not an escape")


def _single(ranges: Ranges) -> int | None:
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None
