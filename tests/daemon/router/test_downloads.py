"""POST /models downloads a model of a hub, with progress; DELETE /models removes it. Beside llama-server's router."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.hub.server import Fault, HubServer
from support.live_daemon import Live, model_path, until
from support.many_models.calls import CHAT, chat, entries
from support.many_models.files import Files, Router
from support.many_models.streams import Background, Events, Stream

REPO = "org/Tiny-GGUF"
NAME = f"{REPO}:Q8_0"


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    server = HubServer()
    yield server
    server.close()


@pytest.fixture(scope="module", params=["llamad", "llama-server"])
def router(
    request: pytest.FixtureRequest, hub: HubServer, files: Files, start_peer: Callable[..., Router]
) -> Router:
    hub.repos[REPO] = {"README.md": b"", "Tiny-Q8_0.gguf": files.model.read_bytes()}
    files.environ |= {"HF_ENDPOINT": hub.url, "MODEL_ENDPOINT": hub.url}
    return start_peer(request.param, files, "-c", "512", "--no-warmup")


def kinds(events: Events, name: str) -> list[str]:
    return [one["event"] for one in events.of(name)]


def done(events: Events) -> dict[str, int]:
    """The progress of the download, once something of the file is there."""
    for one in events.of(NAME):
        if one["event"] == "download_progress":
            (progress,) = one["data"]["progress"].values()
            if progress["done"]:
                return dict(progress)
    return {}


def test_a_download_and_its_removal(router: Router, hub: HubServer) -> None:
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1 << 20, hold=hold)]
    with Events(router.client) as events:
        answer = router.client.post("/models", {"model": NAME})
        assert (answer.status, answer.json) == (200, {"success": True})
        until(lambda: entries(router.client)[NAME]["status"]["value"] == "downloading")
        again = router.client.post("/models", {"model": NAME})
        assert again.status == 400
        progress = until(lambda: done(events), "no progress is told")
        assert 0 < progress["done"] < progress["total"] == len(hub.repos[REPO]["Tiny-Q8_0.gguf"])
        hold.set()
        until(lambda: "download_finished" in kinds(events, NAME))
        # Clients read the list when they are told so, and must find it there.
        assert entries(router.client)[NAME]["status"]["value"] == "unloaded"
        assert entries(router.client)[NAME]["source"] == "cache"
        assert router.client.post("/models", {"model": NAME}).status == 400
        assert router.client.post(CHAT, chat(NAME)).status == 200
        answer = router.client.request("DELETE", f"/models?model={NAME}")
        assert (answer.status, answer.json) == (200, {"success": True})
        assert NAME not in entries(router.client)


def test_a_download_is_cancelled_by_an_unload(router: Router, hub: HubServer) -> None:
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=1 << 20, hold=hold)]
    try:
        with Events(router.client) as events:
            assert router.client.post("/models", {"model": NAME}).status == 200
            until(lambda: "download_progress" in kinds(events, NAME))
            assert router.client.post("/models/unload", {"model": NAME}).status == 200
            until(lambda: "download_failed" in kinds(events, NAME))
            assert entries(router.client).get(NAME, {}).get("status", {}).get("value") != "downloading"
            told = [one["data"]["progress"] for one in events.of(NAME) if one["event"] == "download_progress"]
            assert all(name for progress in told for name in progress)
    finally:
        hold.set()


@pytest.mark.parametrize("name", ["no name", "org/unknown:Q8_0", f"{REPO}:Q2_K"])
def test_what_the_hub_does_not_have(router: Router, name: str) -> None:
    """llama-server finds out about the last two only in the download."""
    answer = router.client.post("/models", {"model": name})
    if router.is_peer and name != "no name":
        assert answer.status == 200
    else:
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")


def test_a_download_that_is_cancelled_is_no_error_in_the_log(
    files: Files, hub: HubServer, start: Callable[..., Live]
) -> None:
    hold = threading.Event()
    hub.repos[REPO] = {"README.md": b"", "Tiny-Q8_0.gguf": files.model.read_bytes()}
    hub.faults["/blobs/"] = [Fault(cut=1 << 20, hold=hold)]
    files.environ |= {"HF_ENDPOINT": hub.url, "MODEL_ENDPOINT": hub.url}
    live = start(files)
    try:
        assert live.client.post("/models", {"model": NAME}).status == 200
        assert live.client.post("/models/unload", {"model": NAME}).status == 200
        live.wait_line(f" I download: {NAME}: the download was cancelled")
    finally:
        hub.faults.clear()
        hold.set()


def test_a_removal_waits_for_requests_and_delays_nothing_else(
    files: Files, start: Callable[..., Live]
) -> None:
    """It goes on if its client leaves, and reloads go on beside it."""
    path = files.add_cached("org/Slow-GGUF", "Slow-Q8_0.gguf")
    path.write_bytes(Path(model_path()).read_bytes())
    live = start(files, "-c", "512", "-np", "2", "--no-warmup")
    name = "org/Slow-GGUF:Q8_0"
    stream = Stream(live.client, chat(name, 120))
    with socket.create_connection((live.client.host, live.client.port)) as leaving:
        leaving.sendall(f"DELETE /models?model={name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(lambda: name not in entries(live.client))
    assert name not in entries(live.client, "?reload=1")
    assert live.client.post(CHAT, chat(name)).status == 404
    assert stream.is_running
    assert path.exists()
    assert stream.finish() == ("length", 120)
    until(lambda: not path.exists())
    assert name not in entries(live.client, "?reload=1")


def test_a_hub_that_is_silent_delays_no_load(
    files: Files, hub: HubServer, start: Callable[..., Live]
) -> None:
    hold = threading.Event()
    hub.repos[REPO] = {"README.md": b"", "Tiny-Q8_0.gguf": files.model.read_bytes()}
    hub.faults["/api/models/"] = [Fault(cut=0, hold=hold) for _ in range(16)]
    files.environ |= {"HF_ENDPOINT": hub.url, "MODEL_ENDPOINT": hub.url}
    files.add("other.gguf")
    live = start(files, "-c", "512", "--no-warmup")
    try:
        asked = [
            Background(partial(live.client.post, "/models", {"model": f"{REPO}:Q2_K"})) for _ in range(16)
        ]
        assert live.client.post(CHAT, chat("other")).status == 200
        assert all(one.is_running for one in asked)
    finally:
        hub.faults.clear()
        hold.set()
