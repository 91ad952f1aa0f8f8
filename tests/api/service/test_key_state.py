"""What a key sets counts for that key alone: the system prompt and the scales of adapters, on every endpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_client import Client
from support.live_daemon import Live, engines, until
from support.models.bigram_model import write_bigram
from support.models.tiny_adapters import write_lora

TEXT = "abcdefgh"
OWN = "kkkk"
NAMES = {"prompt": TEXT, "anti_prompt": "User:", "assistant_name": "Assistant:"}
CHAT = {"messages": [{"role": "user", "content": "i"}], "max_tokens": 1}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
FLAGS = ("-np", "2", "-c", "512", "--slots", "--props", "--chat-template", TEMPLATE)


def keyed(server: Live, key: str) -> Client:
    return Client(server.client.host, server.client.port, {"Authorization": f"Bearer {key}"})


class Served:
    """A server with two keys in a file, and its own system prompt."""

    def __init__(self, server: Live, keys: Path) -> None:
        self.server = server
        self.keys = keys
        self.one, self.two = keyed(server, "one"), keyed(server, "two")

    def reload(self, *keys: str) -> None:
        self.keys.write_text("\n".join(keys))
        n_lines = len(self.server.lines)
        self.server.signal(signal.SIGHUP)
        until(lambda: any("reload: reloaded" in line for line in self.server.lines[n_lines:]))


@pytest.fixture(scope="module")
def bigram(tmp_path_factory: Any) -> str:
    return write_bigram(tmp_path_factory.mktemp("bigram") / "bigram.gguf")


@pytest.fixture
def served(bigram: str, tmp_path: Path) -> Iterator[Served]:
    keys, own = tmp_path / "keys", tmp_path / "own.txt"
    keys.write_text("one\ntwo\n")
    own.write_text(OWN)
    flags = (*FLAGS, "--api-key-file", str(keys), "-spf", str(own))
    with Live(*flags, model=bigram) as live:
        yield Served(live, keys)


def prompt_of(client: Client) -> str:
    shown: str = client.complete("ij", n_predict=0)["prompt"]
    return shown.removeprefix("<s>")


def names(client: Client) -> tuple[str, str, str]:
    props = client.get("/props").json
    return props["system_prompt"], props["user_name"], props["assistant_name"]


def set_by(client: Client, path: str) -> None:
    """Set it with a request of any endpoint."""
    bodies: dict[str, dict[str, Any]] = {
        "/completion": {"prompt": "i", "n_predict": 1},
        "/v1/completions": {"prompt": "i", "max_tokens": 1},
        "/v1/chat/completions": CHAT,
        "/v1/messages": CHAT,
        "/v1/responses": {"input": "i", "max_output_tokens": 1},
        "/props": {},
    }
    answer = client.post(path, {**bodies[path], "system_prompt": NAMES})
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    "path",
    ["/completion", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/props"],
)
def test_a_system_prompt_is_that_of_its_key(served: Served, path: str) -> None:
    set_by(served.one, path)
    assert prompt_of(served.one) == TEXT + "ij"
    assert names(served.one) == (TEXT, "User:", "Assistant:")
    assert prompt_of(served.two) == OWN + "ij"
    assert names(served.two) == (OWN, "", "")
    assert names(served.server.client) == ("", "", "")  # without a key
    count = "/v1/chat/completions/input_tokens"
    counts = [client.post(count, CHAT).json["input_tokens"] for client in (served.one, served.two)]
    assert counts == [1 + len(TEXT) + 1, 1 + len(OWN) + 1]
    assert TEXT not in served.two.get("/slots").body.decode()


def test_one_that_fills_the_context_costs_no_other_key_anything(served: Served) -> None:
    long = {"system_prompt": "i" * 250}
    assert served.one.post("/props", long).status == 200
    assert served.one.post("/completion", {"prompt": "j" * 20, "n_predict": 1}).status == 400
    assert served.two.post("/completion", {"prompt": "j" * 20, "n_predict": 1}).status == 200
    assert served.two.post("/v1/chat/completions", CHAT).status == 200
    assert served.one.post("/props", {"system_prompt": "i" * 100_000}).status == 400
    assert names(served.one)[0] == "i" * 250
    assert served.one.post("/completion", {"system_prompt": ""}).status == 200
    assert (prompt_of(served.one), prompt_of(served.two)) == ("ij", OWN + "ij")


def test_the_cache_has_the_prompt_of_each_key(served: Served) -> None:
    for client, n_tokens in ((served.one, 1 + len(TEXT)), (served.two, 1 + len(OWN))):
        if client is served.one:
            set_by(client, "/completion")
        client.complete("i", n_predict=1)
        assert client.complete("kjk", n_predict=1)["timings"]["cache_n"] >= n_tokens


def test_a_key_that_is_removed_loses_its_state(served: Served) -> None:
    set_by(served.one, "/props")
    set_by(served.two, "/props")
    served.reload("two")
    assert served.one.post("/completion", {"prompt": "i"}).status == 401
    served.reload("one", "two")
    assert prompt_of(served.one) == OWN + "ij"
    assert prompt_of(served.two) == TEXT + "ij"


def test_it_outlives_an_engine(served: Served) -> None:
    set_by(served.one, "/props")
    os.kill(engines(served.server.process.pid)[0], signal.SIGKILL)
    until(lambda: served.server.client.get("/health").status == 503)
    served.server.wait_ready()
    assert (prompt_of(served.one), prompt_of(served.two)) == (TEXT + "ij", OWN + "ij")


def test_props_sets_only_what_it_can(served: Served) -> None:
    for body in (b"", b"{}", b'{"system_prompt": null}'):
        assert served.one.request("POST", "/props", body).json == {"success": True}
    for body in (b"[", b"[]", b'{"system_prompt": 5}'):
        assert served.one.request("POST", "/props", body).status == 400
    assert names(served.one) == (OWN, "", "")


def test_without_keys_what_one_client_set_is_dropped_once_there_are_keys(bigram: str, tmp_path: Path) -> None:
    env = tmp_path / "env"
    env.write_text("")
    with Live(*FLAGS, "--env-file", str(env), model=bigram) as server:
        set_by(server.client, "/props")
        assert prompt_of(server.client) == TEXT + "ij"
        env.write_text("LLAMA_API_KEY=one\n")
        server.signal(signal.SIGHUP)
        server.wait_line("reload: reloaded")
        assert prompt_of(keyed(server, "one")) == "ij"


# Adapters.


def scales_of(client: Client) -> list[float]:
    return [one["scale"] for one in client.get("/lora-adapters").json]


def text_of(client: Client, **more: Any) -> str:
    body = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0, "cache_prompt": False, **more}
    answer = client.post("/completion", body)
    assert answer.status == 200, answer.body
    content: str = answer.json["content"]
    return content


def vector_of(client: Client) -> list[float]:
    vector: list[float] = client.post("/v1/embeddings", {"input": "a"}).json["data"][0]["embedding"]
    return vector


@pytest.fixture(scope="module")
def adapter(tiny: str, tmp_path_factory: Any) -> str:
    return write_lora(tmp_path_factory.mktemp("adapters") / "a.gguf", tiny, 11)


@pytest.mark.parametrize("is_shared", [False, True])
def test_scales_of_adapters_are_those_of_their_key(tiny: str, adapter: str, is_shared: bool) -> None:
    flags = [
        "-c",
        "512",
        "--no-warmup",
        "--api-key",
        "one,two",
        "--lora-init-without-apply",
        "--lora",
        adapter,
    ]
    flags += ["--embedding", "--pooling", "mean", *(["--system-prompt-shared"] if is_shared else [])]
    with Live(*flags, model=tiny) as live:
        one, two = keyed(live, "one"), keyed(live, "two")
        plain, plain_vector = text_of(two), vector_of(two)
        assert one.post("/lora-adapters", [{"id": 0, "scale": 1.0}]).json == {"success": True}
        assert scales_of(one) == [1.0]
        assert scales_of(two) == [1.0 if is_shared else 0.0]
        assert text_of(one) != plain == text_of(one, lora=[])
        assert (text_of(two) == plain) is not is_shared
        assert vector_of(one) != plain_vector
        assert (vector_of(two) == plain_vector) is not is_shared
