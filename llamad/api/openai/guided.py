"""Reads vLLM's fields that constrain the output: `structured_outputs`, and `guided_*`, their older form.

Pure functions on the event loop. Raises every 400 and 501 about these fields; a grammar covers the whole text.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from llamad.api.request import constraints
from llamad.api.request.errors import ApiError, bad
from llamad.base import json_shape
from llamad.chat.schema import text_grammars

REGEX_MAX = 1024  # in characters; it is converted on the event loop

Schema = Annotated[
    dict[str, Any] | str | bool | None, Meta(description="a JSON schema, as an object or a string")
]


class StructuredOutputs(Struct, forbid_unknown_fields=True):
    json: Schema = None
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    json_object: bool = False
    structural_tag: Any = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False


# Constraints that llamad's grammars cannot express.
_MISSING = ("structural_tag", "whitespace_pattern", "disable_any_whitespace", "disable_additional_properties")
_KINDS = ("json", "regex", "choice", "grammar", "json_object")


def source(sent: StructuredOutputs, field: str, strict: bool) -> constraints.ConstraintSource | None:
    """Return the constraint, or None if there is none. `field` is the beginning of a field's name in errors, and ends
    with a dot or an underscore."""
    for name in _MISSING:
        if getattr(sent, name):
            raise ApiError(501, f'"{field}{name}" is not supported; leave it out, or send a "grammar"')
    given = [name for name in _KINDS if getattr(sent, name) not in (None, (), False)]
    if sent.json is False:
        given.insert(0, "json")
    if not given:
        return None
    if len(given) > 1:
        raise bad(
            " and ".join(f'"{field}{name}"' for name in given) + " cannot be combined: send one of them"
        )
    named = field + given[0]
    if given[0] == "json":
        constraint = constraints.schema_source(_schema(sent.json, named), strict)
    elif given[0] == "json_object":
        constraint = constraints.schema_source({"type": "object"}, strict)
    elif given[0] == "choice":
        constraint = constraints.choices_source(sent.choice, named)
    else:
        constraint = constraints.ConstraintSource(_grammar(sent, named))
    return msgspec.structs.replace(constraint, named=named)


def _schema(value: Any, named: str) -> Any:
    """Return the schema. An empty schema means any value in vLLM."""
    if not isinstance(value, str):
        return True if value == {} else value
    if json_shape.values_left(value.encode("utf-8", "replace")) < 0:
        raise bad(f'"{named}" has too many values, or is nested too deeply')
    try:
        schema = msgspec.json.decode(value)
    except (ValueError, RecursionError) as error:
        raise bad(f'"{named}" is not valid JSON: {error}') from None
    if not isinstance(schema, dict | bool):
        raise bad(f'"{named}" must be a JSON schema')
    return True if schema == {} else schema


def _grammar(sent: StructuredOutputs, named: str) -> str:
    text = _of_regex(sent.regex, named) if sent.regex is not None else sent.grammar or ""
    if len(text) > constraints.GRAMMAR_CHARS_MAX:
        raise bad(f'"{named}" may make a grammar of at most {constraints.GRAMMAR_CHARS_MAX} characters')
    return text


def _of_regex(pattern: str, named: str) -> str:
    if len(pattern) > REGEX_MAX:
        raise bad(f'"{named}" may have at most {REGEX_MAX} characters, not {len(pattern)}')
    try:
        return text_grammars.of_regex(pattern)
    except text_grammars.Malformed as error:
        raise bad(f'"{named}" is not a regular expression: {error}') from None
    except text_grammars.Unsupported as error:
        raise bad(f'"{named}" cannot be honoured: {error}') from None
