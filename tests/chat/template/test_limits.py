"""Hostile templates and messages end: by time, by size, without filling the memory, in any thread.

Each runs in a child whose memory is limited and which is killed when it hangs; it fails the test only then, so that
a slow machine is not taken for a bug."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llamad.chat.template import ChatTemplate, TemplateError

CHECKOUT = Path(__file__).parents[3]
USER = [{"role": "user", "content": "hi"}]

# Many turns, of which each is quick.
LONG = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops whose test refuses all": "{% for a in range(99999) %}{% for b in range(99999) if b < 0 %}{% endfor %}"
    "{% endfor %}",
    "a loop over a text": "{% for a in 'a' * 9999999 %}{% for b in 'a' * 9999999 %}{% endfor %}{% endfor %}",
    "a recursive loop": "{% for a in [range(9999)] * 9 recursive %}{% if a is iterable %}{{ loop(a) }}{% else %}"
    "{% for x in range(99999) %}{% endfor %}{% endif %}{% endfor %}",
    "macros that call twice": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "filters in filters": "{{ ([range(99999)] * 99999)|map('list')|map('sum')|sum }}",
    "filters that find nothing": "{% for a in range(99999) %}{{ range(99999)|select('gt', 1000000)|first }}"
    "{% endfor %}",
    "sorting by a long path": "{{ range(99999)|sort(attribute='a.' * 9999)|length }}",
    "large texts compared": "{% set a = 'a' * 9999999 %}{% for i in range(99999) %}"
    "{% if a ~ 'b' == a ~ 'c' %}{% endif %}{% endfor %}",
    "searching a large text": "{% set a = 'a' * 9999999 %}{% for i in range(99999) %}{% if a.find('b') > 0 %}x"
    "{% endif %}{% endfor %}",
    "strip tags": "{{ ('<!--x-->' * 999999)|striptags }}",
    "strip tags by method": "{{ (('<!--x-->' * 999999)|safe).striptags() }}",
    "urlize": "{{ ('http://a ' * 999999)|urlize }}",
    "wordwrap": "{{ ('a ' * 999999)|wordwrap(1) }}",
    "title": "{{ ('aB ' * 999999)|title }}",
    "a list as a message": "{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}"
    "{% endfor %}{{ raise_exception(n.a) }}",
    "loop.changed": "{% set n = namespace(a=(1,), b=(1,)) %}{% for i in range(99) %}{% set n.a = (n.a, n.a) %}"
    "{% set n.b = (n.b, n.b) %}{% endfor %}{% for x in [n.a, n.b] %}{{ loop.changed(x) }}{% endfor %}",
    "a filter's comparisons": "{% set n = namespace(a=(1,), b=(1,)) %}{% for i in range(99) %}"
    "{% set n.a = (n.a, n.a) %}{% set n.b = (n.b, n.b) %}{% endfor %}{{ [n.a]|select('eq', n.b)|list|length }}",
    "punycode": "{{ ('é' * 999999).encode('punycode') }}",
}
# One operation that would take all the memory, or sharing that makes little look like much.
LARGE = {
    "times": "{{ 'a' * 10000000000 }}",
    "times, the other way": "{{ 10000000000 * 'a' }}",
    "a list times": "{{ ([0] * 10000000000)|length }}",
    "doubled by plus": "{% set n = namespace(a='a' * 99) %}"
    "{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor %}",
    "doubled by tilde": "{% set n = namespace(a='ab') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "a list doubled": "{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = n.a + n.a %}{% endfor %}",
    "doubled by a set block": "{% set n = namespace(a='ab') %}{% for i in range(99) %}{% set n.a %}{{ n.a }}{{ n.a }}"
    "{% endset %}{% endfor %}",
    "doubled by a macro": "{% macro m(a) %}{{ a }}{{ a }}{% endmacro %}{% set n = namespace(a='ab') %}"
    "{% for i in range(99) %}{% set n.a = m(n.a) %}{% endfor %}",
    "doubled by join": "{% set n = namespace(a='ab') %}{% for i in range(99) %}{% set n.a = [n.a, n.a]|join %}"
    "{% endfor %}",
    "doubled by format": "{% set n = namespace(a='ab') %}{% for i in range(99) %}"
    "{% set n.a = '{0}{0}'.format(n.a) %}{% endfor %}",
    "doubled by replace": "{% set n = namespace(a='ab') %}{% for i in range(99) %}"
    "{% set n.a = n.a.replace('a', n.a) %}{% endfor %}",
    "doubled in a dict": "{% set n = namespace(a={}) %}{% for i in range(99) %}{% set n.a = {'a': n.a, 'b': n.a} %}"
    "{% endfor %}{{ n.a|tojson }}",
    "lists in lists": "{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor %}"
    "{{ n.a }}",
    "tuples compared": "{% set n = namespace(a=(1,), b=(1,)) %}{% for i in range(99) %}{% set n.a = (n.a, n.a) %}"
    "{% set n.b = (n.b, n.b) %}{% endfor %}{{ n.a == n.b }}",
    "tuples as keys": "{% set n = namespace(a=(1,)) %}{% for i in range(99) %}{% set n.a = (n.a, n.a) %}{% endfor %}"
    "{{ {n.a: 1} }}",
    "tuples as a name": "{% set n = namespace(a=(1,)) %}{% for i in range(99) %}{% set n.a = (n.a, n.a) %}{% endfor %}"
    "{{ {}[n.a] }}{{ {}.get(n.a) }}",
    "a namespace in itself": "{% set n = namespace() %}{% set n.a = [n, n] %}{{ n }}",
    "many large texts": "{% set n = namespace(a=[]) %}{% for i in range(9999) %}"
    "{% set n.a = n.a + ['a' * (9999999 + i)] %}{% endfor %}",
    "many large slices": "{% set t = 'a' * 9999999 %}{% set n = namespace(a=[]) %}{% for i in range(9999) %}"
    "{% set n.a = n.a + [t[i:]] %}{% endfor %}",
    "power": "{{ 10 ** 1000000000 }}",
    "power of powers": "{{ 10 ** (10 ** (10 ** 10)) }}",
    "numbers squared": "{% set n = namespace(a=12345678) %}"
    "{% for i in range(99) %}{% set n.a = n.a * n.a %}{% endfor %}",
    "a number out of a text": "{{ ('f' * 9999999)|int(base=16) // 3 }}",
    "percent": "{{ '%9999999999d' % 1 }}",
    "percent with a star": "{{ '%*d' % (9999999999, 1) }}",
    "percent filter": "{{ '%9999999999d'|format(1) }}",
    "percent of a mapping": "{{ ('%(a)s' * 99999) % {'a': 'a' * 99999} }}",
    "format": "{{ '{:9999999999}'.format(1) }}",
    "format with a field": "{{ '{:{}}'.format(1, 9999999999) }}",
    "format many times": "{{ ('{0}' * 9999).format('a' * 99999) }}",
    "format map": "{{ '{a:9999999999}'.format_map({'a': 1}) }}",
    "format with an attribute": "{{ ['{:9999999999}']|map(attribute='format')|first }}"
    "{{ (['{:9999999999}']|map(attribute='format')|first)(1) }}",
    "center": "{{ 'a'|center(9999999999) }}",
    "center by method": "{{ 'a'.center(9999999999) }}{{ 'a'.zfill(9999999999) }}",
    "tabs": "{{ '\\t'.expandtabs(999999999) }}",
    "indent": "{{ 'a\\nb'|indent(9999999999) }}",
    "indent by json": "{{ [1]|tojson(indent=9999999999) }}",
    "separators": "{{ ([1] * 9999)|tojson(separators=('a' * 99999, 'b')) }}",
    "join": "{{ ([1] * 99999)|join('a' * 99999) }}",
    "join by method": "{{ ('a' * 99999).join(['a'] * 99999) }}{{ ('a' * 99999).join(range(99)|map('string')) }}",
    "join what a filter gives": "{{ ''.join((['a' * 9999999] * 9999)|map('upper')) }}",
    "replace": "{{ ('a' * 99999)|replace('a', 'a' * 99999) }}",
    "replace nothing": "{{ ('a' * 99999).replace('', 'a' * 99999) }}",
    "translate": "{{ ('a' * 999999).translate({97: 'a' * 999999}) }}",
    "batch": "{{ [1]|batch(9999999999, 0)|list|length }}",
    "slice": "{{ [1]|slice(9999999999, 0)|list|length }}",
    "split": "{{ (' a' * 8000000).split()|length }}",
    "list of a text": "{{ ('é' * 9999999)|list|length }}",
    "sum of lists": "{{ ([[1] * 9999] * 9999)|sum(start=[])|length }}",
    "round": "{{ 1|round(9999999999, 'floor') }}",
    "to bytes": "{{ (1).to_bytes(9999999999, 'big') }}",
    "wrap string": "{{ ('a ' * 9999)|wordwrap(1, wrapstring='a' * 99999) }}",
    "output": "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
    "date": "{{ strftime_now('%c' * 9999999) }}",
    "range": "{{ range(9999999999)|list }}",
}
CHILD = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from llamad.chat.template import ChatTemplate, TemplateError
for name, source in json.loads(sys.stdin.read()).items():
    try:
        text = ChatTemplate(source, seconds=0.1).render([{"role": "user", "content": "hi"}])
        print(json.dumps([name, "rendered", len(text)]), flush=True)
    except TemplateError as e:
        print(json.dumps([name, "refused", str(e)]), flush=True)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(["", "peak", peak]), flush=True)
"""


