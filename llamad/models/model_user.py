"""What a host needs of those that serve requests with its model. There may be several: variants with other defaults."""

from __future__ import annotations

from typing import Protocol

from llamad.client.engine_client import EngineClient
from llamad.protocol.model_info import Model


class ModelUser(Protocol):
    """Serves requests with the model of a host."""

    def prepare(self, model: Model) -> list[str]:
        """Prepare for a new model, before any engine serves it. Runs in a thread. Return the texts of the special
        tokens that Task.markers adds to the text. May raise LoadError."""

    async def engine_ready(self, engine: EngineClient) -> None:
        """Prepare an engine that serves, before any request sees it. May raise LoadError."""

    def engine_ended(self) -> None:
        """Forget what an engine held."""
