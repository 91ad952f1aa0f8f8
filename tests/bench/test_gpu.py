"""bench/gpu: its parts, and all of it but the device: a model of random weights, served and measured."""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.live_daemon import model_path

from bench.device import __main__ as program
from bench.device import build, letters, model, run, table, work
from bench.device.deadline import RUN_AGAIN, Deadline, OutOfTimeError
from bench.errors import BenchError


def flags_of(*arguments: str, path: Path) -> argparse.Namespace:
    path.write_bytes(b"GGUF")
    flags = program.parser().parse_args(["run", "--model", str(path), *arguments])
    program.check_run(flags)
    return flags


def test_no_two_prompts_begin_alike(tmp_path: Path) -> None:
    flags = flags_of("--rounds", "3", "--streams", "64", path=tmp_path / "m")
    (point,) = work.points(flags)
    sent = [*point.warm_up.bodies, *point.main.bodies]
    assert len(point.main.bodies) == 192
    assert len({body["prompt"][0] for body in sent}) == len(sent)
    assert {len(body["prompt"]) for body in sent} == {64}
    assert (point.n_slots, point.n_ctx_slot) == (64, 256)


def test_prompts_are_shorter_by_a_part_of_their_own(tmp_path: Path) -> None:
    flags = flags_of("--streams", "64", "--prompt-tokens", "100", "--shorter", "0.5", path=tmp_path / "m")
    lengths = [len(body["prompt"]) for body in work.points(flags)[0].main.bodies]
    assert 50 <= min(lengths) < 60 < 90 < max(lengths) <= 100
    assert lengths == [len(body["prompt"]) for body in work.points(flags)[0].main.bodies]


def test_a_prefix_is_shared_in_a_round_and_new_in_the_next(tmp_path: Path) -> None:
    flags = flags_of("--scenario", "prefix", "--rounds", "2", "--streams", "4", path=tmp_path / "m")
    (point,) = work.points(flags)
    prompts = [body["prompt"] for body in point.main.bodies]
    assert [len({tuple(p[:2000]) for p in some}) for some in (prompts[:4], prompts[4:])] == [1, 1]
    assert prompts[0][0] != prompts[4][0]
    assert len({p[2000] for p in prompts}) == 8


def test_each_dialect_is_asked_in_its_own_words(tmp_path: Path) -> None:
    keys: dict[str, Any] = {}
    for path in ("/completion", "/v1/completions", "/v1/chat/completions"):
        flags = flags_of("--path", path, "--options", '{"top_k": 0}', path=tmp_path / "m")
        keys[path] = work.body(flags, 1, [5, 6], 7)
        assert (keys[path]["top_k"], keys[path]["stream"]) == (0, True)
    assert keys["/completion"]["n_predict"] == keys["/v1/completions"]["max_tokens"] == 7
    assert keys["/v1/chat/completions"]["messages"][0]["role"] == "user"
    assert keys["/v1/chat/completions"]["stream_options"] == {"include_usage": True}


def test_results_are_kept_and_a_line_cut_off_is_none(tmp_path: Path) -> None:
    flags = flags_of("--streams", "1,8", path=tmp_path / "m")
    one, other = work.points(flags)
    results = run.Results(tmp_path / "r.jsonl")
    results.add(run.key_of(flags, one, table.LLAMAD), [{"tokens_per_s": 1.0}])
    results.add(
        run.key_of(flags, one, table.LLAMAD), [{"tokens_per_s": 2.0, "steady_tokens_per_s": math.nan}]
    )
    with (tmp_path / "r.jsonl").open("a") as out:
        out.write('{"key": {"half')
    again = run.Results(tmp_path / "r.jsonl")
    found = again.get(run.key_of(flags, one, table.LLAMAD))
    assert found is not None
    assert found[0]["tokens_per_s"] == 2.0
    assert math.isnan(found[0]["steady_tokens_per_s"])
    assert again.get(run.key_of(flags, other, table.LLAMAD)) is None
    assert again.get(run.key_of(flags, one, table.SERVER)) is None
    flags.label = "another state"
    assert again.get(run.key_of(flags, one, table.LLAMAD)) is None


def test_decoding_alone_is_read() -> None:
    told = 'noise\n{"pp": 64, "tg": 128, "pl": 8, "t": 2.0, "speed_tg": 3500.5}\n'
    assert run.batched_measures(told, "") == [
        {"decode_tokens_per_s": 3500.5, "steady_tokens_per_s": 3500.5, "tokens_per_s": 512.0}
    ]
    with pytest.raises(BenchError, match="no room"):
        run.batched_measures("", "first\nno room\n")


