"""The grammar of a preset, case by case, as llama-server has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.models.catalogue import ini
from llamad.models.catalogue.errors import CatalogueError


def sections(text: str) -> dict[str, dict[str, str]]:
    parsed = ini.parse(text, "models.ini")
    return {name: {key: value.text for key, value in one.values.items()} for name, one in parsed.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n  \n\t\n", {}),
        ("; comment\n   # indented comment", {}),
        ("[a]", {"a": {}}),
        ("[a]\nk = v", {"a": {"k": "v"}}),
        ("[a]\r\nk = v\r\n", {"a": {"k": "v"}}),
        ("[a]\rk = v\r", {"a": {"k": "v"}}),
        ("[a]\nk=v", {"a": {"k": "v"}}),
        ("[a]\nk\t=\tv\t \n", {"a": {"k": "v"}}),
        ("[a]\nk =", {"a": {"k": ""}}),
        ("[a]\nk = ; none", {"a": {"k": ""}}),
        ("[a]\nk = v ; comment", {"a": {"k": "v"}}),
        ("[a]\nk = v#comment", {"a": {"k": "v"}}),
        ("[a]\nk = v w  x ", {"a": {"k": "v w  x"}}),
        ("[a]\nk = a = b", {"a": {"k": "a = b"}}),
        ('[a]\nk = "quoted; text"', {"a": {"k": '"quoted'}}),
        ("[a]\nk = [b]", {"a": {"k": "[b]"}}),
        ("[a] ; comment\nk = v", {"a": {"k": "v"}}),
        ("[a]# comment", {"a": {}}),
        ("[ a b ]", {"a b": {}}),
        ("[a=b;c#d]", {"a=b;c#d": {}}),
        ("[a]\n_k.x-1 = v", {"a": {"_k.x-1": "v"}}),
        ("[a]\nk = 1\nk = 2", {"a": {"k": "2"}}),
        ("[a]\nk = 1\n[b]\n[a]\nl = 2", {"a": {"l": "2"}, "b": {}}),
        ("k = v\n[a]", {"default": {"k": "v"}, "a": {}}),
        ("k = v\n[default]\nl = w", {"default": {"l": "w"}}),
        ("[*]\nk = v", {"*": {"k": "v"}}),
        ("[übung]\nk = ☃", {"übung": {"k": "☃"}}),
    ],
)
def test_grammar(text: str, expected: dict[str, dict[str, str]]) -> None:
    assert sections(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" [a]", "line 1: '[a]' is indented"),
        ("[a]\n k = v", "line 2: 'k = v' is indented"),
        ("[a]\nk", "line 2: 'k' is not [section]"),
        ("[a]\n1k = v", "line 2: '1k = v' is not [section]"),
        ("[a]\n--k = v", "line 2: '--k = v' is not [section]"),
        ("[a]\n= v", "line 2: '= v' is not [section]"),
        ("[a] b", "line 1: '[a] b' is not a section"),
        ("[a", "line 1: '[a' is not a section"),
        ("[]", "line 1: '[]' is not a section"),
        ("[ ]", "line 1: the section's name is empty"),
        ("[a\x07]", "line 1: the section's name is empty or has control"),
        ("\n\n[a]\n\n!\n", "line 5: '!'"),
        ("[a]\r\n!\r\n", "line 2: '!'"),
        ("[a]\nk = \0", "line 2: a zero byte"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(CatalogueError) as error:
        ini.parse(text, "models.ini")
    assert str(error.value).startswith(f"models.ini, {message}")
    assert str(error.value).isprintable()


def test_values_know_their_lines() -> None:
    one = ini.parse("\n[a]\n\nk = v\n", "models.ini")["a"]
    assert (one.line, one.values["k"].line) == (2, 4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/b:q4_k_m", "a/b:Q4_K_M"),
        ("a/b:Q4_K_M", "a/b:Q4_K_M"),
        ("a/b:UD-Q4_K_XL", "a/b:Q4_K_XL"),
        ("a/b:x.q8_0", "a/b:Q8_0"),
        ("a:b:q4", "a:b:Q4"),
        ("a:odd!", "a:ODD!"),
        ("Plain-q4", "Plain-q4"),
    ],
)
def test_the_quantization_in_a_name_is_canonical(name: str, expected: str) -> None:
    assert list(ini.parse(f"[{name}]", "models.ini")) == [expected]


PIECES = st.sampled_from(
    ["[", "]", "a", "k", " ", "\t", "=", ";", "#", "\n", "\r", "*", ":", "é", "\0", "\x0b", "-"]
)


@given(st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(max_size=60)))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parsed = ini.parse(text, "models.ini")
    except CatalogueError:
        return
    for name, one in parsed.items():
        assert name == one.name
        assert name.isprintable()
        assert name
        for value in one.values.values():
            assert not set(value.text) & set(";#\n\r")
            assert value.text == value.text.strip(" \t")
