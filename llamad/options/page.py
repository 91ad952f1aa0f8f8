"""Owns docs/options.md: the table of options as people read it, with a few words around it.

Runs when a contributor or a test asks for the page. Must not be imported by the daemon.
"""

from __future__ import annotations

import json

from llamad.options.option import FLOAT_MAX, INT32_MAX, Field, Option
from llamad.options.sampler_names import LETTERS
from llamad.options.table import ANSWER, FIELDS, FORM, LENGTH, NOT_YET, PENALTIES, PROMPT, SAMPLING, names_of

_INTRODUCTION = """\
# The options of a generation

What `POST /completion` takes in its JSON body, beside the prompt. `null` is the same as leaving an option out: then the
server's flag counts, and without a flag the default here. A value of the wrong type or out of its range is a 400 that
names the option and the bound. Options are echoed in `generation_settings`, as they were understood.

This page is made by `python -m llamad.options` from `llamad/options/table.py`.
"""
_HEAD = "| option | type and range | default | flag | effect |\n| --- | --- | --- | --- | --- |\n"
_PROMPT = (
    "| `prompt` | string, array of token ids and strings, or array of such | needed | |"
    " the text to go on with; several prompts give several results |\n"
)
_AFTER = {
    PROMPT: """\
The system prompt is the shared prefix of all slots. Its BOS is the only one, `n_keep` counts past it, it is kept on a
context shift, and `GET /props` tells it (`system_prompt`, with `anti_prompt` as `user_name`, and `assistant_name`), so
that all clients build their prompts alike. A request that is refused changes nothing. The file of `-spf` holds plain
text, or that JSON object, alone or as the value of `system_prompt`.
""",
    SAMPLING: f"Letters of the samplers: {', '.join(f'`{a}` {b}' for a, b in LETTERS.items())}.\n",
    NOT_YET: "A value other than the neutral one, which is the default, is a 501 that names the option.\n",
}


def page() -> str:
    parts = [_INTRODUCTION]
    for section in (PROMPT, LENGTH, SAMPLING, PENALTIES, FORM, ANSWER, NOT_YET):
        rows = [
            _row(field, field.option)
            for field in FIELDS.values()
            if field.option is not None and field.option.section == section
        ]
        table = _HEAD + (_PROMPT if section == PROMPT else "") + "".join(rows)
        parts.append(f"## {section}\n\n{table}")
        if section in _AFTER:
            parts.append(_AFTER[section])
    return "\n".join(parts)


def _row(field: Field, option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in names_of(field.name))
    flags = ", ".join(f"`{flag}`" for flag in (*option.flags[-1:], *option.off[-1:], *option.see))
    effect = f"{option.help}. {option.note}" if option.note else option.help
    cells = (names, option.values or _values(field), option.default or _default(field), flags, effect)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _values(field: Field) -> str:
    if field.type is bool:
        return "boolean"
    if field.type is int:
        return _range(field, INT32_MAX) or "whole number"
    return _range(field, FLOAT_MAX) or "number" if field.type is float else "array"


def _range(field: Field, most: float) -> str:
    if field.above is not None:
        return f"more than {field.above:g}"
    low, high = (None if bound is None or abs(bound) >= most else bound for bound in (field.low, field.high))
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return f"{low:g} or more" if low is not None else ""


def _default(field: Field) -> str:
    value = field.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}"
    if not value:
        return "none"
    return ", ".join(f"`{one if one.isidentifier() else json.dumps(one)}`" for one in value)
