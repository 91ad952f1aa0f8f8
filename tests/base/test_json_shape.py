"""The limits on JSON's structure: counted as the module says, whatever the bytes are."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from llamad.base.json_shape import DEPTH_MAX, TOO_DEEP, TOO_MANY, VALUES_MAX, values_left

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
    assert values_left(b"9" * 1_032) == VALUES_MAX - 1 - 1_000


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
