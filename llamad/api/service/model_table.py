"""The models of this server. It decides which of them a request is for. many_models.py does that for a router.

Used on the event loop. Nothing else in the front end may assume that there is one model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llamad.api.service.auth import Keys
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Request
from llamad.models.host_state import State


class ModelTable:
    is_router = False  # there are many models, and requests name one

    def __init__(self, service: Service, models: list[ServedModel]) -> None:
        self.service = service
        self._models = models

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def of(self, request: Request) -> ServedModel:
        """Return the model that serves a request, by its head alone. Here is one, and it serves every name."""
        return self._models[0]

    def with_model(self, exchange: Exchange, then: Callable[[ServedModel, Exchange], None]) -> None:
        """Call `then` with the model that serves a request: now, or when its body was read. Raises ApiError."""
        then(self._models[0], exchange)

    # The life of the engines.

    @property
    def is_ready(self) -> bool:
        """Whether requests are served."""
        return any(one.host.state is State.READY for one in self)

    def expect_load(self) -> None:
        """Show all models as loading, because load() follows soon."""
        for one in self:
            one.host.expect_load()

    async def load(self) -> None:
        """Load what is served from the start; return when it serves or has failed."""
        for one in self:
            await one.host.load()

    def leave(self) -> None:
        """Note that the daemon drains, or is about to."""
        for one in self:
            one.host.is_leaving = True

    def drain(self) -> None:
        """Refuse new requests."""
        for one in self:
            one.host.drain()

    async def end_engines(self) -> None:
        """End all engines. Requests in flight fail."""
        for one in self:
            await one.host.close()

    def set_keys(self, keys: Keys) -> None:
        """Accept these keys from now on, and no others."""
        self.service.keys = keys
        for one in self:
            one.key_states.set_keys(keys.names)

    def close(self) -> None:
        for one in self:
            one.close()
        self.service.close()
