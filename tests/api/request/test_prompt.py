"""api/request/prompt.py: which prompts an array is."""

from typing import Any

import pytest

from llamad.api.request.errors import ApiError
from llamad.api.request.prompt import IdPrompt, split


@pytest.mark.parametrize(
    ("value", "types"),
    [
        ([1, 2], [IdPrompt]),
        ([1, "a"], [list]),
        (["a", "b"], [str, str]),
        ([[1, 2], [1, "a"], "a"], [IdPrompt, list, str]),
    ],
)
def test_prompts_of_token_ids_are_told_from_others(value: Any, types: list[type]) -> None:
    prompts = split(value, 8, 64)
    assert [type(one) for one in prompts] == types
    assert list(prompts) == (value if len(types) > 1 else [value])


@pytest.mark.parametrize("value", [[1, True], [1, None], [1, 2.0], [[1, False]], [[[1]]], [[]], []])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(ApiError) as refusal:
        split(value, 8, 64)
    assert refusal.value.status == 400
