"""What the formats of tool calls share: readers of streamed text and JSON, and pieces of grammars."""

from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, mark, object_marks
from llamad.chat.parsing.syntax.json_calls import array, call, call_from, close, objects, series
from llamad.chat.parsing.syntax.literal_calls import Dialect, literal, python_arguments
from llamad.chat.parsing.syntax.parameter_calls import FUNCTION, STRING, glm_call, parameters, tool_call
from llamad.chat.parsing.syntax.stream import Stream
from llamad.chat.parsing.syntax.text_reader import NAME, Malformed, Markers, Steps

__all__ = [
    "BLANKS",
    "FUNCTION",
    "NAME",
    "STRING",
    "Dialect",
    "Malformed",
    "Mark",
    "Markers",
    "Steps",
    "Stream",
]
__all__ += ["array", "call", "call_from", "close", "glm_call", "literal", "mark", "object_marks", "objects"]
__all__ += ["parameters", "python_arguments", "series", "tool_call"]
