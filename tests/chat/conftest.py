"""Holds one schema's grammar against texts that must be accepted and texts that must not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from support.chats import templates
from support.grammars.reference import Grammar

from llamad.chat.schema import to_grammar

Hold = Callable[..., Grammar]


@pytest.fixture
def hold() -> Hold:
    """hold(schema, yes, no): values are written compactly, texts given as bytes are taken as they are."""

    def check(schema: Any, yes: Iterable[Any] = (), no: Iterable[Any] = ()) -> Grammar:
        text, warnings = to_grammar(schema)
        assert warnings == []
        grammar = Grammar(text)
        for value in yes:
            for written in spelled(value):
                assert grammar.accepts(written), f"refuses {written}\n{text}"
        for value in no:
            for written in spelled(value):
                assert not grammar.accepts(written), f"accepts {written}\n{text}"
        return grammar

    return check


def spelled(value: Any) -> list[str]:
    if isinstance(value, bytes):
        return [value.decode()]
    return [json.dumps(value, separators=(",", ":"), ensure_ascii=flag) for flag in (True, False)]


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """Name to Jinja text, of the templates that llama.cpp's sources hold."""
    return templates.sources()
