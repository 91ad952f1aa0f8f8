"""Types, strings, numbers, enum and const, one keyword at a time."""

from __future__ import annotations

import calendar
import itertools
import json
import math
import random
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.grammars.reference import Grammar

from llamad.chat.schema import SchemaError, to_grammar
from llamad.chat.schema.check import same

ALL = [None, True, False, 0, -7, 2.5, "x", [], [1, "a"], {}, {"a": 1}]


@pytest.mark.parametrize(
    "schema", [True, {}, {"title": "any", "description": "d", "default": 3, "$comment": "c"}]
)
def test_any_value(hold: Any, schema: Any) -> None:
    deep = [{"a": [{"b": [[], {}]}]}, 1e300, -0.0, 5e-324, 10**30, "é\U0001f999\n\x7f"]
    hold(
        schema,
        [*ALL, *deep],
        [b"", b"nul", b"[1,]", b'{"a"}', b"01", b"1.", b".5", b"+1", b"'x'", b'"a', b"NaN"],
    )


@pytest.mark.parametrize(
    ("kind", "yes"),
    [
        ("null", [None]),
        ("boolean", [True, False]),
        ("integer", [0, -7]),
        ("number", [0, -7, 2.5]),
        ("string", ["x"]),
        ("array", [[], [1, "a"]]),
        ("object", [{}, {"a": 1}]),
        (["string", "null"], ["x", None]),
        (["integer", "number"], [0, -7, 2.5]),
        (["integer", "array"], [0, -7, [], [1, "a"]]),
    ],
)
def test_types(hold: Any, kind: Any, yes: list[Any]) -> None:
    hold({"type": kind}, yes, [value for value in ALL if not any(same(value, v) for v in yes)])


def test_keywords_tell_the_type_where_none_is_given(hold: Any) -> None:
    hold({"properties": {"a": {"type": "null"}}}, [{}, {"a": None}], ["x", 1, [], None])
    hold({"items": {"type": "null"}}, [[], [None]], ["x", {}, None])
    hold({"minLength": 1}, ["x"], ["", 1, None])


def test_nullable(hold: Any) -> None:
    hold({"type": "string", "nullable": True}, ["x", None], [1])
    hold({"type": "string", "nullable": False}, ["x"], [None])
    hold({"$ref": "#/$defs/a", "nullable": True, "$defs": {"a": {"type": "integer"}}}, [1, None], ["x"])
    hold({"allOf": [{"type": "string", "nullable": True}, {"type": ["null", "integer"]}]}, [None], ["x", 1])


def test_string_escapes(hold: Any) -> None:
    yes = [
        rb'"\"\\\/\b\f\n\r\t"',
        rb'"\u0041\u00e9\uFFFF"',
        rb'"\uD83D\uDE00\ud83d\ude00"',
        '"\x7f\u2028"'.encode(),
    ]
    no = [
        rb'"\x"',
        rb'"\u12"',
        rb'"\ud83d"',
        rb'"\ude00"',
        rb'"\ude00\ud83d"',
        rb'"\ud83dx"',
        b'"\n"',
        b'"\x00"',
        b'"\t"',
    ]
    hold({"type": "string"}, yes, [*no, rb'"\ud83d\u0041"', b'"""', rb'"\"'])


def test_lengths_count_characters(hold: Any) -> None:
    yes = [
        "ab",
        "é\U0001f999",
        "\U0001f999\U0001f999\U0001f999",
        "\n\n",
        rb'"\uD83D\uDE00\u0041"'.decode().encode(),
    ]
    hold(
        {"type": "string", "minLength": 2, "maxLength": 3},
        yes,
        ["", "a", "abcd", "\U0001f999", rb'"\uD83D\uDE00"'],
    )
    hold({"type": "string", "minLength": 2.0}, ["ab", "a" * 50], ["a"])
    hold({"type": "string", "maxLength": 0}, [""], ["a"])
    hold({"type": "string", "maxLength": 500}, ["a" * 500], ["a" * 501])


