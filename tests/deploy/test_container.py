"""The container of deploy/docker/Dockerfile, built by buildah over a Debian that debootstrap makes, and run by podman.

`make soak` runs it. LLAMAD_TEST_FOLDERS names files and folders with the settings of a package index, separated by
colons. LLAMAD_TEST_CPU_VARIANTS, such as "x64;haswell", makes the build shorter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.booted import machine
from support.http_client import Client
from support.hub.server import HubServer
from support.imports import ROOT
from support.live_daemon import model_path, until
from support.rpc.workers import free_port

PROGRAMS = ("debootstrap", "buildah", "podman", "runc")
MISSING = [name for name in PROGRAMS if not shutil.which(name)]
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="building a root file system needs root"),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]
DOCKER = ROOT / "deploy" / "docker"
BASE, IMAGE, VOLUME = "localhost/llamad-test-python", "localhost/llamad-test", "llamad-test-cache"
REPO = "tiny/model-GGUF"
PACKAGES = "ca-certificates,python3,python3-dev,python3-venv"
# As the page on containers says. The limits are those that a machine without CAP_SYS_RESOURCE can set.
RUN = "run --detach --network=host --read-only --tmpfs=/tmp --cap-drop=all --security-opt=no-new-privileges"
LIMITS = "--ulimit=nofile=4096:4096 --ulimit=nproc=4096:4096"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout[-4000:], done.stderr[-4000:])
    return done.stdout.strip()


def podman(*arguments: str) -> str:
    return run("podman", "--runtime=runc", *arguments)


@pytest.fixture(scope="module")
def image() -> str:
    base = run("buildah", "from", "scratch")
    run("buildah", "add", "--quiet", base, str(machine.tree(PACKAGES, "-python")), "/")
    run("buildah", "commit", "--quiet", base, BASE)
    run("buildah", "rm", base)
    named = [name for name in os.environ.get("LLAMAD_TEST_FOLDERS", "").split(":") if name]
    run(
        *("buildah", "build", "--isolation=chroot", "--format=docker", f"--build-arg=PYTHON_IMAGE={BASE}"),
        f"--build-arg=CPU_VARIANTS={os.environ.get('LLAMAD_TEST_CPU_VARIANTS', '')}",
        *(f"--volume={name}:{name}:ro" for name in named),
        f"--ignorefile={DOCKER / 'Dockerfile.dockerignore'}",
        *("--file", str(DOCKER / "Dockerfile"), "--tag", IMAGE, str(ROOT)),
    )
    return IMAGE


class Container:
    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.client = Client("127.0.0.1", port)

    def is_healthy(self) -> bool:
        """Whether the image's own health check succeeds."""
        command = ["podman", "--runtime=runc", "healthcheck", "run", self.name]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        inside = ["podman", "--runtime=runc", "exec", self.name, *command]
        return subprocess.run(inside, capture_output=True, text=True, check=False)


@contextmanager
def started(image: str, options: list[str], *flags: str) -> Iterator[Container]:
    port = free_port()
    variables = ["--env=LLAMA_ARG_HOST=127.0.0.1", f"--env=LLAMA_ARG_PORT={port}"]
    command = [*RUN.split(), *LIMITS.split(), *variables, *options, image, "-t", "1", "-c", "512", *flags]
    container = Container(podman(*command), port)
    try:
        until(container.is_healthy, "it does not become healthy")
        yield container
    finally:
        print(run("sh", "-c", f"podman logs {container.name} 2>&1"))
        podman("rm", "--force", "--time=20", container.name)


def answer(container: Container) -> str:
    request = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    reply = container.client.post("/v1/chat/completions", request)
    assert reply.status == 200, reply.json
    return str(reply.json["choices"][0]["message"]["content"])


def test_it_answers_as_nobody_in_particular(image: str) -> None:
    options = [f"--volume={Path(model_path()).parent}:/models:ro"]
    with started(image, options, "-m", f"/models/{Path(model_path()).name}") as container:
        assert answer(container)

        assert container.run("id", "-u").stdout.strip() == "10001"
        assert "CapEff:\t0000000000000000" in container.run("cat", "/proc/self/status").stdout
        assert "Read-only file system" in container.run("touch", "/file").stderr


def test_a_model_that_was_downloaded_stays_in_its_volume(image: str) -> None:
    subprocess.run(["podman", "volume", "rm", "--force", VOLUME], capture_output=True, check=False)
    hub = HubServer()
    hub.repos[REPO] = {"model.gguf": Path(model_path()).read_bytes()}
    options = [f"--volume={VOLUME}:/cache", f"--env=HF_ENDPOINT={hub.url}"]
    try:
        with started(image, options, "-hf", REPO) as container:
            assert answer(container)
        with started(image, options, "-hf", REPO, "--offline") as container:
            assert answer(container)
    finally:
        podman("volume", "rm", "--force", VOLUME)
