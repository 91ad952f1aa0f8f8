"""Finds the adapters that a request asks for, by their numbers or by the name of a model.

Event loop only. Errors name the field that was sent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from llamad.api.request.errors import ApiError, bad
from llamad.api.service.served_model import ServedModel
from llamad.client.adapters import Adapter, Adapters, AdapterSet, TwoInvocations, UnknownAdapter, Use

# Stands between the name of a model and the name of one of its adapters.
JOINT = ":"
# The longest name, in characters, that is not one of the server's; each event of a stream repeats the name.
NAME_MAX = 1024


def adapters_of(
    served: ServedModel, key: str, model: str | None, scales: Sequence[tuple[int, float]] | None
) -> tuple[Use, ...]:
    """Return the adapters of a request that has this key, model and scales. Raises a 404 if the model that it names has
    no such adapter, and a 400 if there is no adapter with one of the numbers."""
    adapters = served.host.adapters
    try:
        adapter = None if model is None else named(adapters, served.names, model)
        return adapters.uses(scales, adapter, served.key_states.scales(key))
    except UnknownAdapter as error:
        raise bad(
            f'"lora": there is no adapter {error}; GET /lora-adapters lists those of this server'
        ) from None


def named(adapters: Adapters, names: Collection[str], model: str) -> Adapter | None:
    """Return the adapter that the name of a model refers to, or None if it refers to the model itself. A name that is
    unknown also refers to the model."""
    if model in names:
        return None
    if len(model) > NAME_MAX:
        raise bad(f'"model" may have at most {NAME_MAX} characters, not {len(model)}')
    base, joint, name = model.rpartition(JOINT)
    try:
        return adapters.named(name if joint and base in names else model)
    except UnknownAdapter:
        if not joint or base not in names:
            return None
        raise ApiError(404, f'the model "{base}" has no adapter "{name}"') from None


def adapter_set(adapters: Adapters, uses: Sequence[Use], tokens: bytes) -> AdapterSet:
    """Return the adapters that compute the prompt `tokens`. Raises a 400 if two of them are activated adapters."""
    try:
        return adapters.chosen(uses, tokens)
    except TwoInvocations:
        raise bad("only one activated adapter (aLoRA) can act in a request") from None
