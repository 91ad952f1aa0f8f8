"""Lookup caches over a real socket: a dynamic one is made, learned into, written at the end and used by the next
server; bad files stop the start with a sentence."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.drafts.ngram_cache import parsed, written
from support.live_daemon import Live
from support.models.tiny_kv_models import write_model

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "n_predict": 48, "cache_prompt": False, "return_tokens": True}
# A step of at most three rows has the logits of single ones on a CPU.
FIXED = ("--spec-fixed", "2", "-np", "1", "-c", "1024")


def answer(*flags, **live):
    with Live(*flags, *FIXED, "--slots", **live) as server:
        result = server.client.complete(PROMPT, **GREEDY)
        types = server.client.get("/slots").json[0]["speculative.types"]
    return result, types


def drafted(result):
    return result["timings"].get("draft_n_accepted", 0)


@pytest.mark.real_model
def test_a_dynamic_cache_learns_and_the_next_server_drafts_from_it(tmp_path, client):
    path = tmp_path / "dynamic.bin"
    plain = client.complete(PROMPT, **GREEDY)
    gains = []
    # A single answer is not enough: llama.cpp's rules want an n-gram twice.
    for _ in range(3):
        result, types = answer("-lcd", str(path))
        assert (result["content"], types) == (plain["content"], "ngram-cache")
        gains.append(drafted(result))
    assert gains[0] < gains[2]
    table = parsed(path.read_bytes(), 1 << 20)
    assert table is not None
    one, two = plain["tokens"][10:12]
    assert table[one, -1, -1, -1][two] >= 3
    # Its 2-grams as a static cache.
    static = {ngram: part for ngram, part in table.items() if ngram[1] >= 0 > ngram[2]}
    (tmp_path / "static.bin").write_bytes(written(static))
    result, types = answer("--spec", "auto", "-lcs", str(tmp_path / "static.bin"))
    assert (result["content"], types) == (plain["content"], "auto,ngram-cache")
    assert drafted(result) > gains[0]
    assert (tmp_path / "static.bin").read_bytes() == written(static)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "model.gguf", "llama", np.float32)


def refusal(model: Path, *flags: str) -> str:
    """What the program says when it does not start."""
    command = [sys.executable, "-m", "llamad", "-m", str(model), "-t", "1", "--port", "0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    return ended.stderr


def test_bad_files_stop_the_start(tmp_path, model):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.write_bytes(written({(1, 2, -1, -1): {3: 4}}))
    cut.write_bytes(whole.read_bytes()[:-3])
    large = tmp_path / "large"
    large.write_bytes(written({(1, 1 << 30, -1, -1): {3: 4}}))
    for flags, sentence in [
        (("-lcs", str(tmp_path / "none")), "none; make one for this model with llama-lookup-create"),
        (("-lcs", str(cut)), "at byte 0, it ends within a record; make one for this model"),
        (("-lcs", str(large)), "at byte 0, this is not a token of the model; make one for this model"),
        (("-lcd", str(cut)), "at byte 0, it ends within a record; move it away to begin a new one"),
        (("-lcd", str(tmp_path / "no" / "file")), "no is not a folder in which this user may make files"),
    ]:
        assert sentence in refusal(model, *flags)
    assert cut.read_bytes() == whole.read_bytes()[:-3]


def test_a_check_reads_the_files_and_writes_none(tmp_path, model):
    command = [sys.executable, "-m", "llamad", "check", "-m", str(model), "-lcd", str(tmp_path / "new")]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    assert not (tmp_path / "new").exists()
    bad = [*command, "-lcs", str(tmp_path / "none")]
    ended = subprocess.run(bad, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "there is no file" in ended.stdout + ended.stderr


def test_keys_need_shared_prefixes(tmp_path, model):
    path = tmp_path / "dynamic.bin"
    flags = ("--api-key", "mine", "-lcd", str(path))
    assert "add --share-prefixes if they may" in refusal(model, *flags)
    with Live(*flags, "--share-prefixes", "-np", "1", model=model):
        assert path.read_bytes() == b""
    static = tmp_path / "static.bin"
    static.write_bytes(written({(1, 2, -1, -1): {3: 4}}))
    with Live("--api-key", "mine", "-lcs", str(static), "-np", "1", model=model):
        pass  # it tells nothing about other keys


def test_a_reload_adds_no_keys_to_a_server_that_learns(tmp_path, model):
    lines = tmp_path / "env"
    lines.write_text("")
    with Live("--env-file", str(lines), "-lcd", str(tmp_path / "file"), "-np", "1", model=model) as server:
        lines.write_text("LLAMA_API_KEY=secret\n")
        server.process.send_signal(1)
        server.wait_line("api-keys: the old one is kept: .*add --share-prefixes")
        assert server.client.get("/v1/models").status == 200
