"""Every field that llama-server answers with, beside ours: both programs over one model, where `make peer` was run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.http_client import Client
from support.peer import llama_server
from support.servers import FLAGS

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
    with llama_server(tiny, *FLAGS) as client:
        yield client


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
