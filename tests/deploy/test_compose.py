"""The files for Docker Compose: a daemon starts with the environment that they set."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from support.live_daemon import Live, model_path

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "docker"
PRESET = "[chat]\nmodel = {folder}/model.gguf\nctx-size = 512\n"


def environment(name: str, service: str, folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a service, with the folders of the container below `folder`."""

    def value(match: re.Match[str]) -> str:
        given = variables.get(match[1], "")
        if match[2] == "+":
            return match[3] if given else ""
        assert given or match[2] == "-", f"{match[1]} must be set"
        return given or match[3]

    told = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))["services"][service]["environment"]
    every = {key: re.sub(r"\$\{(\w+):([-+?])([^}]*)\}", value, str(text)) for key, text in told.items()}
    return {key: re.sub(r"^/(models|cache)", rf"{folder}/\1", text) for key, text in every.items()}


@pytest.mark.parametrize("service", ["llamad", "llamad-gpu"])
@pytest.mark.parametrize("preset", ["", "models.ini"])
def test_many_models(service: str, preset: str, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(model_path(), models / "model.gguf")
    (models / "models.ini").write_text(PRESET.format(folder=models))
    environ = environment("compose.router.yaml", service, tmp_path, PRESET=preset, LLAMA_API_KEY="secret")
    with Live(env=environ) as server:
        listed = server.client.get("/models", headers={"Authorization": "Bearer secret"}).json["data"]
        assert [one["id"] for one in listed] == (["chat", "model"] if preset else ["model"])
        assert server.client.post("/completion", {"model": "model", "prompt": "x"}).status == 401


def test_one_model(tmp_path: Path) -> None:
    told = environment("compose.yaml", "llamad", tmp_path, MODEL="model.gguf")
    assert told["LLAMA_ARG_MODEL"] == f"{tmp_path}/models/model.gguf"
