"""Which engines and models leave when a catalogue replaces another."""

from __future__ import annotations

import pytest
from support.many_models.catalogues import Place

from llamad.models.catalogue.catalogue import difference
from llamad.models.catalogue.leaving import leaving

BEFORE = {"a": "", "b": "temp = 0", "c": "temp = 1", "other": "ctx-size = 512"}
# The engines that serve them; nobody has asked for "c" yet.
ENGINES = {"a": "a", "b": "a", "other": "other"}


def preset(place: Place, sections: dict[str, str]) -> str:
    path = place.file("m.gguf")
    return "".join(f"[{name}]\nmodel = {path}\n{lines}\n" for name, lines in sections.items())


@pytest.mark.parametrize(
    ("changes", "engines", "models"),
    [
        ({}, "", ""),
        ({"b": "temp = 0.5"}, "", ""),
        ({"a": "alias = z"}, "", ""),
        ({"b": None}, "", "b"),
        ({"a": None}, "", "a"),
        ({"a": "ctx-size = 1024"}, "", "a"),
        ({"b": "ctx-size = 512"}, "", "b"),  # it joins "other"
        ({"b": "colour = blue"}, "", "b"),
        ({"a": None, "b": None}, "a", ""),
        ({"a": "ctx-size = 1024", "b": "ctx-size = 1024"}, "a", ""),
        ({"b": "chat-template = chatml"}, "a", ""),  # which may need tokens that the engine does not show
        ({"new": "top-k = 3"}, "", ""),
        ({"new": "chat-template = chatml"}, "a", ""),
        ({"c": "chat-template = chatml"}, "a", ""),
        ({"new": "ctx-size = 2048\nchat-template = chatml"}, "", ""),
        ({"other": None}, "other", ""),
    ],
    ids=str,
)
def test_who_leaves(place: Place, changes: dict[str, str | None], engines: str, models: str) -> None:
    old = place.read(preset(place, BEFORE))
    after = {name: lines for name, lines in {**BEFORE, **changes}.items() if lines is not None}
    new = place.read(preset(place, after))
    gone = leaving(old, new, difference(old, new), ENGINES)
    assert (set(gone.engines), set(gone.models)) == (set(engines.split()), set(models.split()))
