"""What headers ask of a file, as RFC 9110 has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.http.files.conditions import Unsatisfiable, accepts_gzip, http_date, is_unchanged, wanted_range

TAG = '"abc"'
MODIFIED = 1_700_000_000
NOW = MODIFIED + 100.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            ("gzip", True),
            ("br, gzip;q=0.5", True),
            ("GZIP", True),
            ("x-gzip", True),
            ("*", True),
            (" gzip ; q=1 ", True),
        ),
        *(("", False), ("br", False), ("identity", False), ("gzip;q=0", False), ("gzip;q=0.000", False)),
        *(
            ("*;q=0", False),
            ("gzip;q=0, *", False),
            ("*;q=0, gzip", True),
            ("gzip;q=x", False),
            ("gzipped", False),
        ),
    ],
)
def test_gzip(text: str, expected: bool) -> None:
    assert accepts_gzip(text) is expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        *((TAG, True), (f"W/{TAG}", True), (f'"x", {TAG}', True), (f'W/"x",{TAG} , "y"', True), ("*", True)),
        *(
            ('"x"', False),
            ("", False),
            ("abc", False),
            ('"ab', False),
            (f"x, {TAG}", False),
            ('"abc-gzip"', False),
        ),
    ],
)
def test_tags(wanted: str, expected: bool) -> None:
    assert is_unchanged({"if-none-match": wanted}, TAG, MODIFIED) is expected
    assert is_unchanged({"if-none-match": wanted}, "W/" + TAG, MODIFIED) is expected  # compared weakly
    # A tag decides alone, whatever the date says.
    headers = {"if-none-match": wanted, "if-modified-since": http_date(MODIFIED + 9)}
    assert is_unchanged(headers, TAG, MODIFIED) is expected


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        *((http_date(MODIFIED), True), (http_date(MODIFIED + 1), True), (http_date(MODIFIED - 1), False)),
        *(("yesterday", False), ("", False), ("Mon, 99 Nov 9999999 00:00:00 GMT", False)),
    ],
)
def test_dates(since: str, expected: bool) -> None:
    assert is_unchanged({"if-modified-since": since}, TAG, MODIFIED) is expected


def ranged(text: str, size: int = 10, **more: str) -> tuple[int, int] | None:
    headers = {"range": text, **{name.replace("_", "-"): value for name, value in more.items()}}
    return wanted_range(headers, size, TAG, MODIFIED, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("bytes=0-", (0, 10)), ("bytes=0-0", (0, 1)), ("bytes=3-5", (3, 6)), ("bytes=9-", (9, 10))),
        *(("bytes=3-99", (3, 10)), ("bytes=-3", (7, 10)), ("bytes=-99", (0, 10)), ("bytes= 1-2 ", (1, 3))),
        *(("bytes=5-3", None), ("bytes=-", None), ("bytes=a-b", None), ("items=0-1", None), ("", None)),
        *(("bytes=0-1,4-5", None), ("bytes=" + "9" * 30 + "-", None), ("bytes=0-1;x", None)),
    ],
)
def test_ranges(text: str, expected: tuple[int, int] | None) -> None:
    assert ranged(text) == expected


@pytest.mark.parametrize(
    ("text", "size"), [("bytes=10-", 10), ("bytes=99-100", 10), ("bytes=-0", 10), ("bytes=0-", 0)]
)
def test_ranges_behind_the_end(text: str, size: int) -> None:
    with pytest.raises(Unsatisfiable):
        ranged(text, size)


@pytest.mark.parametrize(
    ("first", "is_part"),
    [
        (TAG, True),
        (f"W/{TAG}", False),
        ('"x"', False),
        (http_date(MODIFIED), True),
        (http_date(MODIFIED + 1), False),
    ],
)
def test_a_part_only_of_the_same_file(first: str, is_part: bool) -> None:
    assert (ranged("bytes=0-0", if_range=first) is not None) is is_part


def test_a_fresh_date_and_a_weak_tag_prove_nothing() -> None:
    headers = {"range": "bytes=0-0", "if-range": http_date(MODIFIED)}
    assert wanted_range(headers, 10, TAG, MODIFIED, MODIFIED + 0.5) is None
    headers = {"range": "bytes=0-0", "if-range": "W/" + TAG}
    assert wanted_range(headers, 10, "W/" + TAG, MODIFIED, NOW) is None


@given(st.text(st.characters(max_codepoint=255)), st.integers(0, 100))
def test_no_header_raises(text: str, size: int) -> None:
    for name in ("if-none-match", "if-modified-since"):
        is_unchanged({name: text}, TAG, MODIFIED)
    accepts_gzip(text)
    try:
        part = wanted_range({"range": "bytes=" + text, "if-range": TAG}, size, TAG, MODIFIED, NOW)
    except Unsatisfiable:
        return
    assert part is None or 0 <= part[0] < part[1] <= size
    wanted_range({"range": "bytes=0-0", "if-range": text}, 10, TAG, MODIFIED, NOW)
