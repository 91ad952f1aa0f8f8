"""Adapters that are loaded and unloaded while the server runs, as vLLM's clients do."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.http_client import Answer, Client
from support.live_daemon import Live, engines, until
from support.models.tiny_adapters import pairs, write_adapter, write_lora

FLAGS = ("-np", "2", "-c", "2048", "--slots", "--no-warmup", "--alias", "base")
# Without the cache: on some machines a prompt that is read in another shape has slightly other logits.
DRAWN = {
    "temperature": 1.5,
    "seed": 3,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "n_predict": 16,
    "cache_prompt": False,
}
PROMPT = "Once upon a time there was a small house"
N_MAX = 3


class Folder:
    """What may be loaded, and beside it what may not."""

    def __init__(self, path: Path, model: str) -> None:
        self.path = path / "open"
        self.path.mkdir()
        self.model = model
        self.outside = write_lora(path / "outside.gguf", model, 41)
        self.first = write_lora(self.path / "first.gguf", model, 41)
        self.second = write_lora(self.path / "second.gguf", model, 42)
        (self.path / "link.gguf").symlink_to(self.outside)
        (self.path / "inner").symlink_to(self.path)


@pytest.fixture(scope="module")
def folder(tiny: str, tmp_path_factory: Any) -> Folder:
    return Folder(tmp_path_factory.mktemp("loading"), tiny)


@pytest.fixture(scope="module")
def live(folder: Folder) -> Iterator[Live]:
    flags = ("--lora", f"fixed={folder.second}", "--lora-load-path", str(folder.path))
    with Live(*FLAGS, *flags, "--lora-load-max", str(N_MAX), model=folder.model) as server:
        yield server


@pytest.fixture
def client(live: Live) -> Iterator[Client]:
    yield live.client
    for name in names(live.client)[1:]:
        assert unload(live.client, name).status == 200


def load(client: Client, name: str, path: str, **more: Any) -> Answer:
    return client.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **more})


def unload(client: Client, name: str, **more: Any) -> Answer:
    return client.post("/v1/unload_lora_adapter", {"lora_name": name, **more})


def names(client: Client) -> list[str]:
    return [one["name"] for one in client.get("/lora-adapters").json]


def ask(client: Client, model: str, **more: Any) -> Answer:
    return client.post("/completion", {"prompt": PROMPT, **DRAWN, "model": model, **more})


def text(client: Client, model: str, **more: Any) -> str:
    answer = ask(client, model, **more)
    assert answer.status == 200, answer.body
    content: str = answer.json["content"]
    return content


def test_one_is_loaded_used_and_unloaded(client: Client, folder: Folder) -> None:
    plain, fixed = text(client, "base"), text(client, "base:fixed")
    assert ask(client, "base:style").status == 404
    loaded = load(client, "style", "first.gguf")
    assert (loaded.status, loaded.body) == (200, b"Success: LoRA adapter 'style' added successfully.")
    assert [one["id"] for one in client.get("/v1/models").json["data"]] == [
        "base",
        "base:fixed",
        "base:style",
    ]
    listed = client.get("/lora-adapters").json[-1]
    assert (listed["path"], listed["scale"]) == (folder.first, 0.0)
    style = text(client, "base:style")
    assert style not in (plain, fixed)
    assert style == text(client, "base", lora=[{"id": listed["id"], "scale": 1.0}])
    gone = unload(client, "style")
    assert (gone.status, gone.body) == (200, b"Success: LoRA adapter 'style' removed successfully.")
    assert ask(client, "base:style").status == 404
    assert ask(client, "base", lora=[{"id": listed["id"], "scale": 1.0}]).status == 400
    assert unload(client, "style").status == 404
    # The same file under another name has the same cached prefixes; another file under the same name has its own.
    assert load(client, "again", folder.first).status == 200
    assert client.get("/lora-adapters").json[-1]["id"] > listed["id"]
    again = ask(client, "base:again", cache_prompt=True).json
    assert again["timings"]["cache_n"] > 0
    assert text(client, "base:again") == style
    assert load(client, "style", "second.gguf").status == 200
    assert text(client, "base:style") == fixed


def test_one_takes_anothers_place(client: Client) -> None:
    fixed = text(client, "base:fixed")
    assert load(client, "style", "first.gguf").status == 200
    before = client.get("/lora-adapters").json[-1]["id"]
    taken = load(client, "style", "second.gguf")
    assert taken.status == 400
    assert "load_inplace" in taken.error["message"]
    assert load(client, "style", "second.gguf", load_inplace=True).status == 200
    assert names(client) == ["fixed", "style"]
    assert text(client, "base:style") == fixed
    assert unload(client, "style", lora_int_id=before).status == 404
    assert unload(client, "style", lora_int_id=client.get("/lora-adapters").json[-1]["id"]).status == 200


@pytest.mark.parametrize(
    ("name", "path", "status", "message"),
    [
        ("style", "../outside.gguf", 400, "--lora-load-path"),
        ("style", "link.gguf", 400, "--lora-load-path"),
        ("style", "OUTSIDE", 400, "--lora-load-path"),
        ("style", "first.gguf\0", 400, "--lora-load-path"),
        ("style", "no.gguf", 404, "no file no.gguf"),
        ("style", ".", 400, "not a regular file"),
        ("style", "", 400, '"lora_path" is missing'),
        ("", "first.gguf", 400, '"lora_name"'),
        ("a b", "first.gguf", 400, '"lora_name"'),
        ("base", "first.gguf", 400, "the model itself"),
        ("fixed", "first.gguf", 400, "command line"),
    ],
)
def test_what_cannot_be_loaded_changes_nothing(
    client: Client, folder: Folder, name: str, path: str, status: int, message: str
) -> None:
    answer = load(client, name, folder.outside if path == "OUTSIDE" else path, load_inplace=True)
    assert answer.status == status
    assert message in answer.error["message"]
    assert names(client) == ["fixed"]


def test_a_link_within_the_folder_is_followed(client: Client, folder: Folder) -> None:
    assert load(client, "style", "inner/first.gguf").status == 200
    assert client.get("/lora-adapters").json[-1]["path"] == folder.first


def test_a_broken_file_changes_nothing(client: Client, folder: Folder) -> None:
    whole = {
        f"{name}.lora_{part}": values
        for name, pair in pairs(folder.model, 5).items()
        for part, values in zip("ab", pair, strict=True)
    }
    write_adapter(folder.path / "other.gguf", whole, arch="qwen2")
    (folder.path / "cut.gguf").write_bytes(Path(folder.first).read_bytes()[:-2000])
    (folder.path / "text.gguf").write_text("no adapter")
    plain = text(client, "base")
    for file, message in (("other", "architecture"), ("cut", "cut short"), ("text", "not a GGUF")):
        answer = load(client, "style", f"{file}.gguf")
        assert answer.status == 400
        assert message in answer.error["message"]
    assert names(client) == ["fixed"]
    assert text(client, "base", cache_prompt=False) == plain


def test_there_is_a_limit(client: Client) -> None:
    for i in range(N_MAX):
        assert load(client, f"number{i}", "first.gguf").status == 200
    full = load(client, "more", "first.gguf")
    assert full.status == 400
    assert "--lora-load-max" in full.error["message"]
    assert load(client, "number0", "second.gguf", load_inplace=True).status == 200
    assert unload(client, "number1").status == 200
    until(lambda: load(client, "more", "first.gguf").status == 200)


def test_running_requests_keep_what_they_began_with(client: Client) -> None:
    assert load(client, "style", "first.gguf").status == 200
    body = {"prompt": PROMPT, **DRAWN, "n_predict": 400, "ignore_eos": True, "cache_prompt": False}
    whole = text(client, "base:style", n_predict=400, ignore_eos=True, cache_prompt=False)
    events = client.events("/completion", {**body, "model": "base:style", "stream": True})
    parts = [next(events)["content"]]
    assert unload(client, "style").status == 200
    assert ask(client, "base:style").status == 404
    # Others decode, and another adapter comes and goes, meanwhile.
    assert load(client, "other", "second.gguf").status == 200
    assert text(client, "base:other") == text(client, "base:fixed")
    parts += [one["content"] for one in events]
    assert "".join(parts) == whole


def test_loading_and_unloading_while_others_decode(client: Client) -> None:
    plain, fixed = text(client, "base"), text(client, "base:fixed")
    assert load(client, "style", "first.gguf").status == 200
    style = text(client, "base:style")
    texts: list[str] = []
    ended = threading.Event()

    def run(model: str) -> None:
        while not ended.is_set():
            texts.append(text(client, model, cache_prompt=False))

    threads = [threading.Thread(target=run, args=(model,)) for model in ("base", "base:fixed")]
    for thread in threads:
        thread.start()
    for _ in range(8):
        assert unload(client, "style").status == 200
        until(lambda: load(client, "style", "first.gguf").status == 200)
        assert text(client, "base:style") == style
    ended.set()
    for thread in threads:
        thread.join()
    assert set(texts) == {plain, fixed}


def test_a_state_is_served_only_while_its_adapter_is_there(client: Client) -> None:
    assert load(client, "style", "first.gguf").status == 200
    sent = {"id_slot": 1, "n_predict": 4, "cache_prompt": True}
    text(client, "base:style", **sent)
    assert client.post("/sessions/7?action=save&slot=1").status == 200
    client.post("/slots/1?action=erase")
    assert unload(client, "style").status == 200
    refused = client.post("/sessions/7?action=restore&slot=1")
    assert refused.status == 400
    assert "LoRA" in refused.error["message"]
    assert load(client, "again", "first.gguf").status == 200
    assert client.post("/sessions/7?action=restore&slot=1").status == 200
    assert ask(client, "base:again", **sent).json["timings"]["cache_n"] > 4


def test_an_engine_that_is_started_again_gets_them_again(live: Live, client: Client, folder: Folder) -> None:
    """All but the one whose file is gone: that is said, and the engine starts."""
    kept, lost = folder.path / "kept.gguf", folder.path / "lost.gguf"
    for path in (kept, lost):
        path.write_bytes(Path(folder.first).read_bytes())
        assert load(client, path.stem, path.name).status == 200
    style = text(client, "base:kept")
    lost.unlink()
    os.kill(engines(live.process.pid)[0], signal.SIGKILL)
    live.wait_line("the adapter lost is not loaded again: there is no file")
    live.wait_ready()
    assert names(client) == ["fixed", "kept"]
    assert ask(client, "base:lost").status == 404
    assert text(client, "base:kept") == style
    assert unload(client, "kept").status == 200


def test_embeddings_have_them_too(folder: Folder) -> None:
    """Beside a context that generates, whose thread closes them."""
    flags = ("--embedding", "--pooling", "mean", "--lora-load-path", str(folder.path), "--lora-load-max", "1")
    with Live(*FLAGS, *flags, "--api-key", "secret", model=folder.model) as live:
        client = Client(live.client.host, live.client.port, {"Authorization": "Bearer secret"})

        def vector(model: str) -> Answer:
            return client.post("/v1/embeddings", {"input": PROMPT, "model": model})

        def values(model: str) -> list[float]:
            embedding: list[float] = vector(model).json["data"][0]["embedding"]
            return embedding

        assert load(live.client, "style", "first.gguf").status == 401
        plain = values("base")
        for _ in range(2):
            until(lambda: load(client, "style", "first.gguf").status == 200)
            assert not np.allclose(values("base:style"), plain, atol=1e-3)
            assert unload(client, "style").status == 200
            assert vector("base:style").status == 404
            assert np.allclose(values("base"), plain, atol=1e-6)


def test_it_is_off_without_a_folder(tiny_client: Client) -> None:
    for answer in (load(tiny_client, "style", "first.gguf"), unload(tiny_client, "style")):
        assert answer.status == 501
        assert "--lora-load-path" in answer.error["message"]
