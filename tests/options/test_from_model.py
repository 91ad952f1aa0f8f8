"""The sampling defaults in a model's metadata."""

import pytest

from llamad.options.from_model import defaults_in
from llamad.options.model_keys import SAMPLING_KEYS


def test_every_key():
    texts = dict.fromkeys(SAMPLING_KEYS, "1") | {"sequence": "top_k;temp", "temp": "0.600000"}
    found, warnings = defaults_in(texts)
    assert not warnings
    assert set(found) == set(SAMPLING_KEYS.values())
    assert (found["samplers"], found["temperature"]) == (("top_k", "temperature"), 0.6)
    assert (found["top_k"], type(found["top_k"]), type(found["top_p"])) == (1, int, float)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("temp", "warm"),
        ("temp", "true"),
        ("temp", "nan"),
        ("temp", "inf"),
        ("temp", "1e300"),
        ("temp", ""),
        ("top_k", "4.5"),
        ("top_k", "99999999999"),
        ("top_p", "1.500000"),
        ("min_p", "-0.1"),
        ("penalty_repeat", "0"),
        ("penalty_last_n", "-2"),
        ("mirostat", "3"),
        ("sequence", ""),
        ("sequence", "top_k;cosmic"),
        ("sequence", "top_k;" * 1000),
    ],
)
def test_what_cannot_be_used_is_named_and_left_out(key, text):
    found, warnings = defaults_in({key: text, "top_p": "0.5"} if key != "top_p" else {key: text})
    assert found == ({"top_p": 0.5} if key != "top_p" else {})
    (warning,) = warnings
    assert f"general.sampling.{key} is ignored" in warning
    assert len(warning) < 160
