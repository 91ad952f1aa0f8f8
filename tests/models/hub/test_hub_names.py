"""What names of files say, hostile ones too. The rules are llama-server's."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.models.hub import names

GEMMA = [
    "README.md",
    "gemma-3-4b-it-BF16-00001-of-00002.gguf",
    "gemma-3-4b-it-BF16-00002-of-00002.gguf",
    "gemma-3-4b-it-IQ4_XS.gguf",
    "gemma-3-4b-it-Q4_K_M.gguf",
    "gemma-3-4b-it-Q8_0.gguf",
    "imatrix_unsloth.gguf",
    "mmproj-BF16.gguf",
    "mmproj-F32.gguf",
]


@pytest.mark.parametrize(
    ("quant", "chosen"),
    [
        ("", "gemma-3-4b-it-Q4_K_M.gguf"),
        ("q8_0", "gemma-3-4b-it-Q8_0.gguf"),
        ("BF16", "gemma-3-4b-it-BF16-00001-of-00002.gguf"),
        ("Q5_K_M", None),
        ("Q4", None),
        (".*", None),
    ],
)
def test_the_model_of_a_quantization(quant: str, chosen: str | None) -> None:
    assert names.choose_model(GEMMA, quant) == chosen


def test_without_a_quantization_the_usual_ones_come_first() -> None:
    assert names.choose_model(["a-F16.gguf", "b/a-Q8_0.gguf"]) == "b/a-Q8_0.gguf"
    assert names.choose_model(["mmproj-a.gguf", "a-F16.gguf", "a-F32.gguf"]) == "a-F16.gguf"
    assert names.choose_model(["a-00002-of-00002.gguf", "a-00001-of-00002.gguf"]) == "a-00001-of-00002.gguf"
    assert names.choose_model(["mmproj-a.gguf", "mtp-a.gguf", "config.json"]) is None


def test_the_quantizations_that_there_are() -> None:
    assert names.quants(GEMMA) == ["BF16", "IQ4_XS", "Q4_K_M", "Q8_0"]


def test_all_parts_of_a_split_model() -> None:
    assert names.shards_of(GEMMA, GEMMA[1]) == GEMMA[1:3]
    assert names.shards_of(GEMMA, GEMMA[3]) == [GEMMA[3]]
    with pytest.raises(ValueError, match=r"00002-of-00002\.gguf is missing"):
        names.shards_of(GEMMA[:2], GEMMA[1])
    with pytest.raises(ValueError, match="more than 1000 parts"):
        names.shards_of([], "a-00001-of-99999.gguf")


@pytest.mark.parametrize(
    ("paths", "model", "chosen"),
    [
        (GEMMA, "gemma-3-4b-it-Q4_K_M.gguf", "mmproj-BF16.gguf"),
        (["mmproj-F32.gguf", "mmproj-Q8_0.gguf"], "m-Q4_K_M.gguf", "mmproj-Q8_0.gguf"),
        (["mmproj-F16.gguf", "q4/mmproj-F32.gguf"], "q4/m-Q4_K_M.gguf", "q4/mmproj-F32.gguf"),
        (["mmproj-F16.gguf", "q8/mmproj-F16.gguf"], "q4/m-Q4_K_M.gguf", "mmproj-F16.gguf"),
        (["q8/mmproj-F16.gguf", "mmproj.txt"], "q4/m-Q4_K_M.gguf", None),
    ],
)
def test_the_projector_of_a_model(paths: list[str], model: str, chosen: str | None) -> None:
    assert names.choose_projector(paths, model) == chosen


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x.gguf", "a/../../x.gguf", "a//x.gguf", "./x.gguf", "a/.", "a\\x.gguf", "a\0.gguf",
     "a\n.gguf", "a\x1b[2J.gguf", "x" * 256, "/".join(["x" * 200] * 6), "\u202egguf", "\ud800.gguf"],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_none(path: str) -> None:
    assert not names.is_safe(path)


@given(st.text(st.sampled_from("./\\\0a~é\n"), max_size=12))
def test_whatever_is_safe_lies_below_the_folder(path: str) -> None:
    if names.is_safe(path):
        assert os.path.normpath(f"/folder/{path}") == f"/folder/{path}"
        assert "\0" not in path


@pytest.mark.parametrize("path", ["a.gguf", "Q4_K_M/a b-00001-of-00002.gguf", "..a/b..gguf", "модель.gguf"])
def test_other_names_are_safe(path: str) -> None:
    assert names.is_safe(path)
