"""The two promises, on schemas drawn at random: what is generated validates; what is valid is accepted."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema
from jsonschema import Draft202012Validator
from support.grammars.reference import Grammar
from support.schema_strategies import SCHEMAS, closed, compact, in_order

from llamad.chat.schema import SchemaError, to_grammar

CALM = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
CHECKER = Draft202012Validator.FORMAT_CHECKER


def grammar_of(schema: Any) -> Grammar:
    try:
        return Grammar(to_grammar(schema)[0])
    except SchemaError as error:
        if error.reason == "no JSON value can satisfy this schema":
            reject()
        raise


@settings(max_examples=200, deadline=None, suppress_health_check=CALM)
@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
def test_what_is_generated_validates(schema: Any, seed: int) -> None:
    grammar = grammar_of(schema)
    validator = Draft202012Validator(closed(schema), format_checker=CHECKER)
    source = random.Random(seed)
    for _ in range(5):
        text = grammar.sentence(source)
        text.encode()
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # no half surrogate pairs
        validator.validate(value)


@settings(max_examples=120, deadline=None, suppress_health_check=CALM)
@given(schema=SCHEMAS, data=st.data())
def test_what_is_valid_is_accepted(schema: Any, data: st.DataObject) -> None:
    grammar = grammar_of(schema)
    full = closed(schema)
    value = data.draw(from_schema(full, codec="utf-8"))
    assume(Draft202012Validator(full, format_checker=CHECKER).is_valid(value))
    assume(not _has_whole_float(value))
    for text in compact(in_order(full, value)):
        assert grammar.accepts(text), text


def _has_whole_float(value: Any) -> bool:
    """Return whether a number is written as 1.0, which validators take for an integer and grammars do not."""
    if isinstance(value, dict | list):
        return any(map(_has_whole_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and value.is_integer()
