"""Without the packages that decode images and sound: text is served as ever, and a projector is refused with the names
of the packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.live_daemon import Live
from support.models.tiny_kv_models import N_EMBD, write_model
from support.models.tiny_projectors import write_projector

NAMES = {"PIL": "pillow", "soundfile": "soundfile", "soxr": "soxr"}


@pytest.fixture
def without(tmp_path: Path):
    """An environment in which these modules cannot be imported, by any process."""

    def environment(*modules: str) -> dict[str, str]:
        folder = tmp_path / "-".join(modules)
        folder.mkdir()
        line = f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n"
        (folder / "sitecustomize.py").write_text(line)
        return {"PYTHONPATH": str(folder)}

    return environment


def test_text_needs_none_of_them(without, tiny):
    with Live(model=tiny, env=without(*NAMES)) as live:
        reply = live.client.post("/completion", {"prompt": "a", "n_predict": 2, "ignore_eos": True})
    assert reply.status == 200


@pytest.mark.parametrize("modules", [("PIL",), ("soundfile", "soxr")])
def test_a_projector_is_refused_at_the_start(without, tmp_path, modules):
    model = write_model(tmp_path / "model.gguf", "llama")
    projector = write_projector(tmp_path / "mmproj-tiny.gguf", "janus_pro", N_EMBD)
    command = [sys.executable, "-m", "llamad", "-m", model, "--mmproj", projector, "--port", "0"]
    env = {**os.environ, **without(*modules)}

    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    names = " ".join(NAMES[module] for module in modules)
    advice = f"pip install {names}, or start with --no-mmproj"
    assert done.stderr == f"llamad: --mmproj {projector} needs Python packages that are missing: {advice}\n"
