"""Formats of tool calls: `Format`, the format that a template was recognized as, and `CallFormat`, the base class of
all formats.

A CallFormat has no state but its Format; any thread. The defaults are for calls that are JSON objects.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from llamad.chat.parsing.syntax.free_text import Mark, mark
from llamad.chat.parsing.syntax.grammar import Grammar, Tool
from llamad.chat.parsing.syntax.json_calls import objects
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Malformed, Markers, Steps
from llamad.chat.schema.expressions import EMPTY, NEVER, Expr, Literal, Reference, alt, rep, seq

Has = Callable[[str], bool]  # whether a template contains a text
Think = tuple[str, str] | None  # the tags around reasoning
Handler = Callable[[Stream, str], Steps[None]]
Calls = Sequence[tuple[str, Any]]  # the name and the arguments of each call

_TOKEN = re.compile(r"<\|[^<>|\s]*\|?>")  # a special token inside a longer tag
CLASSES: dict[tuple[str, str], type[CallFormat]] = {}  # all formats, by name and variant


class Format(msgspec.Struct, frozen=True):
    """The format of one template. `name` and `variant` select the class of `calls`, which has the behaviour.

    `think` has the tags around reasoning, or is None if the model has none (gpt-oss's channels are not tags).
    `open` and `close` are the texts around calls, for formats that differ only in these. `ignored` are tags around
    content, which are removed.
    """

    name: str = "generic"
    variant: str = ""
    think: Think = None
    open: str = ""
    close: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def calls(self) -> CallFormat:
        known = CLASSES.get((self.name, self.variant)) or CLASSES[self.name, ""]
        return known(self)

    @property
    def reasons(self) -> bool:
        return bool(self.calls.thought_tags[0])

    @property
    def special(self) -> tuple[str, ...]:
        """Return the texts that may be special tokens, but must reach the parser."""
        tags = (*filter(None, (self.open, self.close)), *(self.think or ()), *self.ignored)
        tokens = (token for tag in tags for token in _TOKEN.findall(tag))
        return tuple(dict.fromkeys((*self.calls.special, *tags, *tokens)))


class CallFormat:
    """How one family of models writes tool calls. A subclass with a `name` is a format, and overrides what differs from
    the defaults."""

    # How it is recognized in a template: all `signs` occur, at least one of `any_sign`, and none of `no_sign`.
    name: ClassVar[str]
    variant: ClassVar[str] = ""
    signs: ClassVar[tuple[str, ...]] = ()
    any_sign: ClassVar[tuple[str, ...]] = ()
    no_sign: ClassVar[tuple[str, ...]] = ()
    # The fields of its Format. Each of `variants` is a text of the template and the variant that it implies.
    variants: ClassVar[tuple[tuple[str, str], ...]] = ()
    think: ClassVar[Think] = None  # None: the tags that occur in the template
    open: ClassVar[str] = ""
    close: ClassVar[str] = ""
    ignored: ClassVar[tuple[str, ...]] = ()

    special: tuple[str, ...] = ()  # special tokens of calls, which the parser must see
    markers: tuple[str, ...] = ()  # the texts that announce calls; read() reads the calls after them
    # What ends calls in a prompt where the template goes on with their results without closing the message.
    unclosed_ends: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()  # one of these may follow the JSON that the default read() reads
    firsts = ""  # characters that begin calls without a marker, at the start of the text; read() gets them
    # The text begins with the name of its recipient, which read() reads even without tools.
    names_recipient = False
    has_several = True  # the template can render a second call of one answer
    # Calls have no marker and begin the answer; marked_calls() says which calls may come later.
    starts_answer = False
    may_be_bare = False  # in free text, calls may come without the first and the last text of `around`
    openings: tuple[str, ...] = ()  # in free text, these may replace the first text of `around`
    answer_tag = ""  # opens the content of an answer
    before_value: Expr = EMPTY  # the text before an answer that follows a schema
    after_thought: Expr = rep(Literal("\n"), 0, 2)

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            CLASSES[cls.name, cls.variant] = cls

    def __init__(self, format: Format) -> None:
        self.format = format

    @classmethod
    def is_in(cls, has: Has) -> bool:
        """Return whether a template uses this format."""
        is_any = any(map(has, cls.any_sign)) or not cls.any_sign
        return is_any and all(map(has, cls.signs)) and not any(map(has, cls.no_sign))

    @classmethod
    def found_in(cls, has: Has, think: Think) -> Format:
        """Return the Format of a template that uses this format and has these tags around reasoning."""
        variant = next((name for text, name in cls.variants if has(text)), cls.variant)
        return Format(cls.name, variant, cls.think or think, cls.open, cls.close, cls.ignored)

    # Writing calls into a prompt

    @property
    def is_written(self) -> bool:
        """Return whether the format has its own written(). For others, the prompt describes the generic format."""
        return type(self).written is not CallFormat.written

    def written(self, calls: Calls) -> str:
        """Return calls as text, for templates that cannot render them."""
        return '{"tool_calls": ' + array_of(calls) + "}"

    def new_id(self, name: str, index: int) -> str:
        """Return an id that the template accepts, for a call without one; "" if it accepts any."""
        return ""

    @property
    def thought_tags(self) -> tuple[str, str, str]:
        """Return the texts that open and close reasoning, and the text before the answer; all "" without reasoning."""
        return (*self.format.think, "") if self.format.think else ("", "", "")

    # Parsing

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        """Read the calls after a marker. Raises Malformed."""
        yield from objects(stream, *self.ends)

    def parse(self, stream: Stream) -> Steps[None]:
        """Read a whole answer: reasoning between tags, content, and calls."""
        on = stream.options.tools_on
        handlers: dict[str, Handler] = {}
        if on or self.names_recipient:
            handlers = dict.fromkeys(self.markers, self.read)
        handlers.update(dict.fromkeys(self.format.ignored, _ignored))
        markers = Markers(handlers)
        firsts = self.firsts if on else ""
        think = self.format.think
        if think and stream.options.starts_in_reasoning:
            if stream.options.reasoning == "deepseek-legacy":
                stream.content(think[0])
            yield from _thought(stream, think[1])
        if self.names_recipient:
            yield from _try(stream, self.read, "")
        fresh = True  # only whitespace has come since the start, the last reasoning or the last call
        while True:
            if fresh:
                yield from stream.blanks()
                stream.release()
                if think and (yield from stream.first_of(think[0])):
                    stream.begin_thought()
                    yield from _thought(stream, think[1])
                    continue
                first = (yield from stream.peek()) if firsts else ""
                if first and first in firsts:
                    fresh = yield from _try(stream, self.read, first)
                    continue
            marker = yield from stream.until(markers, stream.content)
            if not marker:
                return
            fresh = yield from _try(stream, handlers[marker], marker)

    # Grammars

    @property
    def around(self) -> tuple[Expr, Expr, Expr]:
        """Return the text before the first call, between two calls, and after the last one."""
        return EMPTY, EMPTY, EMPTY

    def call(self, grammar: Grammar, tool: Tool) -> Expr:
        """Return the expression for one call of this tool."""
        return grammar.named(tool)

    def calls(self, grammar: Grammar, tools: list[Tool]) -> Expr:
        """Return the expression for one call or several. The rule "call" is one call of any tool."""
        one = Reference("call")
        first, between, last = self.around
        more = rep(seq(between, one), 0, None) if grammar.several else EMPTY
        if grammar.is_free:
            first = alt([first, *map(Literal, self.openings)])
        calls = seq(first, one, more, last)
        return alt([calls, seq(one, more)]) if grammar.is_free and self.may_be_bare else calls

    def marked_calls(self, grammar: Grammar, tools: list[Tool]) -> Expr:
        """Return the expression for calls that may come anywhere, for formats whose usual calls begin the answer."""
        return NEVER

    def triggers(self, names: list[str]) -> list[Mark]:
        """Return the marks that begin calls of these functions: there free text ends, and a grammar constrains the
        rest. A mark must be so long that it does not occur in ordinary text."""
        return [mark(text) for text in self.markers]


def new_call_id(format: Format, name: str, index: int, prefix: str = "call_") -> str:
    """Return an id for a call without one, in a form that the format's template accepts."""
    return format.calls.new_id(name, index) or prefix + random_id(string.ascii_letters + string.digits, 24)


def random_id(letters: str, n: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(n))


def json_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def object_of(name: str, arguments: Any) -> str:
    return json_of({"name": name, "arguments": arguments})


def array_of(calls: Calls) -> str:
    return "[" + ", ".join(object_of(*call) for call in calls) + "]"


def _try(stream: Stream, handler: Handler, marker: str) -> Steps[bool]:
    try:
        yield from handler(stream, marker)
    except Malformed:
        stream.fail()
        return False
    stream.release()
    return True


def _thought(stream: Stream, close: str) -> Steps[None]:
    yield from stream.until(Markers((close,)), stream.thought)
    stream.end_thought()


def _ignored(stream: Stream, marker: str) -> Steps[None]:
    """Drop a tag around content."""
    stream.commit()
    yield from ()
