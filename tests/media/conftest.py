"""Fixtures of the tests of media."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that asyncio would have connected to. It connects nowhere."""
    tried: list[str] = []

    async def open_connection(host: str, *_: Any, **__: Any) -> Any:
        tried.append(host)
        raise ConnectionRefusedError("a test connects nowhere")

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    return tried
