"""The catalogue: every model that the daemon can serve, from a preset, a folder and the cache.

read() runs at the start and at a reload, on any thread; it reads folders, the preset and the first bytes of files. A
Catalogue is read-only. A model whose section or files are wrong is listed as disabled, with the reason.

The settings of a model come from, in this order (a later source wins): --env-file, the environment, the section [*],
the cache, --models-dir (which replaces a model of the cache with the same name), the model's own section, and the
command line. So a flag on the command line holds for every model, as in llama-server.

No two models answer to the same name. If an alias is the id of another model, the model with the alias is disabled; if
two models have the same alias, the one that comes later in the order of ids is. (llama-server does not start then.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from llamad.flags.parse import MODEL_SOURCES, OF_ONE_MODEL, Parsed, settle
from llamad.flags.settings import ModelSettings
from llamad.models.catalogue import folder, hub_cache, ini, section, variants
from llamad.models.catalogue.building import Draft, Shared, build, layer_of
from llamad.models.catalogue.entry import Entry
from llamad.models.catalogue.errors import CatalogueError

PRESET_BYTES_MAX = 4 << 20

HUBS = ("hf.co/", "huggingface.co/")


class Catalogue(msgspec.Struct, frozen=True):
    """Entries by id, in order. `default_model` is the id for requests that name no model, or None."""

    entries: dict[str, Entry]
    aliases: dict[str, str]  # ids by alias
    default_model: str | None
    warnings: tuple[str, ...]

    def find(self, name: str) -> Entry | None:
        """Return the entry with this id, else the one with this alias, else None. The hub's host may stand before it,
        as clients of Ollama write names."""
        bare = next((name.removeprefix(host) for host in HUBS if name.startswith(host)), name)
        entries = (
            self.entries.get(one) or self.entries.get(self.aliases.get(one, "")) for one in (name, bare)
        )
        return next((entry for entry in entries if entry is not None), None)


class Difference(msgspec.Struct, frozen=True):
    """The ids of the models that a reload adds, removes and changes, in order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def read(parsed: Parsed, environ: Mapping[str, str]) -> Catalogue:
    """Return the catalogue of a command line. `environ` says where the cache is. Raises CatalogueError."""
    daemon = parsed.settings.daemon
    warnings: list[str] = []
    sections = _sections(daemon.models_preset)
    common = section.NO_SETTINGS
    if ini.EVERY_MODEL in sections:
        common = _common(sections.pop(ini.EVERY_MODEL), daemon.models_preset)
        warnings += [f"[{ini.EVERY_MODEL}] {one}" for one in common.warnings]
    names, more = hub_cache.read(environ)
    warnings += more
    drafts = {name: Draft(name, "cache", [layer_of(hf_repo=name)]) for name in names}
    if daemon.models_dir is not None:
        listing = folder.read(daemon.models_dir)
        warnings += listing.warnings
        for one in listing.models:
            files = {"model": one.path, **({"mmproj": one.projector} if one.projector else {})}
            drafts[one.name] = Draft(one.name, "models_dir", [layer_of(**files)], reason=one.reason)
    for name, one_section in sections.items():
        if name != ini.UNNAMED or one_section.values.keys() - {"version"}:
            drafts[name] = _with_section(drafts.get(name), one_section)
    shared = Shared(parsed, common, environ)
    built = [build(drafts[name], shared) for name in sorted(drafts)]
    entries = _hidden(_without_clashes(built), built, drafts, common)
    engines = variants.engines(entries)
    by_id = {one.id: msgspec.structs.replace(one, engine=engines[one.id]) for one in entries}
    aliases = {alias: one.id for one in entries for alias in one.aliases}
    return _with_default(Catalogue(by_id, aliases, None, tuple(warnings)), common.default_model)


def download_settings(parsed: Parsed, name: str) -> ModelSettings:
    """Return the settings with which a model of a hub is downloaded. Raises FlagError."""
    layers = [[one for one in layer if one.flag.dest not in OF_ONE_MODEL] for layer in parsed.layers]
    own = [one for same in layer_of(hf_repo=name).values() for one in same]
    return settle([*layers, own], []).settings.model


