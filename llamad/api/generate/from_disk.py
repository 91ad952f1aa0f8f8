"""Gives the engine what the disk has of a request's prompts, before its tasks are submitted (--cache-disk).

Runs on the event loop. A request waits no longer than computing the tokens would take; it never fails because of it.
"""

from __future__ import annotations

import msgspec

from llamad.api.generate.prepare import PreparedPrompts
from llamad.api.generate.task_maker import retention_s
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.adapters import adapter_set, adapters_of
from llamad.api.service.served_model import ServedModel
from llamad.client.adapters import AdapterSet
from llamad.http.request import Request
from llamad.models.cache_disk.disk_cache import Wanted
from llamad.models.disk_prompts import DiskPrompts, Hint


class Stored(msgspec.Struct, frozen=True):
    """What the disk has of one prompt, and the adapters that compute it."""

    wanted: Wanted
    adapters: AdapterSet


class FromDisk:
    """The entries that a request should get first; none if it is false."""

    def __init__(
        self, served: ServedModel, request: Request, generation: GenerationRequest, ready: PreparedPrompts
    ) -> None:
        self._disk: DiskPrompts | None = served.host.disk
        self._owner = served.owner(request)
        self._hint = Hint(served.service.session(request), retention_s(generation))
        self._stored: list[Stored] = []
        if self._disk is None or not generation.cache_prompt or any(ready.rows):
            return
        uses = adapters_of(served, request.key_name, generation.model, generation.lora)
        for tokens in ready.tokens:
            adapters = adapter_set(served.host.adapters, uses, tokens)
            wanted = self._disk.find(self._owner, adapters, tokens)
            if wanted is not None:
                self._stored.append(Stored(wanted, adapters))

    def __bool__(self) -> bool:
        return bool(self._stored)

    async def insert(self) -> None:
        """Return when the engine has the entries, or as soon as computing them is faster."""
        assert self._disk is not None
        for one in self._stored:
            await self._disk.insert(one.wanted, self._owner, self._hint, one.adapters)
