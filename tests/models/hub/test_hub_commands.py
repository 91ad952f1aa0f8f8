"""`llamad pull`, `llamad list` and `llamad rm`, and `llamad check` of a model by name: the real commands."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.hub.cache import Cache, gguf, wait_for
from support.hub.server import COMMIT, Fault, HubServer

NAME = "org/tiny-GGUF"


@pytest.fixture(autouse=True)
def repo(hub: HubServer) -> None:
    hub.repos[NAME] = {
        "mmproj-F16.gguf": gguf(seed=16),
        "tiny-Q4_K_M.gguf": gguf(seed=4),
        "tiny-Q8_0.gguf": gguf(5000, seed=8),
    }
    hub.files["other.Q2_K.gguf"] = gguf(2000)


def llamad(cache: Cache, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llamad", *arguments],
        env={**os.environ, **cache.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def names(cache: Cache) -> list[str]:
    return [one["name"] for one in json.loads(llamad(cache, "list", "--json").stdout)]


def test_pull_list_and_rm(hub: HubServer, cache: Cache) -> None:
    snapshot = cache.root / "models--org--tiny-GGUF" / "snapshots" / COMMIT
    done = llamad(cache, "pull", NAME, f"{NAME}:Q8_0", HF_TOKEN="hf_secret")
    assert (done.returncode, done.stdout.split()) == (
        0,
        [
            str(snapshot / "tiny-Q4_K_M.gguf"),
            str(snapshot / "mmproj-F16.gguf"),
            str(snapshot / "tiny-Q8_0.gguf"),
            str(snapshot / "mmproj-F16.gguf"),
        ],
    )
    assert "downloaded tiny-Q8_0.gguf (4.88 KiB)" in done.stderr
    assert "hf_secret" not in done.stderr
    assert hub.asked[0].headers["Authorization"] == "Bearer hf_secret"
    assert llamad(cache, "pull", "-mu", f"{hub.url}files/other.Q2_K.gguf").returncode == 0

    listed = llamad(cache, "list").stdout.splitlines()
    assert [line.split()[:3] for line in listed] == [
        ["NAME", "SIZE", "MODIFIED"],
        [f"{NAME}:Q4_K_M", "2.93", "KiB"],
        [f"{NAME}:Q8_0", "4.88", "KiB"],
        ["other.Q2_K.gguf", "1.95", "KiB"],
    ]
    assert llamad(cache, "--cache-list").stdout.splitlines() == listed

    done = llamad(cache, "rm", f"{NAME}:q8_0", "other.Q2_K.gguf")
    assert done.stdout == f"removed {NAME}:q8_0 (4.88 KiB)\nremoved other.Q2_K.gguf (1.95 KiB)\n"
    assert names(cache) == [f"{NAME}:Q4_K_M"]
    assert (snapshot / "mmproj-F16.gguf").exists()
    assert llamad(cache, "rm", f"{NAME}:Q4_K_M").returncode == 0
    assert [path for path in cache.root.rglob("*") if path.is_file()] == []


def test_on_a_terminal_one_line_is_rewritten(cache: Cache) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "llamad", "pull", f"{NAME}:Q8_0", "--no-mmproj"],
        env={**os.environ, **cache.environ},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # as the other end is closed
        while data := os.read(ours, 4096):
            shown += data
    os.close(ours)
    assert done.wait() == 0
    lines = shown.decode().split("\r\033[K")
    assert re.fullmatch(r"downloading tiny-Q8_0\.gguf: \d+ %, .* of 4\.88 KiB.*\r", lines[1])
    assert lines[-1] == "downloaded tiny-Q8_0.gguf (4.88 KiB)\r\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["pull"], 2, "no model is named; usage: llamad pull"),
        (["pull", "tiny"], 2, "is not USER/MODEL"),
        (["pull", "org/none-GGUF"], 1, "org/none-GGUF does not exist"),
        (["pull", f"{NAME}:Q2_K"], 1, "it has Q4_K_M, Q8_0"),
        (["list", "--all"], 2, "'--all' is not known"),
        (["rm"], 2, "no model is named; usage: llamad rm"),
        (["rm", NAME], 1, f"{NAME} is not in the cache; `llamad list` shows what is"),
        (["rm", "../x.gguf"], 2, "is not USER/MODEL"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_cannot_be_done(cache: Cache, arguments: list[str], status: int, words: str) -> None:
    done = llamad(cache, *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_check_downloads_nothing(hub: HubServer, cache: Cache) -> None:
    done = llamad(cache, "check", "-hf", NAME)
    assert (done.returncode, hub.asked) == (1, [])
    assert f"download it with `llamad pull {NAME}`" in done.stderr


def test_nothing_is_removed_that_is_being_downloaded(hub: HubServer, cache: Cache) -> None:
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1000, hold=hold)]
    thread = threading.Thread(target=cache.fetch, args=("-hf", NAME))
    thread.start()
    wait_for(lambda: bool(cache.parts()))
    done = llamad(cache, "rm", NAME)
    hold.set()
    thread.join()
    assert done.returncode == 1
    assert "is being downloaded by another process" in done.stderr


def test_llama_servers_cache_is_found(cache: Cache) -> None:
    """As its pinned version lays it out: see common/hf-cache.cpp."""
    folder = cache.root / "models--ggml-org--gemma-3-1b-it-GGUF"
    (folder / "blobs").mkdir(parents=True)
    (folder / "blobs" / "ab").write_bytes(gguf())
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "gemma-3-1b-it-Q4_K_M.gguf").symlink_to("../../blobs/ab")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    (cache.root / "models--gpt2").mkdir()  # other programs' models are none of ours
    assert names(cache) == ["ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"]
    files = cache.fetch("-hf", "ggml-org/gemma-3-1b-it-GGUF", "--offline")
    assert Path(files.model).read_bytes() == gguf()
