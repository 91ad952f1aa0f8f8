"""Calls of a router's endpoints, ours or llama-server's."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from support.http_client import Answer, Client
from support.live_daemon import until

CHAT = "/v1/chat/completions"


def chat(model: str, n: int = 4, **more: Any) -> dict[str, Any]:
    """The body of a chat that generates exactly `n` tokens."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": n}
    return body | {"ignore_eos": True, "temperature": 0} | more


def entries(client: Client, query: str = "") -> dict[str, dict[str, Any]]:
    """The listed models by id."""
    answer = client.get(f"/models{query}")
    assert answer.status == 200, answer.body
    return {one["id"]: one for one in answer.json["data"]}


def status(client: Client, name: str) -> dict[str, Any]:
    """The status of a model by its id or alias."""
    (one,) = (one for one in entries(client).values() if name in (one["id"], *one["aliases"]))
    return dict(one["status"])


def wait_status(client: Client, name: str, value: str) -> None:
    until(
        lambda: status(client, name)["value"] == value,
        f"{name} does not become {value}: {status(client, name)}",
    )


def load(client: Client, name: str) -> None:
    """Load a model and wait for it."""
    answer = client.post("/models/load", {"model": name})
    assert (answer.status, answer.json) == (200, {"success": True})
    wait_status(client, name, "loaded")


def unload(client: Client, name: str) -> None:
    answer = client.post("/models/unload", {"model": name})
    assert (answer.status, answer.json) == (200, {"success": True})
    wait_status(client, name, "unloaded")


def unload_all(client: Client) -> None:
    for name, one in entries(client).items():
        if one["status"]["value"] not in ("unloaded", "sleeping"):
            client.post("/models/unload", {"model": name})
            wait_status(client, name, "unloaded")


def props(client: Client, name: str, more: str = "") -> Answer:
    return client.get(f"/props?model={quote(name)}{more}")
