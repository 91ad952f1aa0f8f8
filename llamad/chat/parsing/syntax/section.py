"""Calls that are each between tags, with a pair of tags around all of them, which may be missing in free text."""

from abc import ABC, abstractmethod

from llamad.chat.parsing.syntax.call_format import CallFormat, Format
from llamad.chat.parsing.syntax.json_calls import close, series
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import Steps
from llamad.chat.schema.expressions import EMPTY, Expr, Literal, seq


class Section(CallFormat, ABC):
    calls_tag = ""  # the tag before all calls; "" if there is none
    calls_end = ""
    call_tag: str
    call_end: str
    line = ""  # the line break between tags, as in the model's training data
    before_calls: Expr = EMPTY
    may_be_bare = True

    def __init__(self, format: Format) -> None:
        super().__init__(format)
        self.markers = tuple(filter(None, (self.calls_tag, *self.openings, self.call_tag)))

    def read(self, stream: Stream, marker: str) -> Steps[None]:
        yield from series(stream, marker, self.call_tag, self.read_call, *self.ends)
        if self.calls_end:
            yield from close(stream, self.calls_end)

    @abstractmethod
    def read_call(self, stream: Stream) -> Steps[None]:
        """Read a call after its tag, up to one of `ends`. Raises Malformed."""

    @property
    def around(self) -> tuple[Expr, Expr, Expr]:
        opens, line = Literal(self.calls_tag + self.line), self.line
        return seq(self.before_calls, opens), Literal(line), Literal(line + self.calls_end)
