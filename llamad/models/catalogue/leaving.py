"""Decides which engines and models a reload takes away. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from llamad.models.catalogue import variants
from llamad.models.catalogue.catalogue import Catalogue, Difference


class Leaving(msgspec.Struct, frozen=True):
    """Engines that leave with all of their models, and models that leave engines which go on with others."""

    engines: frozenset[str]
    models: frozenset[str]


def leaving(old: Catalogue, new: Catalogue, changes: Difference, engine_of: Mapping[str, str]) -> Leaving:
    """Return what leaves when a catalogue replaces another. `engine_of` has the engine of each model that is served."""
    gone = {
        id
        for id in (*changes.removed, *changes.changed)
        if id in engine_of
        and not (id in new.entries and variants.keeps_engine(old.entries[id], new.entries[id]))
    }
    engines: set[str] = set()
    models: set[str] = set()
    for engine in set(engine_of.values()):
        here = {id for id, one in engine_of.items() if one == engine}
        stay, leave = here - gone, here & gone
        # A model that shares an engine with those that stay, but cannot be served by it, needs another for all of them.
        others = {*leave, *changes.added, *changes.changed} - stay
        mates = [id for id in others if _share(new, id, stay)]
        templates = {variants.template(new.entries[id]) for id in stay}
        if not stay or any(
            id in leave or variants.template(new.entries[id]) not in templates for id in mates
        ):
            engines.add(engine)
        else:
            models |= leave
    return Leaving(frozenset(engines), frozenset(models))


def _share(catalogue: Catalogue, id: str, others: set[str]) -> bool:
    """Return whether a model shares its engine with one of the others."""
    entry = catalogue.entries.get(id)
    return entry is not None and entry.engine in {catalogue.entries[one].engine for one in others}
