"""Lists the models of --models-dir. Any thread; blocks while it reads folders, but opens no file.

A GGUF file at the top is a model with the name of the file. A folder with one model has the name of the folder, and one
in a deeper folder has its path from the top, such as `publisher/model`. If there are several models in a folder, each
has the folder's name and its quantization, `model:Q4_K_M`, or the name of its file, `model/file`, if two have the same
quantization or none. The parts of a split model are one model. llama-server names models at the top and in folders
there in the same way; it does not look deeper, keeps one model of each folder, and lists the parts of a split model at
the top one by one.

A projector (mmproj) in a folder belongs to the models there. Folders whose names begin with a dot are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby

import msgspec

from llamad.base.printable import printable
from llamad.models.catalogue.errors import CatalogueError
from llamad.models.hub.names import choose_projector, shard_of, shards_of

DEPTH_MAX = 8
FOLDERS_MAX = 10_000

_ENDING = ".gguf"
# Files that are not models; projectors and drafts are recognized as in llama-server.
_PROJECTOR = "mmproj"
_IMATRIX = "imatrix"
_DRAFTS = ("mtp-", "dspark-", "dflash-")


class FolderModel(msgspec.Struct, frozen=True):
    """A model in a folder. `projector` is "" if there is none; `reason` says why the model cannot be used."""

    name: str
    path: str
    projector: str = ""
    reason: str = ""


class Listing(msgspec.Struct, frozen=True):
    models: list[FolderModel]
    warnings: list[str]


def read(top: str) -> Listing:
    """Return the models of a folder and of those below it. Raises CatalogueError if the folder cannot be read."""
    try:
        root = os.stat(top)
        os.scandir(top).close()
    except OSError as error:
        raise CatalogueError(f"--models-dir {top}: {error.strerror}; name a folder with GGUF files") from None
    warnings: list[str] = []
    models: list[FolderModel] = []
    for folder, names in _walk(top, (root.st_dev, root.st_ino), warnings):
        relative = os.path.relpath(folder, top)
        if relative == ".":
            models += _at_top(folder, names)
        else:
            models += _in_folder(folder, relative.replace(os.sep, "/"), names, warnings)
    listed = _printable(models, warnings)
    return Listing(listed, list(map(printable, warnings)))


def _walk(top: str, top_id: tuple[int, int], warnings: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder with the names of its GGUF files. Links are followed, but not into a folder above."""
    waiting: list[tuple[str, tuple[tuple[int, int], ...]]] = [(top, (top_id,))]
    n = 0
    while waiting:
        folder, above = waiting.pop()
        n += 1
        if n > FOLDERS_MAX:
            warnings.append(
                f"--models-dir {top} has more than {FOLDERS_MAX:,} folders; the others are not read"
            )
            return
        names: list[str] = []
        below: list[tuple[str, tuple[tuple[int, int], ...]]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    _sort(entry, above, names, below)
        except OSError as error:
            warnings.append(f"{folder}: {error.strerror}; its models are not listed")
        yield folder, sorted(names)
        waiting += sorted(below, reverse=True)


def _sort(
    entry: os.DirEntry[str],
    above: tuple[tuple[int, int], ...],
    names: list[str],
    below: list[tuple[str, tuple[tuple[int, int], ...]]],
) -> None:
    """Add an entry to the names of GGUF files or to the folders below."""
    try:
        if entry.name.endswith(_ENDING) and entry.is_file():
            names.append(entry.name)
        elif not entry.name.startswith(".") and entry.is_dir() and len(above) <= DEPTH_MAX:
            stat = entry.stat()
            if (stat.st_dev, stat.st_ino) not in above:
                below.append((entry.path, (*above, (stat.st_dev, stat.st_ino))))
    except OSError:
        pass  # a link that leads nowhere or in a circle


def _at_top(folder: str, names: list[str]) -> list[FolderModel]:
    """Return the models at the top, which have no projector."""
    models = []
    for name in filter(_is_model, names):
        stem = _stem(name) if _is_split(name) else name.replace(_ENDING, "")
        models.append(_model(stem, folder, name, names))
    return models


def _in_folder(folder: str, relative: str, names: list[str], warnings: list[str]) -> list[FolderModel]:
    firsts = list(filter(_is_model, names))
    for name in names:
        if firsts and name.startswith(_DRAFTS):
            warnings.append(
                f"{os.path.join(folder, name)} is not used: drafts from heads are not supported yet"
            )
    quants = [_quant(name) for name in firsts]
    models = []
    for name, quant in zip(firsts, quants, strict=True):
        if len(firsts) == 1:
            full = relative
        elif quant and quants.count(quant) == 1:
            full = f"{relative}:{quant}"
        else:
            full = f"{relative}/{_stem(name)}"
        models.append(_model(full, folder, name, names))
    return [_with_projector(one, folder, names) for one in models]


def _model(name: str, folder: str, file: str, names: list[str]) -> FolderModel:
    path = os.path.join(folder, file)
    try:
        shards_of(names, file)
    except ValueError as error:
        return FolderModel(name, path, reason=f"{folder}: {error}; download it again")
    return FolderModel(name, path)


def _with_projector(model: FolderModel, folder: str, names: list[str]) -> FolderModel:
    projector = choose_projector(names, os.path.basename(model.path))
    if projector is None:
        return model
    return msgspec.structs.replace(model, projector=os.path.join(folder, projector))


def _is_model(name: str) -> bool:
    """Return whether a file is a model, or the first part of one."""
    shard = shard_of(name)
    is_other = _PROJECTOR in name or _IMATRIX in name or name.startswith(_DRAFTS)
    return shard is not None and shard.index == 1 and not is_other


def _is_split(name: str) -> bool:
    shard = shard_of(name)
    return shard is not None and shard.count > 1


def _stem(name: str) -> str:
    shard = shard_of(name)
    assert shard is not None
    return shard.prefix


def _quant(name: str) -> str:
    shard = shard_of(name)
    return shard.quant if shard is not None else ""


def _printable(models: list[FolderModel], warnings: list[str]) -> list[FolderModel]:
    """Return the models without those whose names no request can contain, and with one for each name."""
    listed: dict[str, FolderModel] = {}
    for name, same in groupby(sorted(models, key=lambda one: one.name), key=lambda one: one.name):
        first, *others = same
        if not name.isprintable():
            warnings.append(f"{first.path} is not listed: its name has characters that are no text")
            continue
        listed[name] = first
        warnings += [f"{one.path} is not listed: {first.path} has the same name, {name}" for one in others]
    return list(listed.values())
