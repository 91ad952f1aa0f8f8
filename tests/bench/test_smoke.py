"""The generator against a small fake server, and the whole program with fakes in place of both servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import __main__ as program
from bench import load, memory, programs, wire
from bench.errors import BenchError

TIMEOUT = 30


def completion(prompt: str, n_predict: int) -> bytes:
    return wire.request("POST", "/completion", "test", {"prompt": prompt, "n_predict": n_predict})


def test_streams_are_timed_and_complete(address: tuple[str, int]) -> None:
    # More requests than the fake takes on one connection: the lane has to open others.
    plans = [[completion(f"prompt {lane} {i}", 3 + lane) for i in range(7)] for lane in range(3)]
    run = load.run_streams(address, plans, TIMEOUT)
    streams = [wire.stream(exchange) for exchange in run.exchanges]
    assert sorted(stream.n_tokens for stream in streams) == [3] * 7 + [4] * 7 + [5] * 7
    assert {stream.content for stream in streams if stream.n_tokens == 4} == {"one two é four "}
    assert run.n_connects == 6
    for stream in streams:
        assert len(stream.times) == stream.n_tokens
        assert run.t_start <= stream.t_sent <= stream.times[0]
        assert stream.times == sorted(stream.times)
        assert stream.times[-1] <= stream.t_end <= run.t_end
    assert run.cpu_s > 0


def test_requests_are_repeated_until_the_time_is_over(address: tuple[str, int]) -> None:
    data = wire.request("POST", "/tokenize", "test", {"content": "some words"})
    run = load.run_requests(address, [data, data], 4, 0.2, TIMEOUT)
    assert len(run.latencies) >= 4
    assert run.wall_s > 0
    assert run.n_connects >= 4
    assert all(latency > 0 for latency in run.latencies)


def test_a_refused_request_ends_the_run(address: tuple[str, int]) -> None:
    with pytest.raises(BenchError, match="refused"):
        load.run_streams(address, [[completion("refuse this", 1)], [completion("fine", 1)]], TIMEOUT)


def test_an_error_inside_a_stream_is_found(address: tuple[str, int]) -> None:
    run = load.run_streams(address, [[completion("fail in the middle", 1)]], TIMEOUT)
    with pytest.raises(BenchError, match="broken"):
        wire.stream(run.exchanges[0])


def test_a_server_that_is_gone_is_an_error_not_a_hang() -> None:
    with pytest.raises(OSError, match="refused"):
        load.run_streams(("127.0.0.1", programs.free_port()), [[completion("x", 1)]], TIMEOUT)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return str(path)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(memory, "IDLE_SECONDS", 0.05)
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.delenv("LLAMAD_TEST_MODEL", raising=False)


def test_the_whole_program_with_a_peer(
    fake_program: str,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(programs, "llamad_command", lambda: [sys.executable, fake_program])
    out = tmp_path / "result.json"
    flags = ["--quick", "--model", model, "--server", fake_program, "--json", str(out), "--rounds", "2"]
    flags += ["--idle-connections", "20"]
    assert program.main(flags) == 0
    told = capsys.readouterr().out
    assert told.count("yes") == 2
    assert told.count("tokens/s") == 1
    assert told.count("requests/s") == 2
    assert "make peer" not in told
    result = json.loads(out.read_text())
    assert [len(section["rounds"]["llamad"]) for section in result["sections"]] == [2, 2, 2, 2, 1]
    for section in result["sections"][1:]:
        assert all(0 < ratio["low"] <= ratio["high"] for ratio in section["ratios"].values())
    assert all("closed" in section["notes"][0] for section in result["sections"][1:3])
    for one in result["sections"][3]["rounds"].values():
        assert all(
            0 < start["listening_ms"] <= start["health_ms"] <= start["start_first_ms"] for start in one
        )
    for one in result["sections"][4]["rounds"].values():
        assert one[0]["idle_answered"] == one[0]["idle_again"] == 20
        assert one[0]["fresh_failed"] == 0
        assert 0 < one[0]["loaded_own"] <= one[0]["loaded_rss"]


def test_alone_it_says_how_to_compare(
    fake_program: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "llamad_command", lambda: [sys.executable, fake_program])
    assert program.main(["--quick", "--model", model, "--only", "generate"]) == 0
    told = capsys.readouterr().out
    assert "make peer" in told
    assert "requests/s" not in told
    assert "same text" not in told


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "no model"),
        (["--model", "missing.gguf"], "missing.gguf is not a file"),
        (["--model", "MODEL", "--rounds", "0"], "--rounds must be at least 1"),
        (["--model", "MODEL", "--quick", "--server", "/nowhere/llama-server"], "make peer"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(
    flags: list[str], told: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main([model if flag == "MODEL" else flag for flag in flags]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


def test_a_program_that_ends_at_once_shows_its_last_words(
    fake_program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "llamad_command", lambda: [sys.executable, fake_program])
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"")
    assert program.main(["--quick", "--model", str(broken)]) == 1
    assert "the model is broken" in capsys.readouterr().err
