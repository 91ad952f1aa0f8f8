"""Owns what the names of a repository's files say: parts of a split model, quantizations, projectors. Pure functions.

The rules are llama-server's, so that the same name means the same file. Names come from a hub and may be hostile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

# Without a quantization; after these any file will do.
PREFERRED = ("Q4_K_M", "Q8_0")
COMPONENT_BYTES_MAX = 255
PATH_BYTES_MAX = 1024
PARTS_MAX = 1000

_ENDING = ".gguf"
_PROJECTOR = "mmproj"
# GGUF files beside a model that are none: projectors, importance matrices, heads that draft.
_NO_MODELS = (_PROJECTOR, "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_SPLIT = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})", re.ASCII | re.DOTALL)
_QUANT = re.compile(r"[-.]([A-Z0-9_]+)$", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+", re.ASCII)


class Part(msgspec.Struct, frozen=True):
    """What a GGUF file's name says of it; a model that is not split is part 1 of 1."""

    prefix: str  # what all parts begin with
    quant: str  # in capitals; empty: none
    index: int
    count: int


def split_name(name: str) -> tuple[str, str]:
    """The repository and the quantization (empty: none) of USER/MODEL[:QUANT]."""
    repo, _, quant = name.partition(":")
    return repo, quant


def is_safe(path: str) -> bool:
    """Whether a file of that name lies below the folder that it is put into, and under a name that a disk can hold."""
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


def part_of(path: str) -> Part | None:
    """None: it is no GGUF file."""
    if not path.endswith(_ENDING):
        return None
    prefix, index, count = path.removesuffix(_ENDING), 1, 1
    split = _SPLIT.fullmatch(prefix)
    if split is not None:
        prefix, index, count = split[1], int(split[2]), int(split[3])
    quant = _QUANT.search(prefix)
    return Part(prefix, quant[1].upper() if quant is not None else "", index, count)


def is_model(path: str) -> bool:
    """Whether it is a model's only or first part."""
    name = path.rpartition("/")[2]
    part = part_of(path)
    return part is not None and part.index == 1 and not any(word in name for word in _NO_MODELS)


def quants(paths: Iterable[str]) -> list[str]:
    """The quantizations that there are models of."""
    found = (part_of(path) for path in paths if is_model(path))
    return sorted({part.quant for part in found if part is not None and part.quant})


def choose_model(paths: Sequence[str], quant: str = "") -> str | None:
    """The model of this quantization, or the one that suits most; None: there is none."""
    models = [path for path in paths if is_model(path)]
    for wanted in (quant,) if quant else PREFERRED:
        pattern = re.compile(re.escape(wanted) + "[.-]", re.IGNORECASE)
        for path in models:
            if pattern.search(path):
                return path
    return models[0] if models and not quant else None


def parts_of(paths: Sequence[str], first: str) -> list[str]:
    """All parts of a model in their order, `first` included. Raises ValueError if one is missing."""
    split = part_of(first)
    if split is None or split.count <= 1:
        return [first]
    if split.count > PARTS_MAX:
        raise ValueError(f"{first} has more than {PARTS_MAX} parts")
    there = set(paths)
    found = part_names(first)
    for path in found:
        if path not in there:
            raise ValueError(f"{path} is missing, one of the {split.count} parts of the model")
    return found


def part_names(path: str) -> list[str]:
    """The names of all parts of the model that this is a part of."""
    split = part_of(path)
    if split is None or not 1 < split.count <= PARTS_MAX:
        return [path]
    return [f"{split.prefix}-{i:05d}-of-{split.count:05d}{_ENDING}" for i in range(1, split.count + 1)]


def choose_projector(paths: Iterable[str], model: str) -> str | None:
    """The projector in the model's folder, or in the nearest one above; of several, the one whose numbers have about as
    many bits as the model's."""
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
    """Of a quantization: 4 of Q4_K_M, 16 of BF16."""
    part = part_of(path)
    number = _NUMBER.search(part.quant) if part is not None else None
    return int(number[0][:4]) if number is not None else 0
