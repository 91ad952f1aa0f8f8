"""docs/clients.md: its Python blocks run, and the requests of clients that cannot run here succeed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake
from llamad.launch.programs import PROGRAMS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
TEXT = "Good morning."
URL = "http://localhost:8080"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def name_of(block: str) -> str:
    """The package that a block imports, and what it asks for."""
    package = re.search(r"^from (\w+)", block, re.MULTILINE)
    assert package is not None
    return f"{package[1]}-responses" if "responses" in block else package[1]


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    script = TEXT.encode()
    with Faked(Fake(script=script, n_ctx=2048), "-a", "my-model", "--api-key", "none", n_ctx=2048) as made:
        yield made


@pytest.mark.parametrize("block", blocks("python"), ids=name_of)
def test_a_block_of_python_prints_the_answer(block: str, server: Faked, tmp_path: Path) -> None:
    assert URL in block
    script = tmp_path / "block.py"
    script.write_text(block.replace(URL, f"http://{server.client.host}:{server.client.port}"))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == TEXT


def test_every_program_that_can_be_launched_is_named() -> None:
    (block,) = blocks("bash")
    assert re.findall(r"^llamad launch (\w+) -m model.gguf$", block, re.MULTILINE) == list(PROGRAMS)


def test_settings_of_editors() -> None:
    assert json.loads(blocks("json")[-1]) == {"llama-vscode.endpoint": "http://127.0.0.1:8012"}
    (block,) = blocks("yaml")
    settings = yaml.safe_load(block)
    # Continue refuses a file without these.
    assert {"name", "version", "schema"} < set(settings)
    (model,) = settings["models"]
    assert (model["provider"], model["apiBase"], model["model"]) == ("openai", f"{URL}/v1", "my-model")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        # Cline: a stream with usage.
        (
            "/v1/chat/completions",
            {
                "model": "my-model",
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0,
            },
        ),
        # Cline: the content of messages in parts.
        (
            "/v1/chat/completions",
            {
                "model": "my-model",
                "messages": [{"role": "user", "content": [{"type": "text", "text": "<task>Hi</task>"}]}],
                "stream": True,
                "max_tokens": 100,
            },
        ),
        # Continue: the legacy endpoint, with stops.
        ("/v1/completions", {"model": "my-model", "prompt": "def f(", "stop": ["\n\n"], "stream": True}),
    ],
)
def test_requests_of_programs_that_are_not_run(path: str, body: dict[str, Any], server: Faked) -> None:
    reply = server.client.post(path, body, headers={"Authorization": "Bearer none"})
    assert reply.status == 200, reply.body
    assert "x-llamad-ignored" not in reply.headers
    lines = [
        line.removeprefix("data: ") for line in reply.body.decode().splitlines() if line.startswith("data: ")
    ]
    assert lines[-1] == "[DONE]"
    choices = [choice for line in lines[:-1] for choice in json.loads(line)["choices"]]
    texts = [one.get("text") or one.get("delta", {}).get("content") or "" for one in choices]
    assert "".join(texts) == TEXT