PATTERNS = [
    # pattern, the same for Python, where it differs, alphabet
    ("^[a-c]{2,3}$", None, "abcd"),
    ("b", None, "ab\n"),
    ("^b|c$", None, "abc"),
    ("^(?:a|bc)+$", None, "abc"),
    ("(?:^|c)a(?:b|$)", None, "abc"),
    ("^a*?b+?c??$", None, "abc"),
    ("^(?:a?b?)*$", None, "abc"),
    ("^(?:a*)*b$", None, "ab"),
    ("^[^ab]$", None, 'abé\\"'),
    ("^(?<x>a)(?P<y>b)$", "^(a)(b)$", "ab"),
    ("^\\u0061\\x62\\u{63}$", "^abc$", "abc"),
    ("^\\uD83E\\uDD99$", "^\U0001f999$", "a\U0001f999"),
    ("^[\\w-]{2}$", None, "a-_é "),
    ("^\\d\\D\\S\\s$", "^[0-9][^0-9]\\S\\s$", "1a \n"),
    ("^.$", "^[^\\n\\r\\u2028\\u2029]$", "a\n\r\u2028é"),
    ('^["\\\\/\\n\\t]+$', None, '"\\/\na'),
    ("^a{2}b{0}c{1,}$", None, "abc"),
    ("^x{,2}$", "^x\\{,2}$", "x{,2}"),
    ("^]}$", None, "]}"),
    ("^[]$", "^(?!)$", "a"),
    ("^[^]$", "^[\\s\\S]$", "a\n"),
    ("^[\\b]\\cA\\0$", "^\\x08\\x01\\x00$", "\x00\x01\x08"),
    ("^(a|b|)$", None, "abc"),
    ("", None, "ab"),
    ("a^b", None, "ab"),
    ("$a|^$", None, "ab"),
    ("a.?b.?c", "a[^\\n\\r]?b[^\\n\\r]?c", "abc"),
    ("^[a-z_\\-.]+\\.[^\\W_]$", None, "a_.-"),
]


@pytest.mark.parametrize(("pattern", "python", "alphabet"), PATTERNS)
def test_patterns_as_python_reads_them(hold: Any, pattern: str, python: str | None, alphabet: str) -> None:
    texts = ["".join(t) for n in range(5) for t in itertools.product(alphabet, repeat=n)]
    known = re.compile((python or pattern).replace("$", "\\Z"), re.ASCII)
    yes = [text for text in texts if known.search(text)]
    no = [text for text in texts if not known.search(text)]
    try:
        hold({"type": "string", "pattern": pattern}, yes, no)
    except ValueError:
        assert not yes, pattern


