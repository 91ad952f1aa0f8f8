"""The built-in template behind a Jinja text is the one that llama.cpp takes: both write the same."""

from __future__ import annotations

import pytest
from support.llama_chat import applied

from llamad.chat.template import ChatTemplate, builtin, recognized
from llamad.chat.template.recognize import _MARKS

MESSAGES = [
    {"role": role, "content": f" The {role}'s text. "} for role in ("system", "user", "assistant", "user")
]


def rendered(source: str) -> str | None:
    template = recognized(source)
    return None if template is None else ChatTemplate(template).render(MESSAGES, add_generation_prompt=True)


def test_the_templates_of_known_models(sources: dict[str, str]) -> None:
    differ = [name for name, source in sources.items() if rendered(source) != applied(source, MESSAGES, True)]
    assert differ == []
    n_known = sum(recognized(source) is not None for source in sources.values())
    assert 20 < n_known < len(sources)


@pytest.mark.parametrize("marks", [marks for _, marks in _MARKS], ids=" ".join)
def test_every_mark(marks: tuple[str, ...]) -> None:
    source = "{" + " ".join(marks) + "}"
    expected = applied(source, MESSAGES, True)
    assert expected is not None
    assert rendered(source) == expected


def test_nothing_else_is_recognized() -> None:
    assert recognized("{{ messages }}") is None
    assert applied("{{ messages }}", MESSAGES, True) is None
    assert recognized("{{ '<|im_start|>' }}") == builtin("chatml")