def answers(sources: dict[str, str]) -> dict[str, list[object]]:
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-2000:]
    return {name: rest for name, *rest in map(json.loads, child.stdout.splitlines())}


def test_what_is_long_ends() -> None:
    results = answers(LONG)
    assert {name: results[name][0] for name in LONG} == dict.fromkeys(LONG, "refused")
    for name in ("nested loops", "filters in filters", "macros that call twice"):
        assert results[name][1] == "rendering took longer than 0.1 s"


def test_what_is_large_is_never_made() -> None:
    results = answers(LARGE)
    assert {name: results[name][0] for name in LARGE} == dict.fromkeys(LARGE, "refused")
    assert "nested too deeply" not in str(
        [results[name] for name in LARGE if name != "a namespace in itself"]
    )
    peak = results[""][1]
    assert isinstance(peak, int)
    assert peak < 2_000_000  # KiB: "many large texts" may keep a gigabyte, nothing else comes near


def test_hostile_messages() -> None:
    """The template is an honest one; the messages are nested, long or odd."""
    template = ChatTemplate(
        "{% for m in messages %}{{ m.role }}:{{ m.content|tojson }}{% endfor %}", size=10_000
    )
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    for content in (deep, "a" * 20_000, ["a"] * 20_000):
        with pytest.raises(TemplateError):
            template.render([{"role": "user", "content": content}])
    with pytest.raises(TemplateError, match="larger than 10,000"):
        template.render(USER * 10_000)


