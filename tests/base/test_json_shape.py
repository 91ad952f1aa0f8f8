"""The limits on JSON's structure: counted as the module says, whatever the bytes are."""

import json
import sys
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.base.json_shape import DEPTH_MAX, TOO_DEEP, TOO_MANY, VALUES_MAX, decoded_bytes, values_left

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text('ab"\\[{:,]} \n', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text('ab"\\:', max_size=3), inner, max_size=5)
    ),
    max_leaves=30,
)


def weight(value):
    if isinstance(value, str):
        return 2
    if isinstance(value, list):
        return 4 + sum(map(weight, value))
    if isinstance(value, dict):
        return 4 + sum(6 + weight(one) for one in value.values())
    return 1


def depth(value):
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


@given(values, st.sampled_from([None, 1]))
def test_values_count_by_their_cost(value, indent):
    data = json.dumps(value, indent=indent).encode()
    n = weight(value)
    assert values_left(data) == VALUES_MAX - n
    assert values_left(memoryview(data), n) == 0
    assert values_left(data, n - 1) == TOO_MANY


@given(st.binary(max_size=40))
def test_any_bytes_are_counted(data):
    assert values_left(data) <= VALUES_MAX
    assert values_left(b'{"a":"' + data) <= VALUES_MAX


@settings(max_examples=20)
@given(st.lists(st.sampled_from([b"[", b'{"a":']), min_size=DEPTH_MAX + 1, max_size=DEPTH_MAX + 1))
def test_depth_is_bounded(opened):
    assert values_left(b"".join(opened)) == TOO_DEEP
    assert values_left(b"".join(opened[1:])) > 0
    # Brackets in a string are text.
    assert values_left(b'"' + b"[" * 1000 + b'\\"' + b"{" * 1000 + b'"') == VALUES_MAX - 2


def test_text_that_is_slow_to_decode_counts_too():
    assert values_left(b'"' + b"a" * 1_000_000 + b'"') == VALUES_MAX - 2
    assert values_left(b'"' + "é".encode() * 1_000 + b'"') == VALUES_MAX - 2 - 100
    assert values_left(b'"' + b"\\n" * 1_000 + b'"') == VALUES_MAX - 2 - 100
    assert values_left(b'"' + b"\\u00e9" * 1_000 + b'"') == VALUES_MAX - 2 - 100 - 300
    assert values_left(b"9" * 1_032) == VALUES_MAX - 13 - 1_000


@pytest.mark.parametrize(
    ("number", "cost"),
    [
        (b"-123456789012345678", 1),
        (b"12345678901234567890", 13),
        (b"-0.00012345678901234567", 1),
        (b"1234567.8901234567", 1),
        (b"9007199254740993.0", 13),
        (b"562949953421312.0625", 13),
        (b"1e-05", 18),
        (b"1E+23", 36),
        (b"1e300", 313),
        (b"5e-324", 337),
        (b"1e0000000000000300", 313),
        (b"1e99999", 413),
        (b"true", 1),
        (b"false", 1),
    ],
)
def test_numbers_that_are_hard_to_round_count_more(number, cost):
    assert values_left(b"[%b]" % number, 4 + cost) == 0
    assert values_left(b"[%b]" % number, 3 + cost) == TOO_MANY


@pytest.mark.parametrize(
    "number", [b"1e300", b"1.2345678901234567e-300", b"1e23", b"9007199254740993.0", b"562949953421312.0625"]
)
def test_no_numbers_within_the_limit_take_long(number):
    """400,000 times 1e300 held the GIL for 4 s."""
    n = (VALUES_MAX - 4) // (VALUES_MAX - values_left(number))
    body = b"[" + b",".join([number] * n) + b"]"
    assert values_left(body) >= 0
    t_start = time.thread_time()
    msgspec.json.decode(body)
    assert time.thread_time() - t_start < 0.1


def test_what_clients_send_is_within_the_limits():
    for body in (
        {"prompt": [131_071] * 131_072},
        {"input": ["a text to embed"] * 2_048},
        {"logit_bias": [[i, -1.5] for i in range(65_536)]},
        {"messages": [{"role": "user", "content": "hello"}] * 19_000},
        {"tools": [{"name": "f", "parameters": {f"p{i}": {"type": "string"} for i in range(100)}}] * 128},
        {"prompt": "word " * 2_000_000},
    ):
        assert values_left(json.dumps(body).encode()) >= 0


def size(value):
    """The memory of decoded JSON, if no two values are the same object."""
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(size(key) + size(one) for key, one in value.items())
    if isinstance(value, list):
        return sys.getsizeof(value) + sum(map(size, value))
    return sys.getsizeof(value)


@pytest.mark.parametrize(
    "value",
    [
        [[i, i / 7] for i in range(5000)],
        [{"a": i} for i in range(5000)],
        [{f"key {k}": f"text {i}" for k in range(6)} for i in range(2000)],
        {f"key {i}": i for i in range(20_000)},
        [[] for _ in range(5000)],
        ["\U0001f600" + "a" * 1000 for _ in range(100)],
        ["ä" * 1000 for _ in range(100)],
        ["x" * 100_000],
        list(range(10**9, 10**9 + 20_000)),
    ],
    ids=lambda value: json.dumps(value)[:20],
)
@pytest.mark.parametrize("ascii", [False, True])
def test_decoded_values_take_no_more_than_is_counted(value, ascii):
    data = json.dumps(value, ensure_ascii=ascii).encode()
    decoded = msgspec.json.decode(data)
    assert size(decoded) <= decoded_bytes(data) < (30 if ascii else 8) * size(decoded)


@given(values)
def test_whatever_is_decoded_takes_no_more_than_is_counted(value):
    data = json.dumps(value).encode()
    assert size(msgspec.json.decode(data)) <= decoded_bytes(data) + 200


def test_what_is_not_decoded_counts_nothing():
    assert decoded_bytes(b"[" * (DEPTH_MAX + 1)) == 0
    assert decoded_bytes(b"[" + b"1," * VALUES_MAX + b"1]") == 0
