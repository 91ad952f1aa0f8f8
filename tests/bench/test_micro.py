"""The small measurements of parts in this process: each runs for a moment and prints its table."""

from __future__ import annotations

import importlib.util

import pytest
from support.models.small_vocab import write_vocab

from bench import __main__ as program
from bench.micro import http_servers


def rows_of(told: str) -> list[list[str]]:
    """Return the cells of the table's rows."""
    lines = [line for line in told.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_http_servers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    servers = {**http_servers.SERVERS, "other": ("no_such_package",)}
    monkeypatch.setattr(http_servers, "SERVERS", {name: servers[name] for name in ("llamad", "other")})
    assert program.main(["http-servers", "--rounds", "1", "--seconds", "0.2", "--connections", "2"]) == 0
    told = capsys.readouterr()
    assert "pip install no_such_package" in told.err
    (row,) = rows_of(told.out)
    assert row[0] == "llamad"
    assert int(row[3].replace(",", "")) > 0


def test_tls_handshakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["tls-handshakes", "--rate", "20", "--seconds", "0.5"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert [row[0] for row in rows] == ["no clients", "llamad", "uvloop"]
    assert rows[0][4] == "0"
    assert all(int(row[4]) > 0 for row in rows[1:])


def test_tokenizer(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    vocab = write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert program.main(["tokenizer", "--vocab", vocab, "--rounds", "1"]) == 0
    told = capsys.readouterr()
    assert "pip install tokenizers" in told.err
    assert len(rows_of(told.out)) == 6
    assert "0 texts with different tokens" in told.out


def test_step(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "--streams",
        "1,2",
        "--predict",
        "60",
        "--n-vocab",
        "20000",
        "--device-us",
        "100",
        "--threads",
        "2",
    ]
    assert program.main(["step", *flags]) == 0
    _, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2"]
    for _, p10, p50, p90, *parts in rows:
        assert 0 < float(p10) <= float(p50) <= float(p90)
        assert len(parts) == 3
