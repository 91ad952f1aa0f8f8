"""What templates may use, what they are told, and how their errors read."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest

from llamad.chat.template import ChatTemplate, TemplateError

USER = [{"role": "user", "content": "hi"}]
NOW = datetime(2024, 7, 26, 13, 5)


def shown(source: str, **given: Any) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(USER, **given)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("{{ messages[0].content }}{{ messages[0]['role'] }}", "hiuser"),
        ("{{ missing }}|{{ missing is defined }}|{{ tools is none }}|{{ documents is none }}", "|False|True|True"),
        ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
         "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "013"),
        ("{% generation %}a{{ messages[0].content }}{% endgeneration %}b", "ahib"),
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"),
        ("{{ {'a': '<é&\\'>', 'b': [1, none, true]}|tojson }}", '{"a": "<é&\'>", "b": [1, null, true]}'),
        ("{{ {'b': 1, 'a': [2]}|tojson(indent=2, sort_keys=true) }}", '{\n  "a": [\n    2\n  ],\n  "b": 1\n}'),
        ("{{ {'b': 'é'}|tojson(true, separators=(',', ':')) }}", '{"b":"\\u00e9"}'),
        ("{{ strftime_now('%d %b %Y %H:%M') }}", "26 Jul 2024 13:05"),
        ("{% set ns = namespace(n=1) %}{% for i in [2, 3] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"),
        ("{{ ' a-b '.strip().split('-')[::-1]|join('+') }}{{ 'abc'.startswith('ab') }}", "b+aTrue"),
        ("{% for k, v in {'x': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'x': 2}.get('y', 3) }}", "x13"),
        ("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}", "1213"),
        ("{{ '{:>3}|{a!r}'.format(1, a='x') }}{{ '%03d' % 7 }}{{ 'x' ~ 1 ~ none }}", "  1|'x'007x1None"),
        ("{{ [[1], [2]]|sum(start=[]) }}{{ [{'a': 1}, {'a': 2}]|sum(attribute='a') }}", "[1, 2]3"),
        ("{{ messages|map(attribute='role')|list }}{{ messages|selectattr('role', 'eq', 'user')|list|length }}",
         "['user']1"),
        ("{{ dict(a=1).a }}{{ messages == messages[:1] }}{{ 'i' in messages[0].content }}", "1TrueTrue"),
    ],
)  # fmt: skip
def test_language(source: str, text: str) -> None:
    assert shown(source, now=NOW) == text


def test_variables_reach_the_template() -> None:
    source = "{{ enable_thinking }}{{ tools|length }}{{ add_generation_prompt }}{{ bos_token }}"
    given: dict[str, Any] = {
        "enable_thinking": False,
        "bos_token": "B",
        "add_generation_prompt": 1,
        "messages": 2,
    }
    text = shown(source, kwargs=given, tools=[{}], add_generation_prompt=False)
    assert text == "False1FalseB"


def test_templates_know_the_day() -> None:
    template = ChatTemplate("{{ date_string }}|{{ datetime }}|{{ strftime_now('%Y') }}")
    messages = [{"role": "user", "content": "x"}]
    assert template.prompt(messages, now=datetime(2026, 3, 5)) == "05 Mar 2026|Mar 05 2026|2026"
    assert template.prompt(messages, kwargs={"date_string": "today"}).startswith("today|")


def test_reasoning_goes_by_either_name() -> None:
    template = ChatTemplate("{{ messages[0].thinking }}|{{ messages[0].reasoning_content }}")
    for name in ("thinking", "reasoning", "reasoning_content"):
        assert template.render([{"role": "assistant", "content": "", name: "hm"}]) == "hm|hm"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('Only user and\nassistant!') }}", "Only user and assistant!"),
        (
            "a\n{% if %}",
            "template syntax error, line 2: Expected an expression, got 'end of statement block'",
        ),
        ("\n\n{{ nothing() }}", "template error, line 3: 'nothing' is undefined"),
        ("{{ raise_exception('a' * 5000) }}", "a" * 1000 + " ..."),
        ("{% include 'x' %}", "template error, line 1: no loader for this environment specified"),
        ("{{ 1 / 0 }}", "template error, line 1: division by zero"),
        (
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "the template or the messages are nested too deeply",
        ),
        ("{{ " + "(" * 2000 + ")" * 2000 + "}}", "template syntax error: nested too deeply"),
    ],
)
def test_errors(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        shown(source)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "source",
    [
        "{% set messages[0].content = 'x' %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{{ messages|attr('__class__') }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ ('{0.__class__.__mro__}'|attr('format'))('') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ namespace(_x=1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ lipsum(100000) }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    """Nothing leads out of it and nothing given is changed: an error, or nothing written."""
    messages = [{"role": "user", "content": "hi"}]
    try:
        text = ChatTemplate(source).render(messages)
    except TemplateError:
        text = ""
    assert text == ""
    assert messages == USER


def test_two_renderings_at_once_do_not_meet() -> None:
    """The budget is the thread's: one that fails leaves the other alone."""
    busy = ChatTemplate("{% for i in range(2000) %}{{ messages[0].content }}{% endfor %}")
    small = ChatTemplate("{{ 'a' * 1000 }}", size=100)
    prompts: list[str] = []
    threads = [threading.Thread(target=lambda: prompts.append(busy.render(USER))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        with pytest.raises(TemplateError):
            small.render(USER)
    for thread in threads:
        thread.join()
    assert prompts == ["hi" * 2000] * 3
