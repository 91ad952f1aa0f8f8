"""What a scrape of /metrics reads of one model: its counters, slots and texts.

Made on the event loop for each scrape; never waits for the engine.
"""

from __future__ import annotations

import time
from functools import cached_property

from llamad.api.service.served_model import ServedModel
from llamad.client.embedding import Embedder
from llamad.client.engine_client import EngineClient
from llamad.client.events import SlotCounts
from llamad.protocol.model_info import VectorCounts

Labels = tuple[tuple[str, str], ...]  # names and values


class Snapshot:
    """What a scrape reads of one model. The engine's counters are read once."""

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self.host = served.host

    @property
    def engine(self) -> EngineClient:
        assert self.host.engine is not None
        return self.host.engine

    @property
    def embedder(self) -> Embedder:
        assert self.host.embedder is not None
        return self.host.embedder

    @property
    def n_ctx(self) -> int:
        assert self.host.model is not None
        return self.host.model.n_ctx

    @cached_property
    def stats(self) -> dict[str, int]:
        return self.engine.stats()

    @cached_property
    def slots(self) -> list[SlotCounts]:
        return self.engine.slots()

    @property
    def embedded(self) -> VectorCounts:
        return VectorCounts() if self.host.embedder is None else self.host.embedder.counts

    def generated(self, name: str) -> float:
        """Return a counter of the engine, times in seconds; 0 if the model generates no text."""
        return 0 if self.host.engine is None else self.stats[name] * (1e-6 if name.endswith("_us") else 1)

    def seconds(self, name: str) -> float:
        return self.stats[name] / 1e6

    def n_cached(self, *, only_running: bool = False) -> int:
        """Return the number of tokens in slots. Those of a prefix that slots share count for each of them."""
        return sum(slot.n_tokens for slot in self.slots if slot.is_busy or not only_running)

    def accepted_at(self) -> dict[Labels, int]:
        """Return how many drafted tokens were right at each position of a draft."""
        name = "n_accepted_at_"
        return {(("position", key[len(name) :]),): n for key, n in self.stats.items() if key.startswith(name)}

    def adapters_in_use(self) -> dict[Labels, float]:
        """Return the adapters of requests in vLLM's format, which endpoint pickers read. The value is the time, so that
        the newer of two such lines counts."""
        names = {one.info.id: one.file.name for one in self.host.adapters.list() if one.file.name}
        if not names:
            return {}
        running: set[str] = set()
        waiting: set[str] = set()
        for one in self.engine.tasks.values():
            used = {names[number] for number, _ in one.task.adapters.uses if number in names}
            (running if one.slot >= 0 else waiting).update(used)
        labels = (
            ("max_lora", str(self.engine.n_slots)),
            ("running_lora_adapters", ",".join(sorted(running))),
            ("waiting_lora_adapters", ",".join(sorted(waiting))),
        )
        return {labels: time.time()}
