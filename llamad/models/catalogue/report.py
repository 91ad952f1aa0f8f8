"""Writes a catalogue for people and for scripts, as `llamad check` prints it. Pure functions."""

from __future__ import annotations

import msgspec

from llamad.models.catalogue.catalogue import Catalogue
from llamad.models.catalogue.entry import Entry


class Line(msgspec.Struct, frozen=True):
    """A model in the report."""

    id: str
    source: str
    aliases: tuple[str, ...]
    model: str  # the path, or the name of what is downloaded first; empty if the model is disabled
    engine: str
    is_pinned: bool
    loads_on_startup: bool
    is_hidden: bool
    reason: str
    warnings: tuple[str, ...]


class CatalogueReport(msgspec.Struct, frozen=True):
    """The report, as --json prints it."""

    models: list[Line]
    default_model: str | None
    warnings: list[str]


def report(catalogue: Catalogue, warnings: list[str]) -> CatalogueReport:
    """Return the report. The warnings are those of the command line."""
    return CatalogueReport(
        models=[
            Line(
                id=one.id,
                source=one.source,
                aliases=one.aliases,
                model=_model(one),
                engine=one.engine,
                is_pinned=one.is_pinned,
                loads_on_startup=one.loads_on_startup,
                is_hidden=one.is_hidden,
                reason=one.reason,
                warnings=one.warnings,
            )
            for one in catalogue.entries.values()
        ],
        default_model=catalogue.default_model,
        warnings=[*warnings, *catalogue.warnings],
    )


def text(result: CatalogueReport) -> str:
    """Return the report for people: a line for each model, and one for each thing that is wrong."""
    lines = []
    for one in result.models:
        lines.append(f"{one.id}: {f'disabled: {one.reason}' if one.reason else _details(one, result)}")
        lines += [f"  warning: {warning}" for warning in one.warnings]
    n_wrong = sum(bool(one.reason) for one in result.models)
    lines.append(f"{len(result.models)} models{f', {n_wrong} of them disabled' if n_wrong else ''}")
    lines += [f"warning: {warning}" for warning in result.warnings]
    return "\n".join(lines)


def _model(entry: Entry) -> str:
    settings = entry.settings
    if settings is None:
        return ""
    return settings.hf_repo or settings.model if settings.model_url is None else "a file of --model-url"


def _details(one: Line, result: CatalogueReport) -> str:
    parts = [
        one.model,
        f"aliases {', '.join(one.aliases)}" if one.aliases else "",
        f"shares the engine of {one.engine}" if one.engine != one.id else "",
        "default" if one.id == result.default_model else "",
        "pinned" if one.is_pinned else "",
        "loaded at the start" if one.loads_on_startup else "",
        "not listed" if one.is_hidden else "",
    ]
    return "; ".join(filter(None, parts))