def difference(old: Catalogue, new: Catalogue) -> Difference:
    """Return what a reload changes. A model has changed if anything but its warnings has; whether its engine must be
    replaced says variants.same_engine()."""

    def plain(entry: Entry) -> Entry:
        return msgspec.structs.replace(entry, engine="", warnings=())

    both = [name for name in new.entries if name in old.entries]
    return Difference(
        added=tuple(name for name in new.entries if name not in old.entries),
        removed=tuple(name for name in old.entries if name not in new.entries),
        changed=tuple(name for name in both if plain(old.entries[name]) != plain(new.entries[name])),
    )


def _sections(path: str | None) -> dict[str, ini.Section]:
    """Read the preset. Raises CatalogueError."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            data = file.read(PRESET_BYTES_MAX + 1)
    except OSError as error:
        raise CatalogueError(f"--models-preset {path}: {error.strerror}; name an INI file") from None
    if len(data) > PRESET_BYTES_MAX:
        raise CatalogueError(
            f"--models-preset {path} is larger than {PRESET_BYTES_MAX >> 20} MiB; name an INI file"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CatalogueError(f"{path}, line {line}: this is not UTF-8; save the file as UTF-8") from None
    return ini.parse(text, path)


def _common(one: ini.Section, path: str | None) -> section.SectionSettings:
    """Read the section that applies to all models. A wrong key in it is an error of the whole file, because it would
    disable every model. Raises CatalogueError."""
    settings = section.read(one)
    if settings.errors:
        raise CatalogueError(f"{path}, section [{ini.EVERY_MODEL}]: {'; '.join(settings.errors)}")
    return settings


def _with_section(draft: Draft | None, one: ini.Section) -> Draft:
    """Return a model with the settings of its section, on top of those that the folder or the cache gave it."""
    layers = draft.layers if draft is not None else []
    settings = section.read(one)
    reason = "; ".join(settings.errors)
    # A section that names a model of its own does not use the one in the folder.
    if draft is not None and settings.layer.keys().isdisjoint(MODEL_SOURCES):
        reason = reason or draft.reason
    return Draft(one.name, "preset", [*layers, settings.layer], settings, reason)


def _without_clashes(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries, in which those are disabled whose alias is the name of another model."""
    entries = list(entries)
    ids = {one.id for one in entries}
    holders: dict[str, str] = {}
    result = []
    for entry in entries:
        clashes = {name: name if name in ids else holders.get(name, "") for name in entry.aliases}
        clashes = {name: other for name, other in clashes.items() if other}
        own = tuple(name for name in entry.aliases if name not in clashes)
        holders |= dict.fromkeys(own, entry.id)
        if clashes:
            name, other = next(iter(clashes.items()))
            reason = entry.reason or f"the alias {name} is a name of the model {other}, too; choose another"
            entry = msgspec.structs.replace(entry, aliases=own, settings=None, reason=reason)
        result.append(entry)
    return result


def _hidden(
    entries: list[Entry], built: list[Entry], drafts: Mapping[str, Draft], common: section.SectionSettings
) -> list[Entry]:
    """Return the entries, in which models of the cache are hidden whose file is used by a section that says
    dedup-cache-models."""
    used = set()
    for entry in built:
        keys = {**common.keys, **drafts[entry.id].settings.keys}
        if entry.source == "preset" and keys.get("dedup-cache-models") and entry.settings is not None:
            used |= {entry.settings.model, entry.settings.model_draft}
    return [
        msgspec.structs.replace(one, is_hidden=True)
        if one.source == "cache" and one.settings is not None and one.settings.model in used
        else one
        for one in entries
    ]


def _with_default(catalogue: Catalogue, name: str) -> Catalogue:
    if not name:
        return catalogue
    entry = catalogue.find(name) or catalogue.find(ini.canonical(name))
    if entry is not None:
        return msgspec.structs.replace(catalogue, default_model=entry.id)
    warning = f"[{ini.EVERY_MODEL}] {section.DEFAULT_MODEL}: there is no model {name}; requests must name one"
    return msgspec.structs.replace(catalogue, warnings=(*catalogue.warnings, warning))
