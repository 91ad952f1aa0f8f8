"""What a GPU machine needs, but the device: the build's settings, and models of random weights, served and measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from bench import __main__ as program
from bench import media
from bench.deadline import RUN_AGAIN, Deadline, OutOfTimeError
from bench.errors import BenchError
from bench.gpu import build, letters, model, projector, successors


def test_a_command_that_runs_out_of_time_is_ended_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OutOfTimeError):
        Deadline(0.002).run([sys.executable, "-c", "import time; time.sleep(60)"], {}, "a nap")
    with pytest.raises(BenchError, match="it failed with status 3"):
        Deadline(1).run([sys.executable, "-c", "raise SystemExit(3)"], {}, "it")
    assert program.main(["build", "--cpu", "--minutes", "0"]) == RUN_AGAIN
    assert "run the same command again" in capsys.readouterr().err


def test_a_build_is_told_where_things_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLAMAD_LLAMA_CPP", "LLAMAD_WHEELS", "LLAMAD_CMAKE_ARGS"):
        monkeypatch.delenv(name, raising=False)
    parser = argparse.ArgumentParser()
    build.add_flags(parser)
    flags = parser.parse_args(["--from", str(tmp_path), "--cuda", "100"])
    with pytest.raises(BenchError, match=r"no llama\.cpp\.tar\.xz"):
        build.environment(flags)
    (tmp_path / "llama.cpp.tar.xz").touch()
    (tmp_path / "wheels").mkdir()
    env = build.environment(flags)
    assert env["LLAMAD_WHEELS"] == str(tmp_path / "wheels")
    assert env["LLAMAD_CMAKE_ARGS"] == "-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=100"


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_weights_have_the_deviation_that_is_asked_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType, dequantize

    monkeypatch.setattr(model, "POOL", 1 << 16)
    monkeypatch.setattr(model, "CHUNK", 1000 * 2 * 34)
    weights = model.Weights(kind, 1)
    data = b"".join(weights.chunks(64 * 1024, 0.25))
    assert len(data) == weights.n_bytes(64 * 1024)
    stored = np.frombuffer(data, model.TYPES[kind])
    values = dequantize(stored, GGMLQuantizationType.Q8_0) if kind == "q8_0" else stored
    assert float(np.std(values.astype(np.float32))) == pytest.approx(0.25, rel=0.03)


def test_a_draft_has_the_successors_of_its_model_by_the_share_that_is_asked_for() -> None:
    target = successors.successors(10_000, 1.0, seed=1)
    draft = successors.successors(10_000, 0.7, seed=2)
    assert float((target == draft).mean()) == pytest.approx(0.7, abs=0.02)
    for follower in (target, draft):
        assert sorted(follower) == list(range(10_000))
    token, seen = 0, set()
    while token not in seen:
        seen.add(token)
        token = int(target[token])
    assert len(seen) == 10_000
    embedding, output = successors.rows(1000, 100_000, 1.0, seed=1)
    assert all(
        output[follower] == row
        for follower, row in zip(successors.successors(1000, 1.0, 1), embedding, strict=True)
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--vocab", "MODEL", "--shape", "giant"], "none of tiny"),
        (["--shape", "260k", "--n-vocab", "32000"], "needs a --vocab"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vocab = tmp_path / "m"
    vocab.write_bytes(b"GGUF")
    given = [str(vocab) if word == "MODEL" else word for word in arguments]
    assert program.main(["model", "--out", str(tmp_path / "out"), *given]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_random_model_is_written_served_and_measured(
    fake_program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """llamad itself beside a fake llama-server: with texts, one program after the other; with ids, in turns. The first
    model needs no other, the second takes the first one's vocabulary."""
    small, larger, results = tmp_path / "260k.gguf", tmp_path / "tiny.gguf", tmp_path / "results.jsonl"
    assert program.main(["model", "--out", str(small), "--shape", "260k", "--type", "f32"]) == 0
    written = ["model", "--vocab", str(small), "--out", str(larger), "--shape", "tiny", "--n-vocab", "640"]
    assert program.main(written) == 0
    assert "640 tokens" in capsys.readouterr().out
    common = ["run", "--cpu", "--server", fake_program, "--results", str(results), "--scenario", "tokens"]
    common += ["--streams", "2", "--predict", "8", "--rounds", "2", "--prompt-tokens", "40"]
    texts = ["--model", str(larger), "--programs", "llamad,llama-server", "--no-turns"]
    ids = ["--model", str(small), "--programs", "llama-server,llamad", "--turns", "--ids", "259,512"]
    assert program.main([*common, *texts]) == 0
    assert program.main([*common, *ids]) == 0
    assert capsys.readouterr().out.count("2 streams, llamad: ") == 2
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    names = [line["key"]["program"] for line in lines]
    assert names == ["llamad", "llama-server", "llama-server", "llamad"]
    for line in (lines[0], lines[3]):
        rounds = [(one["tokens"], one["prompt_tokens"], one["prompt_computed"]) for one in line["rounds"]]
        assert rounds == [(16, 80, 80)] * 2


def test_chats_with_images_are_measured_with_a_random_projector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """llamad itself: the image's rows are in the cache the second time, and streams write while others arrive."""
    text, rows, out = tmp_path / "260k.gguf", tmp_path / "mmproj.gguf", tmp_path / "rounds.json"
    monkeypatch.setitem(projector.SHAPES, "tiny", projector.Shape(32, 1, 2, 64, 128, 16, 1))
    assert program.main(["model", "--out", str(text), "--shape", "260k", "--type", "f32"]) == 0
    assert program.main(["projector", "--model", str(text), "--out", str(rows), "--shape", "tiny"]) == 0
    assert "64 rows an image, 64 wide" in capsys.readouterr().out
    flags = ["--model", str(text), "--mmproj", str(rows), "--programs", "llamad", "--cpu", "--json", str(out)]
    flags += ["--streams", "2", "--images", "2", "--size", "96", "--predict", "600", "--rounds", "1"]
    assert program.main(["media", *flags]) == 0
    assert "streams: 2, images of 96 pixels, 2 at once" in capsys.readouterr().out
    (one,) = json.loads(out.read_text())["llamad"]
    assert one["image_rows"] >= 64
    # On a busy machine the streams may have ended before the images come: then there are no gaps beside them.
    assert all(one[key] > 0 for key in media.MEASURES if not key.startswith("gap_"))
    assert all(one[key] >= 0 for key in media.MEASURES)
    assert one["again_computed"] < one["image_rows"]
    assert one["side_first_p50_ms"] <= one["side_first_max_ms"]
    assert program.main(["media", *flags, "--at-once", "3"]) == 1
    assert "multiple of --at-once" in capsys.readouterr().err
    assert program.main(["projector", "--model", str(rows), "--out", str(tmp_path / "other")]) == 1
    assert "not a text model" in capsys.readouterr().err


def test_no_two_images_are_the_same() -> None:
    assert len({media.picture(number, 64, seed) for number in range(3) for seed in (1, 2)}) == 6


def test_a_made_vocabulary_spells_every_text() -> None:
    texts = letters.pieces(253)
    assert len(set(texts)) == 253
    assert set("abcdefghijklmnopqrstuvwxyz.") < set(texts)