def test_the_table_has_medians_and_ratios() -> None:
    def rounds(*values: float) -> list[dict[str, float]]:
        return [{"decode_tokens_per_s": value} for value in values]

    found = {
        ("8 streams", table.BATCHED): rounds(1000),
        ("8 streams", table.SERVER): rounds(300, 500, 400),
        ("8 streams", table.LLAMAD): rounds(900, math.nan, 900),
        ("32 streams", table.LLAMAD): rounds(2000),
    }
    lines = table.whole("streams", found, None).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head = ["", "batched-bench", "llama-server", "llamad", "llamad / batched-bench", "llamad / llama-server"]
    assert head in cells
    assert ["8 streams", "1,000", "400", "900", "0.900", "2.250"] in cells
    assert ["32 streams", "-", "-", "2,000", "-", "-"] in cells


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
    flags = program.parser().parse_args(["build", "--from", str(tmp_path), "--cuda", "100"])
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "--model", "missing.gguf"], "missing.gguf is not a file"),
        (["run", "--model", "MODEL", "--streams", "0"], "--streams must be at least 1"),
        (["run", "--model", "MODEL", "--programs", "other"], "there is no other"),
        (["run", "--model", "MODEL", "--programs", "llama-server", "--server", "/nowhere"], "cannot be run"),
        (["model", "--vocab", "MODEL", "--out", "OUT", "--shape", "giant"], "none of tiny"),
        (["model", "--out", "OUT", "--shape", "260k", "--n-vocab", "32000"], "needs a --vocab"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"MODEL": tmp_path / "m", "OUT": tmp_path / "out"}
    paths["MODEL"].write_bytes(b"GGUF")
    results = ["--results", str(tmp_path / "r")] if arguments[0] == "run" else []
    assert program.main([*(str(paths.get(word, word)) for word in arguments), *results]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_random_model_is_written_served_and_measured(
    fake_program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """llamad itself beside a fake llama-server; what is measured once is not measured again."""
    out = tmp_path / "tiny.gguf"
    written = ["model", "--vocab", model_path(), "--out", str(out), "--shape", "tiny", "--n-vocab", "49408"]
    assert program.main(written) == 0
    assert "49,408 tokens" in capsys.readouterr().out
    results = tmp_path / "results.jsonl"
    arguments = ["run", "--model", str(out), "--server", fake_program, "--programs", "llama-server,llamad"]
    arguments += ["--streams", "2", "--predict", "8", "--rounds", "2", "--prompt-tokens", "12"]
    arguments += ["--threads", "1", "--ngl", "0", "--results", str(results)]
    assert program.main(arguments) == 0
    first = capsys.readouterr().out
    assert "the load generator alone counts" in first
    assert "2 streams, llamad: " in first
    ours = [json.loads(line) for line in results.read_text().splitlines()][1]
    assert ours["key"]["program"] == "llamad"
    for one in ours["rounds"]:
        assert (one["tokens"], one["prompt_tokens"], one["prompt_computed"]) == (16, 24, 24)
    assert program.main(arguments) == 0
    again = capsys.readouterr().out
    assert "2 streams, llamad: " not in again
    assert again.splitlines()[1:] == first.splitlines()[-len(again.splitlines()) + 1 :]


def test_a_small_model_with_a_vocabulary_of_its_own_takes_turns(
    fake_program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No other model is needed for it. Each round meets both programs, and so does a second command."""
    out = tmp_path / "260k.gguf"
    assert program.main(["model", "--out", str(out), "--shape", "260k", "--type", "f32"]) == 0
    results = tmp_path / "results.jsonl"
    arguments = ["run", "--model", str(out), "--server", fake_program, "--programs", "llama-server,llamad"]
    arguments += ["--streams", "2", "--predict", "8", "--rounds", "3", "--prompt-tokens", "12", "--turns"]
    arguments += ["--ids", "259,512", "--threads", "1", "--ngl", "0", "--results", str(results)]
    assert program.main(arguments) == 0
    assert "2 streams, llamad: " in capsys.readouterr().out
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line["key"]["program"] for line in lines] == ["llama-server", "llamad"]
    assert [one["prompt_tokens"] for one in lines[1]["rounds"]] == [24, 24, 24]
    assert program.main(arguments) == 0
    assert len(results.read_text().splitlines()) == 2


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """One that has ended may still be listed, until the process that inherited it looks."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def test_what_was_started_ends_with_the_measurement(fake_program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.device", "run", "--model", model_path(), "--server", fake_program]
    command += ["--programs", "llama-server", "--scenario", "requests", "--streams", "0", "--seconds", "60"]
    command += ["--threads", "1", "--ngl", "0", "--results", str(tmp_path / "results.jsonl")]
    measuring = subprocess.Popen(command, cwd=program.CHECKOUT, stdout=subprocess.DEVNULL)
    try:
        # The server, and beside it the generator.
        started: list[int] = []
        t_end = time.monotonic() + 60
        while len(started) < 2 and time.monotonic() < t_end and measuring.poll() is None:
            time.sleep(0.02)
            started = children(measuring.pid)
        assert len(started) == 2
        measuring.terminate()
        assert measuring.wait(30) == 128 + signal.SIGTERM
    finally:
        measuring.kill()
        measuring.wait()
    t_end = time.monotonic() + 30
    while any(is_running(pid) for pid in started):
        assert time.monotonic() < t_end
        time.sleep(0.02)


def test_a_made_vocabulary_spells_every_text() -> None:
    texts = letters.pieces(253)
    assert len(set(texts)) == 253
    assert set("abcdefghijklmnopqrstuvwxyz.") < set(texts)
