"""Token ids between lists, JSON and int32s: what json and array make of them."""

from __future__ import annotations

import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.tokenizer import token_ids


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_there_and_back(tokens: list[int]) -> None:
    packed = token_ids.pack(tokens, 2**31)
    assert packed == array("i", tokens).tobytes()
    assert token_ids.to_json(packed) == json.dumps(tokens, separators=(",", ":")).encode()


@pytest.mark.parametrize("one", [True, 1.0, "1", None, [1], -1, 100, 2**31, 2**63, 2**200, -(2**200)])
def test_what_is_no_id(one: object) -> None:
    assert token_ids.pack([1, one], 100) is None
    assert token_ids.pack([one, 1], 100) is None
