"""Reads the names of a repository's files: shards of a split model, quantizations, projectors. Pure functions.

The rules are llama-server's, so that the same name means the same file. Names come from a hub and may be hostile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

# The quantizations to use if none is named; if there is neither, any file will do.
PREFERRED = ("Q4_K_M", "Q8_0")
COMPONENT_BYTES_MAX = 255
PATH_BYTES_MAX = 1024
SHARDS_MAX = 1000

_ENDING = ".gguf"
_PROJECTOR = "mmproj"
# GGUF files in a repository that are not models: projectors, importance matrices, draft heads.
_NO_MODELS = (_PROJECTOR, "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_SPLIT = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})", re.ASCII | re.DOTALL)
_QUANT = re.compile(r"[-.]([A-Z0-9_]+)$", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+", re.ASCII)


class Shard(msgspec.Struct, frozen=True):
    """A GGUF file by its name; a model that is not split is shard 1 of 1."""

    prefix: str  # the beginning of the names of all shards
    quant: str  # in capitals; empty if there is none
    index: int
    count: int


def split_name(name: str) -> tuple[str, str]:
    """Split USER/MODEL[:QUANT] into the repository and the quantization, which is empty if there is none."""
    repo, _, quant = name.partition(":")
    return repo, quant


def is_safe(path: str) -> bool:
    """Return whether a file of this name stays inside the folder in which it is put, and the name is not too long."""
    components = path.split("/")
    return (
        len(path.encode("utf-8", "surrogatepass")) <= PATH_BYTES_MAX
        and path.isprintable()
        and "\\" not in path
        and all(
            one not in ("", ".", "..") and len(one.encode("utf-8")) <= COMPONENT_BYTES_MAX
            for one in components
        )
    )


def shard_of(path: str) -> Shard | None:
    """Parse a file's path; return None if it is not a GGUF file."""
    if not path.endswith(_ENDING):
        return None
    prefix, index, count = path.removesuffix(_ENDING), 1, 1
    split = _SPLIT.fullmatch(prefix)
    if split is not None:
        prefix, index, count = split[1], int(split[2]), int(split[3])
    quant = _QUANT.search(prefix)
    return Shard(prefix, quant[1].upper() if quant is not None else "", index, count)


def is_model(path: str) -> bool:
    """Return whether the file is the only or the first shard of a model."""
    name = path.rpartition("/")[2]
    shard = shard_of(path)
    return shard is not None and shard.index == 1 and not any(word in name for word in _NO_MODELS)


def quants(paths: Iterable[str]) -> list[str]:
    """Return the quantizations of the models."""
    shards = (shard_of(path) for path in paths if is_model(path))
    return sorted({shard.quant for shard in shards if shard is not None and shard.quant})


def choose_model(paths: Sequence[str], quant: str = "") -> str | None:
    """Return the model of this quantization, or of a preferred one if none is named; None if there is none."""
    models = [path for path in paths if is_model(path)]
    for name in (quant,) if quant else PREFERRED:
        pattern = re.compile(re.escape(name) + "[.-]", re.IGNORECASE)
        for path in models:
            if pattern.search(path):
                return path
    return models[0] if models and not quant else None


def shards_of(paths: Sequence[str], first: str) -> list[str]:
    """Return all shards of a model in order, including `first`. Raises ValueError if one is missing."""
    split = shard_of(first)
    if split is None or split.count <= 1:
        return [first]
    if split.count > SHARDS_MAX:
        raise ValueError(f"{first} has more than {SHARDS_MAX} parts")
    there = set(paths)
    names = shard_names(first)
    for path in names:
        if path not in there:
            raise ValueError(f"{path} is missing, one of the {split.count} parts of the model")
    return names


def shard_names(path: str) -> list[str]:
    """Return the names of all shards of the model to which this file belongs."""
    split = shard_of(path)
    if split is None or not 1 < split.count <= SHARDS_MAX:
        return [path]
    return [f"{split.prefix}-{i:05d}-of-{split.count:05d}{_ENDING}" for i in range(1, split.count + 1)]


def choose_projector(paths: Iterable[str], model: str) -> str | None:
    """Return the projector in the model's folder, or in the nearest folder above. If there are several, return the one
    whose quantization has about as many bits as the model's."""
    folders = model.split("/")[:-1]
    best: tuple[int, int] | None = None
    chosen = None
    for path in paths:
        own = path.split("/")[:-1]
        if not path.endswith(_ENDING) or _PROJECTOR not in path or folders[: len(own)] != own:
            continue
        rank = (len(own), -abs(_bits(path) - _bits(model)))
        if best is None or rank > best:
            best, chosen = rank, path
    return chosen


def _bits(path: str) -> int:
    """Return the bits of a file's quantization: 4 for Q4_K_M, 16 for BF16."""
    shard = shard_of(path)
    number = _NUMBER.search(shard.quant) if shard is not None else None
    return int(number[0][:4]) if number is not None else 0
