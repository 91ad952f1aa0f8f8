"""The whole program with fakes in place of both servers, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import __main__ as program
from bench import load, memory, programs, scenarios
from bench.client import Client
from bench.deadline import RUN_AGAIN
from bench.errors import BenchError
from bench.load import Group

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(memory, "N_COMPLETIONS", 4)
    monkeypatch.setattr(scenarios, "N_TEXTS", 64)
    monkeypatch.setattr(programs, "made", dict)
    for name in ("LLAMA_SERVER", "LLAMAD_TEST_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fakes(fake_program: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags of a run in which both programs are fakes."""
    monkeypatch.setattr(programs, "llamad_command", lambda: [sys.executable, fake_program])
    return ["--cpu", "--model", model, "--server", fake_program, "--results", str(tmp_path / "results.jsonl")]


def test_the_whole_program_with_a_peer(
    fakes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    flags = ["--quick", "--json", str(out), "--rounds", "2", "--idle-connections", "20", "--seconds", "0.1"]
    assert program.main([*fakes, *flags]) == 0
    told = capsys.readouterr().out
    for scenario in ("idle", "loop", "requests", "startup", "memory"):
        assert f"\n## {scenario}\n" in told
    assert "the load generator alone counts" in told
    assert "make peer" not in told
    points = json.loads(out.read_text())["points"]
    by_point = {(one["scenario"], one["point"]): one for one in points}
    assert len(by_point) == len(points) == 7
    for (scenario, _), one in by_point.items():
        assert [len(rounds) for rounds in one["rounds"].values()] == (
            [1, 1] if scenario == "memory" else [2, 2]
        )
    for path in ("/health", "/tokenize", "/detokenize"):
        ratio = by_point["requests", path]["ratios"]["llama-server"]["requests_per_s"]
        assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    (loop,) = (one for (scenario, _), one in by_point.items() if scenario == "loop")
    assert all(one["tokens"] > 0 and one["prompt_tokens"] == 4 * 16 for one in loop["rounds"]["llamad"])
    (starts,) = (one for (scenario, _), one in by_point.items() if scenario == "startup")
    for rounds in starts["rounds"].values():
        for one in rounds:
            assert 0 < one["listening_ms"] <= one["health_ms"] <= one["start_first_ms"]
    (sizes,) = (one for (scenario, _), one in by_point.items() if scenario == "memory")
    for (one,) in sizes["rounds"].values():
        assert one["idle_answered"] == one["idle_again"] == 20
        assert one["fresh_failed"] == 0
        assert 0 < one["loaded_own"] <= one["loaded_rss"]


@pytest.mark.parametrize("endpoint", ["/completion", "/v1/chat/completions"])
def test_first_tokens_of_an_endpoint(
    fakes: list[str], endpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    flags = ["--scenario", "ttft", "--endpoint", endpoint, "--streams", "3", "--prompt-tokens", "20"]
    flags += ["--rounds", "2", "--programs", "llama-server,llamad", "--json", str(out)]
    assert program.main(["run", *fakes, *flags]) == 0
    assert "| first token mean, ms ↓" in capsys.readouterr().out
    (point,) = json.loads(out.read_text())["points"]
    n_prompt = 20 + endpoint.startswith("/v1/chat")  # the fake's template is one token
    for rounds in point["rounds"].values():
        assert [one["prompt_tokens"] for one in rounds] == [3 * n_prompt] * 2
        assert all(one["first_mean_ms"] >= (50 if "chat" in endpoint else 0) for one in rounds)


def test_a_run_with_a_time_limit_goes_on_where_it_stopped(
    fakes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*fakes, "--quick", "--scenario", "tokens", "--no-turns"]
    assert program.main([*flags, "--minutes", "0"]) == RUN_AGAIN
    assert "run the same command again" in capsys.readouterr().err
    assert program.main([*flags, "--minutes", "8"]) == 0
    first = capsys.readouterr().out
    assert "earlier run" not in first
    assert program.main([*flags, "--minutes", "8"]) == 0
    again = capsys.readouterr().out
    assert again.count("earlier run") == 2
    assert again.partition("##")[2] == first.partition("##")[2]
    assert program.main([*flags, "--minutes", "8", "--again", "llamad"]) == 0
    assert capsys.readouterr().out.count("earlier run") == 1
    assert program.main(flags) == 0
    assert "earlier run" not in capsys.readouterr().out


def test_alone_it_says_how_to_compare(fakes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    del fakes[fakes.index("--server") : fakes.index("--server") + 2]
    assert program.main([*fakes, "--quick", "--scenario", "idle"]) == 0
    told = capsys.readouterr().out
    assert "make peer" in told
    assert "ratio" not in told


def test_both_write_the_same_text(fakes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*fakes[1:5], "--lengths", "16,40"]
    assert program.main(["same-text", *flags]) == 0
    assert capsys.readouterr().out.count(": yes, ") == 4


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "no model"),
        (["--model", "missing.gguf"], "missing.gguf is not a file"),
        (["--model", "MODEL", "--rounds", "0"], "--rounds must be at least 1"),
        (["--model", "MODEL", "--scenario", "tokens", "--streams", "0"], "--streams must be at least 1"),
        (["--model", "MODEL", "--programs", "other"], "there is no other"),
        (["--model", "MODEL", "--scenario", "other"], "there is no other"),
        (["--model", "MODEL", "--programs", "llama-server"], "make peer"),
        (["--model", "MODEL", "--quick", "--server", "/nowhere/llama-server"], "make peer"),
        (
            ["--model", "MODEL", "--quick", "--endpoint", "/v1/chat/completions", "--texts", "ids"],
            "takes text",
        ),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(
    flags: list[str], told: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [model if flag == "MODEL" else flag for flag in flags]
    assert program.main(["run", *given, "--results", str(tmp_path / "r")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_program_that_ends_at_once_shows_its_last_words(
    fakes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"")
    assert program.main([*fakes, "--quick", "--model", str(broken)]) == 1
    assert "the model is broken" in capsys.readouterr().err


def test_a_client_asks_on_and_says_what_was_refused(address: tuple[str, int]) -> None:
    client = Client(address)
    for _ in range(12):  # more than the fake takes on one connection
        assert client.ask("/tokenize", {"content": "some words"}) == {"tokens": [0, 1]}
    with pytest.raises(BenchError, match=r"/completion returned 400: .*refused"):
        client.ask("/completion", {"prompt": "refuse this"})
    client.close()


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """One that has ended may still be listed, until the process that inherited it looks."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def test_what_was_started_ends_with_the_measurement(fake_program: str, model: str, tmp_path: Path) -> None:
    load.streams(None, Group(1, [{"prompt": "one", "n_predict": 1}]))  # it is compiled now
    command = [sys.executable, "-m", "bench", "run", "--cpu", "--model", model, "--server", fake_program]
    command += ["--programs", "llama-server", "--scenario", "requests", "--seconds", "60"]
    command += ["--results", str(tmp_path / "results.jsonl")]
    measuring = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ})
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


def test_another_installation(
    fake_program: str, fakes: list[str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{sys.executable} {fake_program}"
    assert program.main(["installed", "--model", model, "--other", other, "--rounds", "3"]) == 0
    told = capsys.readouterr().out
    assert [line.split("|")[1:3] for line in told.splitlines()[2:]] == [
        [f" {what} ", f" {percent} "]
        for what in ("12 tokens decoded", "prompt of 48")
        for percent in (10, 50)
    ]