def test_pattern_with_lengths_and_other_patterns(hold: Any) -> None:
    hold({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, ["a", "abc"], ["", "abcd", "A"])
    hold(
        {"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 5},
        ["abab"],
        ["", "ab", "ababab"],
    )
    hold({"type": "string", "pattern": "^[ab]{2}$", "minLength": 1, "maxLength": 9}, ["ab"], ["a", "aba"])
    hold({"type": "string", "pattern": "x", "minLength": 3}, ["axb", "xxxx"], ["x", "ax", "abc"])
    both = {"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string"}
    hold(both, ["az", "a--z"], ["a", "z", "za"])
    hold(
        {"type": "string", "format": "date", "pattern": "^2024-02"},
        ["2024-02-29"],
        ["2024-03-01", "2023-02-01"],
    )


def test_restricted_characters_raw_and_escaped(hold: Any) -> None:
    """json.dumps escapes U+007F, which JSON does not ask for."""
    texts = [
        "\x7f",
        "\x00",
        "\x1f",
        "\x80",
        "\ud7ff",
        "\ue000",
        "\uffff",
        "\U00010000",
        "\U0010ffff",
        '"',
        "\\",
        "/",
    ]
    hold({"type": "string", "pattern": "^[^a]$"}, texts, ["a", rb'"\u0061"', rb'"\ud800"', rb'"\udfff"'])


def test_decimal_pattern_of_pydantic(hold: Any) -> None:
    pattern = "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"
    hold(
        {"type": "string", "pattern": pattern},
        ["1", "-1.50", "+.5", "007."],
        ["", "-", ".", "+.", "1.2.3", "a"],
    )


def test_look_aheads_at_the_start(hold: Any) -> None:
    """As Zod writes the pattern of an email beside its format."""
    mail = "^(?!\\.)(?!.*\\.\\.)([a-z.]*)[a-z]@([a-z]+\\.)+[a-z]{2,}$"
    yes = ["a@b.co", "first.last@mail.example.org"]
    no = [".a@b.co", "a..b@c.de", "a.@b.co", "A@b.co", "a@b"]
    hold({"type": "string", "pattern": mail}, yes, no)
    hold({"type": "string", "pattern": mail, "format": "email"}, yes, no)
    hold(
        {"type": "string", "pattern": "^(?=.*[0-9])(?=.*[)a]).{2,3}$"},
        ["a1", "x)0"],
        ["a", "ab", "11", "a123"],
    )


def test_a_time_beside_a_pattern_may_have_no_offset(hold: Any) -> None:
    pattern = "^(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?$"
    hold(
        {"type": "string", "format": "time", "pattern": pattern}, ["10:30", "10:30:00.5"], ["24:00", "10:30Z"]
    )


def test_calendar(hold: Any) -> None:
    years = [1, 4, 99, 100, 400, 1900, 1999, 2000, 2023, 2024, 2100, 9996, 9999]
    yes, no = (
        [],
        ["0000-01-01", "2024-1-1", "2024-00-01", "2024-13-01", "2024-01-00", "02024-01-01", "2024-01-01 "],
    )
    for year, month in itertools.product(years, range(1, 13)):
        last = calendar.monthrange(year, month)[1]
        yes += [f"{year:04}-{month:02}-{day:02}" for day in (1, 9, 10, 28, last)]
        no += [f"{year:04}-{month:02}-{day:02}" for day in (last + 1, 39)]
    hold({"type": "string", "format": "date"}, yes, no)


def test_time_and_uuid(hold: Any) -> None:
    yes = ["00:00:00Z", "23:59:59.123456+23:59", "12:30:00-00:00"]
    no = ["24:00:00Z", "12:60:00Z", "12:00:60Z", "12:00:00", "12:00Z", "12:00:00.Z", "12:00:00+24:00"]
    hold({"type": "string", "format": "time"}, yes, no)
    stamped = {"type": "string", "format": "date-time"}
    hold(stamped, [f"2024-02-29T{t}" for t in yes], ["2023-02-29T00:00:00Z", "2024-02-29 00:00:00Z"])
    good = "0123abcd-ABCD-4fff-8000-00000000000f"
    hold(
        {"type": "string", "format": "uuid"},
        [good],
        [good[:-1], good.replace("-", ""), good.replace("a", "g")],
    )


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ({"minimum": 0, "maximum": 0}, 0, 0),
        ({"minimum": 3}, 3, None),
        ({"minimum": 100}, 100, None),
        ({"minimum": -17}, -17, None),
        ({"maximum": -4}, None, -4),
        ({"maximum": 1005}, None, 1005),
        ({"minimum": -120, "maximum": 99}, -120, 99),
        ({"minimum": 9, "maximum": 1001}, 9, 1001),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 11}, 1, 10),
        ({"minimum": 0, "exclusiveMinimum": True, "maximum": 10, "exclusiveMaximum": True}, 1, 9),
        ({"minimum": 0, "exclusiveMinimum": False}, 0, None),
        ({"minimum": 0.5, "maximum": 10.0}, 1, 10),
        ({"exclusiveMinimum": -1.5, "exclusiveMaximum": 2.5}, -1, 2),
        ({"minimum": 5, "exclusiveMinimum": 2}, 5, None),
        ({"minimum": 2, "exclusiveMinimum": 5}, 6, None),
        ({"maximum": 200, "format": "int32"}, -(2**31), 200),
        ({"format": "uint8"}, 0, 255),
        ({"maximum": 9, "format": "int16"}, -(2**15), 9),
        ({"multipleOf": 1, "maximum": 2}, None, 2),
    ],
)
def test_integer_bounds(hold: Any, bounds: dict[str, Any], low: int | None, high: int | None) -> None:
    near = {n + d for n in (low or 0, high or 0) for d in range(-130, 131)} | {
        10**6,
        -(10**6),
        2**40,
        -(2**40),
    }
    yes = [n for n in near if (low is None or n >= low) and (high is None or n <= high)]
    hold({"type": "integer", **bounds}, yes, [*(near - set(yes)), b"007", b"1.0", b"1e1", b"--1", b""])


