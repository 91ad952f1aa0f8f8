"""The tables of memory: each command prints a row for a real model."""

import subprocess
import sys

from support.live_daemon import model_path

from bench.fit.command import llamad


def test_a_row_of_estimates():
    command = [sys.executable, "-m", "bench", "estimates", "--flags=-c 512", model_path()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = done.stdout.splitlines()[-1].split("|")
    assert row[2].strip() == "512"
    for cell in row[3:6]:
        estimated, allocated = map(float, cell.split("/"))
        assert 0 < estimated == allocated


def test_what_llamad_chooses():
    assert llamad(["-m", model_path(), "-c", "512", "-t", "1"]) == "512 tokens, 0 of 31 layers"
    assert llamad(["-m", "no.gguf"]).startswith("refused: ")
