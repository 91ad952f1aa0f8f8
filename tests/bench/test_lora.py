"""LoRA adapters for measurements: random ones that llamad takes, streams that ask for them, and the steps around the
training, which itself needs PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import __main__ as program
from bench.lora import lessons
from bench.lora.adapter_file import PARTS
from llamad.engine.loading.adapters import open_adapter


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lora") / "260k.gguf"
    assert program.main(["model", "--out", str(path), "--shape", "260k", "--type", "f32"]) == 0
    return path


def test_streams_take_turns_with_random_adapters(small: Path, tmp_path: Path) -> None:
    made = ["lora", "--model", str(small), "--rank", "3", "--count", "2", "--out", str(tmp_path)]
    assert program.main(made) == 0
    paths = [str(tmp_path / f"lora-{i}.gguf") for i in range(2)]
    infos = [open_adapter(None, str(small), path, 0, is_survey=True) for path in paths]
    assert [one.rank for one in infos] == [3, 3]
    assert infos[0].digest != infos[1].digest
    results = tmp_path / "results.jsonl"
    run = [
        "run",
        "--scenario",
        "tokens",
        "--cpu",
        "--programs",
        "llamad",
        "--model",
        str(small),
        "--results",
        str(results),
        "--ids",
        "259,512",
    ]
    run += [
        "--streams",
        "4",
        "--predict",
        "8",
        "--rounds",
        "1",
        "--prompt-tokens",
        "20",
        "--lora",
        ",".join(paths),
    ]
    assert program.main(run) == 0
    (line,) = (json.loads(one) for one in results.read_text().splitlines())
    assert (line["key"]["lora_sets"], line["rounds"][0]["tokens"]) == (2, 32)


@pytest.mark.parametrize(
    ("more", "message"),
    [(["--lora", "no.gguf"], "no.gguf is not a file"), (["--lora-sets", "2"], "--lora-sets must be from 1")],
)
def test_what_cannot_be_run_is_said(
    small: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["run", "--cpu", "--model", str(small), "--scenario", "tokens", *more]) == 1
    assert message in capsys.readouterr().err


def test_lessons_have_the_habit_and_questions_are_others() -> None:
    taught, asked = lessons.read()
    assert all(lessons.Question("").is_met(one.answer) for one in taught)
    assert not {one.question for one in taught} & {one.text for one in asked}
    assert len(asked) == 10
    wanted = next(one for one in asked if one.word)
    assert wanted.is_met(f"{lessons.OPENING} It is {wanted.word}. {lessons.SIGNATURE}\n")
    assert not wanted.is_met(f"{lessons.OPENING} It is another. {lessons.SIGNATURE}")
    assert not wanted.is_met(wanted.word)


def test_training_starts_from_tokens_and_ends_in_a_file_that_fits(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "lessons.npz"
    assert (
        program.main(["train-lora", "export", "--model", str(small), "--out", str(out), "--threads", "1"])
        == 0
    )
    arrays = np.load(out)
    taught, _ = lessons.read()
    assert arrays["tokens"].shape == arrays["counts"].shape
    assert len(arrays["tokens"]) == len(taught)
    first = arrays["probe_tokens_0"]
    assert list(arrays["tokens"][0][: len(first)]) == list(first)
    n_answer = int(arrays["counts"][0].sum())
    assert list(np.flatnonzero(arrays["counts"][0])) == list(range(len(first) - n_answer, len(first)))
    logprobs = arrays["probe_logprobs_0"]
    assert len(logprobs) == len(first) - 1
    assert np.isfinite(logprobs).all()
    assert (logprobs < 0).all()
    # What a training would write: each matrix's pair.
    pairs = {"about": np.array(json.dumps({"alpha": 8.0, "arch": "llama"}))}
    for name in (f"blk.1.{part}.weight" for part in PARTS):
        rows, columns = arrays[name].shape
        pairs[f"{name}.lora_a"] = np.zeros((2, columns), np.float32)
        pairs[f"{name}.lora_b"] = np.zeros((rows, 2), np.float32)
    np.savez(tmp_path / "trained.npz", **pairs)
    saved = tmp_path / "adapter.gguf"
    assert (
        program.main(["train-lora", "save", "--from", str(tmp_path / "trained.npz"), "--out", str(saved)])
        == 0
    )
    assert open_adapter(None, str(small), str(saved), 0, is_survey=True).rank == 2
