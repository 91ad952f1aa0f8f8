"""What clients set for later requests: the system prompt and the scales of LoRA adapters.

With API keys every key has its own. Without keys, or with --system-prompt-shared, all clients share one. A key that has
set nothing uses the server's own. There is at most one entry per configured key, so nothing here grows. Runs on the
event loop; prepare() runs in a thread while no request is served.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from llamad.api.request.errors import ApiError
from llamad.api.request.system_prompt import tokenized
from llamad.options.values import SystemPrompt
from llamad.protocol.model_info import Model

log = logging.getLogger("llamad.api")

# The name of the state that all clients share. No key has an empty name.
EVERYONE = ""


class KeyStates:
    """The states of all keys. `own` is the server's system prompt. Keys are identified by their names; without keys the
    name of a request's key is empty."""

    def __init__(self, own: SystemPrompt, *, is_shared: bool) -> None:
        self._own = own
        self._is_shared = is_shared
        self._names = frozenset({EVERYONE})  # the names that may have a state
        self._systems: dict[str, SystemPrompt] = {}
        self._scales: dict[str, Mapping[int, float]] = {}

    def set_keys(self, names: Iterable[str]) -> None:
        """Set the names of the valid keys. Keys that are not among them lose their state."""
        keys = frozenset(names)
        self._names = keys if keys and not self._is_shared else frozenset({EVERYONE})
        for states in (self._systems, self._scales):
            for name in states.keys() - self._names:
                del states[name]

    def prepare(self, model: Model) -> None:
        """Tokenize the system prompts with the vocabulary of this model. A client's prompt that does not fit is
        dropped. Raises ApiError if the server's own does not fit."""
        self._own = tokenized(self._own, model)
        for name, system in list(self._systems.items()):
            try:
                self._systems[name] = tokenized(system, model)
            except ApiError as error:
                log.warning("dropped a system prompt that a client has set: %s", error.message)
                del self._systems[name]

    def system(self, key: str) -> SystemPrompt:
        """Return the system prompt of a key's requests."""
        return self._systems.get(self._name(key), self._own)

    def set_system(self, key: str, system: SystemPrompt) -> None:
        """Replace the system prompt in one assignment, so that no request sees half a change."""
        name = self._name(key)
        if name in self._names:  # else the key was removed while its request ran
            self._systems[name] = system

    def scales(self, key: str) -> Mapping[int, float] | None:
        """Return the scales of adapters, by number, for a key's requests that name none. None means the server's own
        scales."""
        return self._scales.get(self._name(key))

    def set_scales(self, key: str, scales: Mapping[int, float]) -> None:
        name = self._name(key)
        if name in self._names:
            self._scales[name] = scales

    def _name(self, key: str) -> str:
        return EVERYONE if self._is_shared else key
