"""Calls as an array of objects after a text that the template chooses: Nemotron, MiniMax M1, Apriel, Firefunction."""

from llamad.chat.parsing.syntax import CallFormat, Calls, Format, Has, Mark, Think, array_of, mark
from llamad.chat.parsing.syntax.grammar import BLANK, COMMA
from llamad.chat.schema.expressions import Expr, Literal, seq

_TAGS = (("<TOOLCALL>", "</TOOLCALL>"), ("<tool_calls>", "</tool_calls>"), ("functools[", ""))


class OpenedList(CallFormat):
    """Calls between the texts `open` and `close` of the Format."""

    def __init__(self, format: Format) -> None:
        super().__init__(format)
        self.markers = (format.open,)
        self.ends = (format.close,) if format.close else ()

    @property
    def around(self) -> tuple[Expr, Expr, Expr]:
        opens, closes = Literal(self.format.open + "["), Literal("]" + self.format.close)
        return seq(opens, BLANK), COMMA, seq(BLANK, closes)


class ToolList(OpenedList):
    name = "list"
    any_sign = tuple(opens for opens, _ in _TAGS)

    @classmethod
    def found_in(cls, has: Has, think: Think) -> Format:
        opens, closes = next(tags for tags in _TAGS if has(tags[0]))
        return Format(cls.name, "", think, opens.removesuffix("["), closes)

    def written(self, calls: Calls) -> str:
        return self.format.open + array_of(calls) + self.format.close

    def triggers(self, names: list[str]) -> list[Mark]:
        return [mark(self.format.open if self.format.close else self.format.open + "[")]
