"""The real program with a model by name: it listens while it downloads, says how far it is, and serves."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.hub.cache import Cache, gguf, wait_for
from support.hub.server import COMMIT, Fault, HubServer
from support.live_daemon import Live, model_path
from support.models.tiny_kv_models import write_model
from support.models.tiny_model import N_EMBD
from support.models.tiny_projectors import write_projector
from support.peer import llama_server
from support.systemd.recorder import Recorder

from llamad.flags.groups.model import DEFAULT_MODEL
from llamad.flags.parse import parse
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.systemd import exit_codes

NAME = "org/SmolLM2-135M-Instruct-GGUF"


def test_a_model_by_name_is_downloaded_and_served(hub: HubServer, cache: Cache) -> None:
    model = Path(model_path()).read_bytes()
    hub.repos[NAME] = {"README.md": b"", "SmolLM2-135M-Instruct.Q4_1.gguf": model}
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=len(model) // 2, hold=hold)]
    with Live("-hf", f"{NAME}:q4_1", "-c", "512", ready=False, env=dict(cache.environ)) as server:
        wait_for(lambda: server.client.get("/health").json.get("progress", {}).get("percent", 0) >= 49)
        health = server.client.get("/health")
        assert (health.status, health.json["status"]) == (503, "loading model")
        progress = health.json["progress"]
        assert (progress["stage"], progress["n_bytes_total"]) == ("download", len(model))
        assert server.client.post("/completion", {"prompt": "x"}).status == 503
        assert [one["id"] for one in server.client.get("/v1/models").json["data"]] == [f"{NAME}:q4_1"]
        hold.set()
        server.wait_ready()
        assert server.client.get("/v1/models").json["data"][0]["aliases"] == [f"{NAME}:q4_1"]
        answer = server.client.post("/completion", {"prompt": "The capital of France is", "n_predict": 4})
        assert answer.json["content"]
        assert answer.json["model"] == f"{NAME}:q4_1"
        path = cache.root / "models--org--SmolLM2-135M-Instruct-GGUF" / "snapshots" / COMMIT
        props = server.client.get("/props").json
        assert props["model_path"] == str(path / "SmolLM2-135M-Instruct.Q4_1.gguf")
        assert any("downloading SmolLM2-135M-Instruct.Q4_1.gguf: " in line for line in server.lines)
    checked = subprocess.run(
        [sys.executable, "-m", "llamad", "check", "-hf", NAME, "-c", "512"],
        env={**os.environ, **cache.environ, "HF_ENDPOINT": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0
    assert f"completions and chats, as {NAME}\n" in checked.stdout


@pytest.mark.parametrize("path", ["models/mine.gguf", DEFAULT_MODEL])
def test_a_model_by_address_is_stored_where_the_path_says(
    hub: HubServer, cache: Cache, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Also if that is the default path: it was taken for none."""
    monkeypatch.chdir(tmp_path)
    hub.files["tiny.gguf"] = Path(tiny).read_bytes()
    address = f"{hub.url}files/tiny.gguf"
    with Live("-mu", address, "-m", path, "-c", "512", env=dict(cache.environ)) as server:
        assert server.client.get("/props").json["model_path"] == path
        assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2
    assert (tmp_path / path).read_bytes() == hub.files["tiny.gguf"]
    assert not cache.root.exists()


def test_the_projector_of_a_repository_is_used(
    hub: HubServer, cache: Cache, tiny: str, tmp_path: Path
) -> None:
    write_projector(tmp_path / "eyes.gguf", "janus_pro", N_EMBD)
    hub.repos[NAME] = {
        "tiny-F32.gguf": Path(tiny).read_bytes(),
        "mmproj-tiny-F32.gguf": (tmp_path / "eyes.gguf").read_bytes(),
    }
    with Live("-hf", NAME, "-c", "512", env=dict(cache.environ)) as server:
        assert server.client.get("/props").json["modalities"]["vision"]
        assert server.client.get("/models").json["models"][0]["capabilities"] == ["completion", "multimodal"]


def test_llama_server_and_llamad_share_a_cache(hub: HubServer, cache: Cache, tiny: str) -> None:
    hub.repos[NAME] = {"tiny-Q8_0.gguf": Path(tiny).read_bytes()}
    ours = cache.fetch("-hf", NAME).model
    with llama_server(None, "-hf", NAME, "--offline", "-c", "256", env=cache.environ) as theirs:
        assert theirs.get("/props").json["model_path"] == ours
        (listed,) = theirs.get("/v1/models").json["data"]
        assert (listed["id"], listed["aliases"]) == (NAME, [NAME])
    shutil.rmtree(cache.root)
    with llama_server(None, "-hf", NAME, "-c", "256", env=cache.environ):
        assert cache.fetch("-hf", NAME, "--offline").model == ours