@settings(max_examples=60, deadline=None)
@given(a=st.integers(-(10**19), 10**19), width=st.integers(0, 10**4), seed=st.integers(0, 99))
def test_integer_ranges_are_exact(a: int, width: int, seed: int) -> None:
    grammar = Grammar(to_grammar({"type": "integer", "minimum": a, "maximum": a + width})[0])
    for value in (a, a + width, a + width // 2):
        assert grammar.accepts(str(value))
    for value in (a - 1, a + width + 1, a * 10 + 10**6, -a - 10**6):
        assert grammar.accepts(str(value)) == (a <= value <= a + width)
    source = random.Random(seed)
    for _ in range(5):
        assert a <= int(grammar.sentence(source)) <= a + width


@settings(max_examples=80, deadline=None)
@given(
    bounds=st.dictionaries(
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
        st.integers(-2000, 2000).map(lambda n: n / 100) | st.integers(-12, 12),
        min_size=1,
    ),
    places=st.sampled_from([None, 1, 2]),
    seed=st.integers(0, 99),
)
def test_ranges_of_decimals_are_exact(bounds: dict[str, Any], places: int | None, seed: int) -> None:
    step = {} if places is None else {"multipleOf": 10**-places}

    def fits(text: str) -> bool:
        value = Fraction(text)
        tests = {"minimum": value.__ge__, "maximum": value.__le__}
        tests |= {"exclusiveMinimum": value.__gt__, "exclusiveMaximum": value.__lt__}
        whole = places is None or len(text.partition(".")[2]) <= places
        return whole and all(tests[name](Fraction(str(bound))) for name, bound in bounds.items())

    try:
        grammar = Grammar(to_grammar({"type": "number", **bounds, **step})[0])
    except SchemaError as error:
        if "no JSON value" in error.reason or "is above" in error.reason:
            return
        raise
    source = random.Random(seed)
    for _ in range(5):
        assert fits(grammar.sentence(source))
    for bound in bounds.values():
        for shift in ("0", "0.001", "0.01", "1", "-0.001", "-0.01", "-1", "10", "-10"):
            near = Decimal(str(bound)) + Decimal(shift)
            for text in (str(near), f"{near:.3f}"):
                assert Fraction(text) == 0 or grammar.accepts(text) == fits(text), text


@pytest.mark.parametrize(
    ("name", "yes", "no"),
    [
        (
            "email",
            ["a@b.co", "first.last+tag@mail.example.org"],
            ["a", "@b.co", "a@b", ".a@b.co", "a..b@c.de"],
        ),
        ("hostname", ["localhost", "a-1.example.com"], ["", "-a.de", "a-.de", "a..de", "a_b", "1.2"]),
        ("ipv4", ["0.0.0.0", "192.168.1.255"], ["256.1.1.1", "1.2.3", "01.2.3.4"]),
        (
            "ipv6",
            ["::", "::1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::"],
            [":", "1::2::3", "1:2:3:4:5:6:7", "12345::", "1:2:3:4:5:6:7:8::", "g::"],
        ),
        (
            "uri",
            ["https://a.example:80/b/c?d=e&f#g", "mailto:a@b.co", "file:///etc", "urn:isbn:1"],
            ["a", "//b.co", "http://a b", "http://a:b/", "a:%zz"],
        ),
        ("duration", ["P1D", "P1Y2M3DT4H5M6S", "PT15M", "P2W"], ["P", "PT", "1D", "P1H", "P1W2D", "P1DT"]),
        ("json-pointer", ["", "/a/0", "/~0~1"], ["a", "/~2"]),
        ("uuid4", ["00000000-0000-4000-8000-000000000000"], ["00000000-0000-1000-8000-000000000000"]),
        ("password", ["", "a b"], []),
        ("url", ["https://a.example/b"], ["a"]),
        ("base64", ["", "aGk=", "aGkh", "aA=="], ["a", "aGk", "aB==", "a-b_"]),
        ("base64url", ["", "a-b_"], ["aGk=", "a"]),
        ("cidrv4", ["10.0.0.0/8", "1.2.3.4/32"], ["10.0.0.0", "1.2.3.4/33"]),
        ("cidrv6", ["2001:db8::/32", "::/128"], ["::", "::/129"]),
        ("e164", ["+4912345678"], ["4912345678", "+0123456", "+12"]),
        (
            "ulid",
            ["01ARZ3NDEKTSV4RRFFQ69G5FAV"],
            ["81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU"],
        ),
        ("ipvanyaddress", ["1.2.3.4", "::1"], ["1.2.3", "x"]),
        ("ipvanynetwork", ["10.0.0.0/8", "10.1.2.0/24", "::1/128"], ["10.1.0.0/8", "10.1.2.3/24"]),
    ],
)
def test_formats(hold: Any, name: str, yes: list[str], no: list[str]) -> None:
    schema = {"type": "string", "format": name}
    hold(schema, yes, no)
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    grammar = Grammar(to_grammar(schema)[0])
    source = random.Random(name)
    for _ in range(40):
        validator.validate(json.loads(grammar.sentence(source)))


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"minimum": 0},
        {"exclusiveMinimum": 0},
        {"maximum": 0},
        {"minimum": -90, "maximum": 95},
        {"allOf": [{"multipleOf": 2}]},
    ],
)
def test_multiples(hold: Any, bounds: dict[str, Any]) -> None:
    near = [*range(-130, 131), 10**6, -(10**6), 123456, 7 * 10**12]
    for step in (3, 7, 12, 50, 100):
        both = math.lcm(step, 2) if "allOf" in bounds else step
        low = bounds.get("minimum", bounds.get("exclusiveMinimum", -math.inf - 1) + 1)
        yes = [n for n in near if n % both == 0 and low <= n <= bounds.get("maximum", math.inf)]
        hold({"type": "integer", "multipleOf": step, **bounds}, yes, [n for n in near if n not in yes])


