"""For the tests of models by name: a hub, and a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hub.cache import Cache
from support.hub.server import HubServer


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer()
    yield server
    server.close()


@pytest.fixture
def cache(tmp_path: Path, hub: HubServer) -> Cache:
    return Cache(tmp_path / "cache", hub)
