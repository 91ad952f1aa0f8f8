"""What formats of tool calls share: base classes, readers of streamed text and JSON, and elements of grammars."""

from llamad.chat.parsing.syntax.call_format import (
    CallFormat,
    Calls,
    Format,
    Has,
    Think,
    array_of,
    json_of,
    object_of,
    random_id,
)
from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, mark, object_marks
from llamad.chat.parsing.syntax.invoke import Invoke
from llamad.chat.parsing.syntax.json_calls import array, call, call_from, close, objects, series
from llamad.chat.parsing.syntax.literal_calls import Dialect, literal, python_arguments
from llamad.chat.parsing.syntax.parameter_calls import FUNCTION, glm_call, tool_call
from llamad.chat.parsing.syntax.section import Section
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import NAME, Malformed, Markers, Steps

__all__ = ["BLANKS", "FUNCTION", "NAME", "CallFormat", "Calls", "Dialect", "Format", "Has", "Invoke"]
__all__ += ["Malformed", "Mark", "Markers", "Section", "Steps", "Stream", "Think", "array", "array_of"]
__all__ += ["call", "call_from", "close", "glm_call", "json_of", "literal", "mark", "object_marks"]
__all__ += ["object_of", "objects", "python_arguments", "random_id", "series", "tool_call"]