@pytest.mark.parametrize(
    "bounds", [{}, {"minimum": 0}, {"exclusiveMaximum": 0}, {"minimum": -2, "exclusiveMaximum": 7.5}]
)
def test_multiples_of_fractions(hold: Any, bounds: dict[str, Any]) -> None:
    for step in (0.25, 0.5, 2.5, 0.03, 0.125):
        low, high = bounds.get("minimum", -math.inf), bounds.get("exclusiveMaximum", math.inf)
        near = [Fraction(i, 8) for i in range(-100, 101)] + [Fraction(i, 100) for i in range(-60, 61)]
        yes = [n for n in near if n % Fraction(str(step)) == 0 and low <= n < high]
        no = [float(n) for n in near if n not in yes]
        hold({"type": "number", "multipleOf": step, **bounds}, [float(n) for n in yes], no)
    both = {"type": "number", "multipleOf": 0.5, "allOf": [{"multipleOf": 0.75}]}
    hold(both, [0, 1.5, -3], [0.5, 0.75, 2])


def test_a_number_that_must_be_whole_is_an_integer(hold: Any) -> None:
    hold({"type": "number", "multipleOf": 1}, [1, -2], [1.5])


def test_enum_and_const(hold: Any) -> None:
    values = [
        "a",
        "ab",
        "é\U0001f999",
        'q"\\',
        1,
        12,
        2.5,
        None,
        True,
        [],
        [1, {"k": "v"}],
        {"b": [], "a": {}},
    ]
    others = ["", "abc", 2, False, 1.5, [1], {"b": []}]
    hold({"enum": values}, [*values, b'{"b": [], "a": {}}', b'[\n  1,\n  {\n    "k": "v"\n  }\n]'], others)
    for value in values:
        hold({"const": value}, [value], [other for other in values if other is not value])
    hold({"const": 1.0}, [b"1.0", b"1"], [b"true", b"1.5"])
    hold({"enum": [1, 1.0, True]}, [b"1", b"1.0", b"true"])


def test_enum_is_sifted_by_everything_beside_it(hold: Any) -> None:
    numbers = [0, 1, 2, 3, 4, 4.5, "4", None]
    hold({"enum": numbers, "type": "integer"}, [0, 1, 2, 3, 4], [4.5, "4", None])
    hold({"enum": numbers, "multipleOf": 2, "minimum": 1}, [2, 4, "4"], [0, 1, 3, 4.5])
    hold({"enum": numbers, "not": {"type": "number"}}, ["4", None], [1])
    hold(
        {"enum": numbers, "if": {"type": "string"}, "then": {"minLength": 2}, "else": {"maximum": 1}},
        [0, None],
        ["4", 2],
    )
    hold({"enum": ["a", "bb", "c1"], "pattern": "^.$"}, ["a"], ["bb"])
    hold(
        {"enum": [[1], [1, 1], [1, 2]], "uniqueItems": True, "contains": {"const": 2}},
        [[1, 2]],
        [[1], [1, 1]],
    )
    asked = {"dependentRequired": {"a": ["b"]}, "propertyNames": {"maxLength": 1}, "maxProperties": 2}
    values = [{"a": 1}, {"a": 1, "b": 2}, {"cc": 1}, {"b": 1}, {"b": 1, "c": 1, "d": 1}]
    hold({"enum": values, **asked}, [values[1], values[3]], [values[0], values[2], values[4]])
    hold({"allOf": [{"enum": [1, 2, 3]}, {"enum": [3.0, 2, "x"]}]}, [2, 3], [1, "x"])
    hold({"const": {"a": 1}, "properties": {"a": {"anyOf": [{"type": "null"}, {"minimum": 1}]}}}, [{"a": 1}])


def test_many_values_that_begin_alike(hold: Any) -> None:
    values = ["a" * n for n in range(300)] + [str(n) for n in range(300)]
    hold({"enum": values}, values[::7], ["b", "a" * 301, "300"])
