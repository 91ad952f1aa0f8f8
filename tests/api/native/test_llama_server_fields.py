"""Every field that llama-server answers with, beside ours: both programs over one model, where `make peer` was run."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.http_client import Client
from support.live_daemon import WAIT_SECONDS
from support.servers import FLAGS

from recipe import cache, source

COMPLETION = {
    "prompt": "Once upon",
    "n_predict": 3,
    "ignore_eos": True,
    "id_slot": 0,
    "seed": 1,
    "n_probs": 1,
}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "verbose": True}
# Of /props: what both must say.
SAME = ("model_alias", "model_ftype", "modalities", "bos_token", "eos_token", "is_sleeping", "chat_template")


@pytest.fixture(scope="module")
def peer(tiny: str) -> Iterator[Client]:
    commit = source.choose().commit
    made = [one for one in (cache.root() / "peer").glob("*") if cache.read_meta(one).get("commit") == commit]
    if not made:
        pytest.skip("there is no llama-server to compare with: run `make peer`")
    with socket.create_server(("127.0.0.1", 0)) as free:
        client = Client(*free.getsockname())
    program = str(made[0] / "bin" / "llama-server")
    command = [program, "-m", tiny, "-t", "1", "--port", str(client.port), *FLAGS]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_ready(process, client)
            yield client
        finally:
            process.kill()


def _wait_ready(process: subprocess.Popen[bytes], client: Client) -> None:
    t_end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < t_end and process.poll() is None:
        try:
            if client.get("/health").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("llama-server does not serve")


def paths(value: Any, before: str = "") -> set[str]:
    """The path of every field; the elements of an array count as one, and an array of one object as that."""
    if isinstance(value, dict):
        own = {f"{before}/{key}" for key in value}
        return own.union(*(paths(one, f"{before}/{key}") for key, one in value.items()))
    return paths(value[0], before) if isinstance(value, list) and value else set()


def metrics(text: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^# TYPE (llamacpp:\S+) (\w+)$", text, re.MULTILINE))


def test_every_field_of_llama_server(peer: Client, client: Client) -> None:
    for path, body in (("/completion", COMPLETION), ("/v1/chat/completions", CHAT)):
        theirs, ours = (paths(one.post(path, body).json) for one in (peer, client))
        assert theirs - ours == set(), path
    for path in ("/slots", "/props", "/v1/models", "/models"):
        theirs, ours = (paths(one.get(path).json) for one in (peer, client))
        assert theirs - ours == set(), path
    known, own = (metrics(one.get("/metrics").body.decode()) for one in (peer, client))
    assert known - own == set()
    assert "process-start-time-unix" in client.get("/metrics").headers


def test_the_same_values(peer: Client, client: Client) -> None:
    theirs, ours = (one.get("/props").json for one in (peer, client))
    assert {name: ours[name] for name in SAME} == {name: theirs[name] for name in SAME}
    assert ours["chat_template_caps"] == theirs["chat_template_caps"]
    theirs, ours = (one.get("/v1/models").json["data"][0] for one in (peer, client))
    assert ours["meta"] == theirs["meta"]
    assert (ours["id"], ours["aliases"]) == (theirs["id"], theirs["aliases"])
    held = []
    for one in (peer, client):
        one.post("/completion", COMPLETION | {"cache_prompt": False})
        held.append(one.get("/slots").json[0]["n_prompt_tokens"])
    assert held[0] == held[1]
