"""The formats of tool calls, one class each: how it is recognized, written, parsed, and forced by a grammar.

Constants and pure functions; any thread. The docstring of base.py and CONTRIBUTING.md say how to add a format.
"""

from __future__ import annotations

from importlib import import_module

from llamad.chat.parsing.formats.base import CallFormat, Format, known_formats
from llamad.chat.parsing.formats.reasoning import think_tags

__all__ = ["FORMATS", "CallFormat", "Format", "detect"]

# The modules of the formats. The first whose class is in a template decides. Templates often mention the tags of other
# formats as well: formats that one text identifies come first; "lists" before "hermes", since Apriel's template
# mentions both tags and writes the former; "generic" is in any template, and must be described in the prompt.
_ORDER = (
    "gpt_oss dsml hunyuan minimax minicpm5 kimi_k3 gemma lfm2 apertus solar gigachat command_r_plus deepseek kimi_k2"
    " command_r mistral glm qwen3_coder granite lists hermes functionary llama3 generic"
).split()
_MODULES = [import_module(f"{__name__}.{name}").__name__ for name in _ORDER]
FORMATS: list[type[CallFormat]] = sorted(known_formats(), key=lambda one: _MODULES.index(one.__module__))


def detect(template_source: str) -> Format:
    """Detects the format of tool calls and the reasoning tags from a chat template's source."""
    has = template_source.__contains__
    return next(one for one in FORMATS if one.is_in(has)).found_in(has, think_tags(has))
