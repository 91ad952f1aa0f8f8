"""llama-server itself, built from the same sources by `make peer`: what llamad is compared with."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from recipe import cache, source
from support.http_client import Client
from support.live_daemon import WAIT_SECONDS


def program() -> str:
    """The path of llama-server. Skips the test where it was not built."""
    commit = source.choose().commit
    made = [one for one in (cache.root() / "peer").glob("*") if cache.read_meta(one).get("commit") == commit]
    if not made:
        pytest.skip("there is no llama-server to compare with: run `make peer`")
    return str(made[0] / "bin" / "llama-server")


@contextmanager
def llama_server(model: str | None, *flags: str, env: Mapping[str, str] | None = None) -> Iterator[Client]:
    """Serving the model, or with None what the flags name. Skips the test where it was not built."""
    path = program()
    with socket.create_server(("127.0.0.1", 0)) as free:
        client = Client(*free.getsockname())
    named = [] if model is None else ["-m", model]
    command = [path, *named, "-t", "1", "--port", str(client.port), *flags]
    environ = {**os.environ, **(env or {})}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ
    ) as process:
        try:
            _wait_ready(process, client)
            yield client
        finally:
            process.kill()


def _wait_ready(process: subprocess.Popen[bytes], client: Client) -> None:
    t_end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < t_end and process.poll() is None:
        try:
            if client.get("/health").status == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("llama-server does not serve")
