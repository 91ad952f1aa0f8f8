"""The formats of tool calls, one class each: how it is recognized, written, parsed, and forced by a grammar.

Constants and pure functions; any thread. CONTRIBUTING.md says how to add a format.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from llamad.chat.parsing.syntax.call_format import CLASSES, CallFormat, Format
from llamad.chat.parsing.syntax.reasoning import think_tags

__all__ = ["FORMATS", "CallFormat", "Format", "detect"]

# The order in which formats are looked for in a template, by module. Templates often mention the tags of other formats,
# too, so formats that one text identifies come first, and modules that are not listed here come before all others.
# "lists" comes before "hermes", because Apriel's template mentions both tags and writes the former. "generic" matches
# any template, and must be described in the prompt.
_ORDER = (
    "gpt_oss dsml hunyuan minimax minicpm5 kimi_k3 gemma lfm2 apertus solar gigachat command_r_plus deepseek kimi_k2"
    " command_r mistral glm qwen3_coder granite lists hermes functionary llama3 generic"
).split()


def find_formats() -> list[type[CallFormat]]:
    """Import all modules of this folder and return their formats, in order."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    place = {f"{__name__}.{name}": i for i, name in enumerate(_ORDER)}
    return sorted(CLASSES.values(), key=lambda one: place.get(one.__module__, -1))


FORMATS = find_formats()


def detect(template_source: str) -> Format:
    """Return the format of tool calls and the reasoning tags that a chat template's source implies."""
    has = template_source.__contains__
    return next(one for one in FORMATS if one.is_in(has)).found_in(has, think_tags(has))
