"""POST /api/pull and DELETE /api/delete through the official `ollama` package, over a stand-in for a hub."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.official_clients import ollama
from support.hub.server import Fault, HubServer
from support.live_daemon import Live, until
from support.many_models.files import Files

REPO = "org/Tiny-GGUF"
NAME = f"hf.co/{REPO}:Q8_0"
FILE = "Tiny-Q8_0.gguf"
FEW = {"num_predict": 1}


@pytest.fixture(scope="module")
def hub(tiny: str) -> Iterator[HubServer]:
    server = HubServer()
    server.repos[REPO] = {"README.md": b"", FILE: Path(tiny).read_bytes()}
    yield server
    server.close()


@pytest.fixture(scope="module")
def official(hub: HubServer, tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    files = Files(tmp_path_factory.mktemp("pull"), Path(tiny))
    environ = files.environ | {"HF_ENDPOINT": hub.url, "MODEL_ENDPOINT": hub.url}
    with Live(*files.flags, "-c", "512", "--no-warmup", "--sse-ping-interval", "1", env=environ) as live:
        yield ollama.Client(host=f"http://{live.client.host}:{live.client.port}")


def test_a_model_is_pulled_used_and_deleted(hub: HubServer, official: Any) -> None:
    size = len(hub.repos[REPO][FILE])
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1 << 20, hold=hold)]
    told = []
    for one in official.pull(NAME, stream=True):
        told.append(one)
        if one.completed:
            hold.set()
    assert (told[0].status, told[-1].status) == ("pulling manifest", "success")
    progress = [one for one in told if one.completed]
    assert {(one.total, one.status) for one in progress} == {(size, f"pulling {progress[0].digest}")}
    assert [one.completed for one in progress] == sorted(one.completed for one in progress)
    assert official.pull(NAME).status == "success"  # it is there
    assert [one.model for one in official.list().models] == [f"{REPO}:Q8_0"]
    reply = official.generate(NAME, "x", options=FEW)
    assert (reply.model, reply.eval_count) == (NAME, 1)
    assert official.show(NAME).modelinfo["general.architecture"] == "llama"
    assert official.delete(NAME).status == "success"
    until(lambda: official.list().models == [])
    with pytest.raises(ollama.ResponseError, match="not found") as caught:
        official.delete(NAME)
    assert caught.value.status_code == 404


def test_two_clients_share_a_download_that_goes_on_without_the_first(hub: HubServer, official: Any) -> None:
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1 << 20, hold=hold)]
    first = official.pull(NAME, stream=True)
    assert next(first).status == "pulling manifest"
    first.close()
    replies: list[Any] = []
    other = threading.Thread(target=lambda: replies.append(official.pull(NAME)))
    other.start()
    hold.set()
    other.join(60)
    assert [one.status for one in replies] == ["success"]
    official.delete(NAME)


def test_what_cannot_be_pulled(hub: HubServer, official: Any) -> None:
    for name, message in (("llama3.2", "is not USER/MODEL"), ("hf.co/org/none", "org/none")):
        for stream in (True, False):
            with pytest.raises(ollama.ResponseError, match=message) as caught:
                list(official.pull(name, stream=stream))
            assert caught.value.status_code == 400


def test_a_download_that_fails_is_an_error_in_the_stream(hub: HubServer, official: Any) -> None:
    hub.repos["org/Bad-GGUF"] = {"Bad-Q8_0.gguf": b"no model"}
    try:
        for stream in (True, False):
            hub.faults["/blobs/"] = [Fault(status=403)] * 9
            with pytest.raises(ollama.ResponseError):
                list(official.pull("org/Bad-GGUF:Q8_0", stream=stream))
    finally:
        hub.faults.clear()
