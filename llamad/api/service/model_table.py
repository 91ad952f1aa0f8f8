"""The models of this server. It decides which of them a request is for.

Used on the event loop. Nothing else in the front end may assume that there is one model.
"""

from __future__ import annotations

from collections.abc import Iterator

from llamad.api.service.auth import Keys
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.http.request import Request


class ModelTable:
    def __init__(self, service: Service, models: list[ServedModel]) -> None:
        self.service = service
        self._models = models

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def of(self, request: Request) -> ServedModel:
        """Return the model that serves the request. There is one, and it serves every name."""
        return self._models[0]

    def set_keys(self, keys: Keys) -> None:
        """Accept these keys from now on, and no others."""
        self.service.keys = keys
        for one in self._models:
            one.key_states.set_keys(keys.names)

    def close(self) -> None:
        for one in self._models:
            one.close()
        self.service.close()