def test_an_honest_long_conversation_is_within_the_limits() -> None:
    source = (
        "{% set n = namespace(seen=[], text='') %}{% for m in messages %}{% set n.seen = n.seen + [m.role] %}"
        "{% if m == messages[-1] %}LAST{% endif %}{{ m.role }}: {{ m.content|trim }}\n{% endfor %}{{ n.seen|length }}"
    )
    messages = [{"role": "user", "content": "word " * 400}] * 1500
    text = ChatTemplate(source).render(messages)
    assert text.endswith("1500")
    assert len(text) > 1500 * 1999


def test_the_output_may_be_as_large_as_the_limit() -> None:
    template = ChatTemplate("{{ messages[0].content }}", size=1000)
    assert len(template.render([{"role": "user", "content": "é" * 1000}])) == 1000
    with pytest.raises(TemplateError, match="larger than 1,000 characters"):
        template.render([{"role": "user", "content": "é" * 1001}])


@pytest.mark.parametrize(
    "made",
    ["'a' * 9000", "'a' ~ ' ' * 9000", "[1] * 500", "{'a': [1], 'b': (1, i)}", "namespace()", "messages[:]"],
)
def test_many_values_within_the_limit_are_too_many(made: str) -> None:
    """Each could be kept, so their sum counts."""
    source = "{% for i in range(99999) %}{% set a = " + made + " %}{% endfor %}"
    with pytest.raises(TemplateError, match="too many large"):
        ChatTemplate(source, size=10_000).render(USER)


def test_a_source_that_is_too_long() -> None:
    with pytest.raises(TemplateError, match="at most"):
        ChatTemplate("a" * (1 << 21))
