"""Forms as clients send them, and as nobody should."""

import pytest

from llamad.http import multipart
from llamad.http.multipart import FormError, boundary_of, parts

TEXT = b'Content-Disposition: form-data; name="a"\r\n\r\n'
FILE = (
    b'Content-Disposition: form-data; name="f"; filename="x;\\"y\\".wav"\r\nContent-Type: audio/wav\r\n\r\n'
)


def read(body, boundary=b"b"):
    return [(part.name, part.is_file, bytes(part.data)) for part in parts(body, boundary)]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"--b\r\n" + TEXT + b"one\r\n--b--\r\n", [("a", False, b"one")]),
        (
            b"--b\r\n" + TEXT + b"\r\n--b\r\n" + FILE + b"\r\n--\r\n-b\r\n\r\n--b--",
            [("a", False, b""), ("f", True, b"\r\n--\r\n-b\r\n")],
        ),
        (b"--b \t\r\n" + TEXT + b"-b\r\n--b--", [("a", False, b"-b")]),
        (b"\r\n--b\r\n" + TEXT + b"one\r\n--b--epilogue", [("a", False, b"one")]),
        (b"preamble\r\n--b\r\ncontent-disposition:form-data;name=a\r\n\r\n1\r\n--b--", [("a", False, b"1")]),
        (b"--b--", []),
        # A field without data, whose boundary takes the blank line's end for its own.
        (b"--b\r\n" + TEXT + b"--b--", [("a", False, b"")]),
    ],
)
def test_forms(body, found):
    assert read(body) == found
    assert read(memoryview(body)) == found


def test_a_boundary_across_windows(monkeypatch):
    whole = b"--bound\r\n" + FILE + bytes(100) + b"\r\n--bound\r\n" + TEXT + b"x" * 50 + b"\r\n--bound--"
    for n in range(1, 40):
        monkeypatch.setattr(multipart, "WINDOW", n)
        assert read(whole, b"bound") == [("f", True, bytes(100)), ("a", False, b"x" * 50)]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "does not begin"),
        (b"--c\r\n" + TEXT, "does not begin"),
        (b"--b", "without its closing"),
        (b"--b\r", "without its closing"),
        (b"--b\r\n", "headers do not end"),
        (b"--b\r\n" + TEXT + b"one", "without its closing"),
        (b"--b\r\n" + TEXT + b"one\r\n--b", "without its closing"),
        (b"--b\r\n" + TEXT + b"one\r\n--b\r\n", "headers do not end"),
        (b"--b\r\n" + TEXT + b"one\r\n--bc\r\n", "must end its line"),
        (b"--b\n" + TEXT, "must end its line"),
        (b"--b\r\nx: " + b"y" * 5000 + b"\r\n\r\n\r\n--b--", "headers do not end"),
        (b"--b\r\n\r\none\r\n--b--", "headers"),
        (b"--b\r\nx: y\r\n\r\none\r\n--b--", "no Content-Disposition"),
        (b"--b\r\nContent-Disposition: form-data\r\n\r\none\r\n--b--", "has no name"),
        (b"--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\none\r\n--b--", "is broken"),
        (b'--b\r\nContent-Disposition: form-data; name="a\r\n\r\none\r\n--b--', "is broken"),
        (b"--b\r\n" + TEXT[:-2] + TEXT + b"one\r\n--b--", "headers are broken"),
        (b"--b\r\n" + TEXT[:-2] + b" folded\r\n\r\none\r\n--b--", "headers are broken"),
        (b"--b\r\n" + TEXT[:-2] + b"x: \0\r\n\r\none\r\n--b--", "headers are broken"),
        (b"--b\r\n" + TEXT[:-2] + b"x: \xff\r\n\r\none\r\n--b--", "not UTF-8"),
        (b"--b\r\n" + TEXT[:-2] + b"Content-Transfer-Encoding: base64\r\n\r\n\r\n--b--", "'base64'"),
        ((b"--b\r\n" + TEXT + b"one\r\n") * 65 + b"--b--", "more than 64 fields"),
    ],
)
def test_broken_forms(body, says):
    with pytest.raises(FormError, match=says):
        read(body)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data;charset=utf-8; Boundary="a b\'c";', b"a b'c"),
        ("multipart/form-data", "a boundary"),
        ("multipart/form-data; boundary=", "is broken"),
        ('multipart/form-data; boundary=""', "a boundary"),
        (f"multipart/form-data; boundary={'x' * 71}", "a boundary"),
        ("multipart/form-data; boundary=a; boundary=b", "is broken"),
        ('multipart/form-data; boundary="a\r\nb"', "a boundary"),
        ("multipart/form-data; boundary=ä", "a boundary"),
        ("multipart/mixed; boundary=a", "must be multipart/form-data"),
        ("application/json", "must be multipart/form-data"),
        ("", "must be multipart/form-data"),
    ],
)
def test_boundaries(given, found):
    if isinstance(found, bytes):
        assert boundary_of(given) == found
    else:
        with pytest.raises(FormError, match=found):
            boundary_of(given)
