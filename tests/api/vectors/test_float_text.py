"""Vectors as text, and their norms."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.api.vectors.float_text import normalize, to_base64, to_json

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, max_size=50))
def test_json_gives_the_same_floats_back_in_few_digits(values: list[float]) -> None:
    row = np.array(values, np.float32)
    text = to_json(row)
    assert np.array_equal(np.array(json.loads(text), np.float32), row)
    assert len(text) <= 16 * len(values) + 2


def test_json_is_as_short_as_can_be() -> None:
    row = np.array([0.1, -1.1754944e-38, 3.4028235e38, 0.0, -0.0, 100000.0, 1e-7], np.float32)
    assert to_json(row) == b"[0.1,-1.1754944e-38,3.4028235e+38,0,-0,1e+05,1e-07]"
    assert to_json(np.arange(6, dtype=np.float32)[::2]) == b"[0,2,4]"


@given(st.lists(FLOATS, max_size=50))
def test_base64_is_little_endian_floats(values: list[float]) -> None:
    row = np.array(values, np.float32)
    assert base64.b64decode(to_base64(row)) == row.astype("<f4").tobytes()


@pytest.mark.parametrize("kind", [1, 2, 3, 7])
def test_norms(kind: int) -> None:
    rows = np.array([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0], [1e-30, 2e-30, 0.0]], np.float32)
    normalized = normalize(rows, kind)
    sizes = (np.abs(normalized.astype(np.float64)) ** kind).sum(axis=1)
    assert np.allclose(sizes, [1.0, 0.0, 1.0])
    assert normalized[0, 1] < 0 < normalized[0, 0]


def test_the_largest_is_scaled_and_nothing_is() -> None:
    rows = np.array([[3.0, -4.0]], np.float32)
    assert normalize(rows, 0).tolist() == [[24570.0, -32760.0]]
    assert normalize(rows, -1) is rows