def test_a_model_that_cannot_be_had_ends_the_program(hub: HubServer, cache: Cache) -> None:
    hub.always["/api/"] = Fault(status=403)
    with Live("-hf", NAME, "--hf-token", "hf_secret", ready=False, env=dict(cache.environ)) as server:
        assert server.wait_exit() == 1
    assert any("accept the model's licence" in line for line in server.lines)
    assert not any("hf_secret" in line for line in server.lines)


def test_a_signal_ends_a_download_at_once_and_keeps_what_is_there(
    hub: HubServer, cache: Cache, tmp_path: Path
) -> None:
    hold = threading.Event()
    hub.repos[NAME] = {"tiny-Q4_K_M.gguf": gguf()}
    hub.faults["/blobs/"] = [Fault(cut=1000, hold=hold)]
    with Recorder(str(tmp_path / "notify")) as told:
        with Live("-hf", NAME, ready=False, env={**cache.environ, **told.env}) as server:
            wait_for(lambda: any(part.stat().st_size for part in cache.parts()))
            server.signal(signal.SIGINT)
            assert server.wait_exit() == 0  # though nothing more comes
        first = told.told[0][1]
    hold.set()
    assert first["STATUS"] == "downloading the model"
    assert "EXTEND_TIMEOUT_USEC" in first
    assert [part.stat().st_size for part in cache.parts()] == [1000]


@pytest.mark.parametrize("data", [b"GGUF" + b"\xff" * 500])
def test_a_file_that_is_no_model_is_reported_by_the_engine(hub: HubServer, cache: Cache, data: bytes) -> None:
    hub.files["broken.gguf"] = data
    address = f"{hub.url}files/broken.gguf"
    with Live("-mu", address, "--exit-on-load-failure", ready=False, env=dict(cache.environ)) as server:
        assert server.wait_exit() == exit_codes.LOAD_FAILED
    assert any(f"{cache.root}/broken.gguf" in line for line in server.lines)


def test_a_draft_model_by_name_is_downloaded_beside_a_local_model(
    hub: HubServer, cache: Cache, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model.gguf", "llama")
    hub.repos["org/draft-GGUF"] = {
        "draft-Q8_0.gguf": Path(model).read_bytes(),
        "mmproj-F16.gguf": gguf(seed=1),
    }
    environ = dict(cache.environ)
    with Live("-hfd", "org/draft-GGUF", "-c", "512", "--spec-fixed", "3", model=model, env=environ) as server:
        answer = server.client.complete("abc", n_predict=16, temperature=0, ignore_eos=True)
        assert answer["timings"]["draft_n"] > 5
        assert server.client.get("/props").json["model_path"] == model
    pulled = subprocess.run(
        [sys.executable, "-m", "llamad", "pull", "-m", model, "-hfd", "org/draft-GGUF"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
    )
    path = cache.root / "models--org--draft-GGUF" / "snapshots" / COMMIT / "draft-Q8_0.gguf"
    assert pulled.stdout == f"{model}\n{path}\n"
    refused = Live("-hfd", "org/none-GGUF", model=model, env=environ, ready=False)
    with refused as server:
        server.wait_line("org/none-GGUF")


def test_a_download_is_given_up_and_begun_again(
    hub: HubServer, cache: Cache, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is unloaded before its files are there."""
    data = Path(tiny).read_bytes()
    hub.repos[NAME] = {"tiny.gguf": data}
    hold = threading.Event()
    hub.faults["/blobs/"] = [Fault(cut=len(data) // 2, hold=hold)]
    for name, value in cache.environ.items():
        monkeypatch.setenv(name, value)

    async def run() -> None:
        host = Host(
            parse(["-hf", NAME, "-np", "1", "-c", "256", "-t", "1", "--no-warmup"], {}).settings.model
        )
        try:
            loading = asyncio.ensure_future(host.load())
            while host.progress.percent is None:
                await asyncio.sleep(0.01)
            await host.unload()
            await asyncio.wait_for(loading, 5)
            assert (host.state, host.error) == (State.UNLOADED, "")
            hold.set()
            await asyncio.wait_for(host.load(), 60)
            assert host.state is State.READY
        finally:
            await host.close()

    asyncio.run(run())
