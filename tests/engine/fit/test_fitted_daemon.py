"""Models that do not fit as they are: the context shrinks, what the user set is refused, and llama.cpp's own words tell
what it could not allocate."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from support.live_daemon import Live, engines, model_path
from support.models.tiny_model import write_tiny

from llamad.engine.loading import memory

MIB = 1 << 20
N_TRAINED = 1 << 20


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("long") / "long.gguf", model_path(), n_ctx=N_TRAINED)


def all_but(mib: int) -> str:
    """A margin that leaves so much memory, about: other tests use some of it."""
    return str(memory.host_free() // MIB - mib)


def n_ctx(server: Live) -> int:
    return server.client.get("/props").json["default_generation_settings"]["n_ctx"]


def test_a_model_with_a_million_tokens_serves_with_fewer(long, tmp_path):
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    with Live("-fitt", all_but(256), model=long, env=env) as server:
        line = server.wait_line(r"fit: a context of (\d+) tokens \(the model has 1048576\)")
        chosen = n_ctx(server)
        assert 4096 <= chosen == int(line[1]) < N_TRAINED
        assert server.client.post("/completion", {"prompt": "x", "n_predict": 4}).status == 200
        (engine,) = engines(server.process.pid)
        os.kill(engine, signal.SIGKILL)
        server.wait_line("starting it again")
        server.wait_ready()
        assert n_ctx(server) <= chosen  # the same, unless other tests have taken the memory meanwhile


def test_a_draft_model_leaves_less_for_the_context(long):
    """Without the draft model's memory both would be the same, but for what other programs take meanwhile."""
    shares = []
    for _ in range(3):
        chosen = []
        for flags in ((), ("-md", long)):
            with Live("-fitt", all_but(1024), *flags, model=long) as server:
                chosen.append(n_ctx(server))
                assert server.client.post("/completion", {"prompt": "x", "n_predict": 4}).status == 200
        assert chosen[1] >= 4096
        shares.append(chosen[1] / chosen[0])
        if shares[-1] < 0.7:
            return
    raise AssertionError(shares)


def test_what_the_user_set_is_not_changed(long):
    with Live("-fitt", all_but(256), "-c", "8192", model=long) as server:
        assert n_ctx(server) == 8192
        assert not [line for line in server.lines if "fit:" in line]


def test_what_does_not_fit_is_refused_with_its_sum_and_what_would_fit():
    n_tokens = memory.host_free() // 20_000  # the default model needs 23,040 bytes for each
    flags = ("-c", str(n_tokens), "-b", "16")
    command = [sys.executable, "-m", "llamad", "check", "-m", model_path(), "-t", "1", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"tokens takes [\d.]+ GiB of this machine \(.*KV cache [\d.]+ GiB", done.stderr)
    assert re.search(r"-c \d+ would fit", done.stderr)
    with Live(*flags, ready=False) as server:
        server.wait_line(r"GiB of this machine .*lower -c")


def test_check_tells_the_choice_and_others(long):
    command = [
        sys.executable,
        "-m",
        "llamad",
        "check",
        "--json",
        "-m",
        long,
        "-t",
        "1",
        "-fitt",
        all_but(256),
    ]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert report["fit"].startswith("fit: a context of")
    assert report["n_ctx"] < N_TRAINED
    assert report["memory"]["together"]["cache"] == report["memory"]["cache"]["token"] * report["n_ctx"]
    flags = [one["flags"] for one in report["alternatives"]]
    assert f"-c {report['n_ctx']}" in flags


def test_llama_cpps_words_for_memory_that_it_did_not_get(long):
    """A limit that no estimate can know."""
    limit = ("prlimit", f"--as={8 << 30}")
    flags = ("-c", str(N_TRAINED * 16), "-b", "16", "-ctk", "f32", "-ctv", "f32", "--fit", "off")
    with Live(*flags, model=long, before=limit, ready=False) as server:
        server.wait_line(r"memory ran out: .*alloc.*; lower -c")
