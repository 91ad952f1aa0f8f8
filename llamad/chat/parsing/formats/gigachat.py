"""GigaChat 3: one object after a text that the template chooses."""

from llamad.chat.parsing.formats.lists import OpenedList
from llamad.chat.parsing.syntax import Calls, Format, Has, Think, object_of
from llamad.chat.schema.expressions import EMPTY, Expr, Literal

_CALL = "<|function_call|>"


class GigaChat(OpenedList):
    name = "list"
    variant = "object"
    ignored = ("<|message_sep|>",)
    has_several = False

    @classmethod
    def is_in(cls, has: Has) -> bool:
        return (has(_CALL) and has("<|role_sep|>")) or (has("<|message_sep|>") and has("function call"))

    @classmethod
    def found_in(cls, has: Has, think: Think) -> Format:
        is_token = has(_CALL) and has("<|role_sep|>")
        opens = _CALL if is_token else "function call<|role_sep|>\n"
        return Format(cls.name, cls.variant, think, opens, "", cls.ignored)

    def written(self, calls: Calls) -> str:
        return self.format.open + "\n".join(object_of(*call) for call in calls)

    @property
    def around(self) -> tuple[Expr, Expr, Expr]:
        return Literal(self.format.open), EMPTY, EMPTY
