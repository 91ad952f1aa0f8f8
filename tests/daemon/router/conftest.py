"""Files of a router, and routers over them: ours, and llama-server's with the same flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.live_daemon import Live
from support.many_models.files import Files, Router
from support.peer import llama_server

StartRouter = Callable[..., Router]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> Files:
    return Files(tmp_path_factory.mktemp("router"), Path(tiny))


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[..., Live]]:
    """Start a daemon over a router's files, with more flags. It ends with the module."""
    with ExitStack() as stack:

        def start_one(files: Files, *flags: str, **options: object) -> Live:
            return stack.enter_context(Live(*files.flags, *flags, env=files.environ, **options))

        yield start_one


@pytest.fixture(scope="module")
def start_peer() -> Iterator[Callable[..., Router]]:
    with ExitStack() as stack:

        def start_one(kind: str, files: Files, *flags: str, headers: dict[str, str] | None = None) -> Router:
            if kind == "llama-server":
                client = stack.enter_context(llama_server(None, *files.flags, *flags, env=files.environ))
            else:
                client = stack.enter_context(Live(*files.flags, *flags, env=files.environ)).client
            client.headers |= headers or {}
            return Router(client, is_peer=kind == "llama-server")

        yield start_one
