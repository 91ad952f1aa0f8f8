"""Owns the folders that models are kept in. Any thread; blocks.

Models of a hub lie as huggingface_hub and llama-server keep them, in a folder that all of them share:

    models--USER--MODEL/blobs/CHECKSUM            what was downloaded
    models--USER--MODEL/snapshots/COMMIT/PATH     a link to it, under its name
    models--USER--MODEL/refs/main                 the last commit that was seen

Files of --model-url lie beside each other in another folder, which is llama-server's, too.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from llamad.models.hub.errors import HubError
from llamad.models.hub.names import is_model, part_of, parts_of
from llamad.models.hub.part_file import ETAG, PART, is_busy

_PREFIX = "models--"
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII | re.IGNORECASE)
_ENDING = ".gguf"


class CachedModel(msgspec.Struct, frozen=True):
    """A model that is whole: `name` starts it with -hf, or is its file's if it came from an address."""

    name: str
    size: int
    modified: float
    path: str


def hub_folder(environ: Mapping[str, str]) -> Path:
    """As huggingface_hub finds it, with LLAMA_CACHE before all."""
    for variable, below in (
        ("LLAMA_CACHE", ""),
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if environ.get(variable):
            return Path(environ[variable], below)
    return Path(_home(environ), ".cache/huggingface/hub")


def url_folder(environ: Mapping[str, str]) -> Path:
    if environ.get("LLAMA_CACHE"):
        return Path(environ["LLAMA_CACHE"])
    return Path(environ.get("XDG_CACHE_HOME") or Path(_home(environ), ".cache"), "llama.cpp")


def _home(environ: Mapping[str, str]) -> str:
    return environ.get("HOME") or os.path.expanduser("~")


class HubCache:
    """Of all repositories. Errors are OSError; the folder need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, repo: str) -> Path:
        return self.root / (_PREFIX + repo.replace("/", "--"))

    def blob(self, repo: str, oid: str) -> Path:
        return self.folder(repo) / "blobs" / oid

    def snapshot(self, repo: str, commit: str, path: str = "") -> Path:
        return self.folder(repo) / "snapshots" / commit / path

    def link(self, repo: str, commit: str, path: str, oid: str) -> Path:
        """Give a blob its name in the snapshot."""
        blob, named = self.blob(repo, oid), self.snapshot(repo, commit, path)
        named.parent.mkdir(parents=True, exist_ok=True)
        link = named.with_name(f"{named.name}.{os.getpid()}.link")
        try:
            link.symlink_to(os.path.relpath(blob, named.parent))
            os.replace(link, named)
        except OSError:  # a disk without links
            link.unlink(missing_ok=True)
            os.replace(blob, named)
        return named

    def set_current(self, repo: str, commit: str) -> None:
        ref = self.folder(repo) / "refs" / "main"
        ref.parent.mkdir(parents=True, exist_ok=True)
        fresh = ref.with_name(f"main.{os.getpid()}")
        fresh.write_text(commit)
        os.replace(fresh, ref)

    def commits(self, repo: str) -> list[str]:
        """Of the snapshots that there are: the current one first, then the newest."""
        found = [
            one
            for one in _entries(self.folder(repo) / "snapshots")
            if _COMMIT.fullmatch(one.name) and one.is_dir()
        ]
        found.sort(key=lambda one: one.stat().st_mtime, reverse=True)
        names = [one.name for one in found]
        try:
            current = (self.folder(repo) / "refs" / "main").read_text().strip()
        except (OSError, UnicodeDecodeError):
            current = ""
        return sorted(names, key=lambda name: name != current)

    def files(self, repo: str, commit: str) -> list[str]:
        """The paths of a snapshot's files that are there."""
        top = self.snapshot(repo, commit)
        found = [
            os.path.relpath(os.path.join(folder, name), top)
            for folder, _, names in os.walk(top)
            for name in names
            if name.endswith(_ENDING) and os.path.isfile(os.path.join(folder, name))
        ]
        return sorted(found)

    def repos(self) -> list[str]:
        return sorted(
            one.name.removeprefix(_PREFIX).replace("--", "/", 1)
            for one in _entries(self.root)
            if one.name.startswith(_PREFIX) and "--" in one.name.removeprefix(_PREFIX)
        )

    def models(self) -> Iterator[CachedModel]:
        """Every model that is whole."""
        for repo in self.repos():
            seen = set()
            for commit in self.commits(repo):
                paths = self.files(repo, commit)
                for path in filter(is_model, paths):
                    part = part_of(path)
                    if part is None or part.prefix in seen:
                        continue
                    try:
                        local = [self.snapshot(repo, commit, one) for one in parts_of(paths, path)]
                    except ValueError:
                        continue
                    seen.add(part.prefix)
                    yield _cached(f"{repo}:{part.quant}" if part.quant else repo, local)

    def remove(self, repo: str, quant: str = "") -> int:
        """Remove a repository, or all of one quantization in it. Returns the bytes that it took; 0: there is none.
        Raises HubError while it is being downloaded."""
        folder = self.folder(repo)
        for path in folder.rglob(f"*{PART}"):
            if is_busy(path):
                raise HubError(f"{repo} is being downloaded by another process; end that first")
        if not quant:
            size = _size(folder)
            if folder.exists():
                shutil.rmtree(folder)
            return size
        doomed = [
            self.snapshot(repo, commit, name)
            for commit in self.commits(repo)
            for name in self.files(repo, commit)
            if (part := part_of(name)) is not None
            and part.prefix.upper().endswith((f"-{quant.upper()}", f".{quant.upper()}"))
        ]
        before = _size(folder)
        for named in doomed:
            named.unlink()
        self._remove_orphans(repo)
        if doomed and not any(is_model(name) for one in self.commits(repo) for name in self.files(repo, one)):
            shutil.rmtree(folder)  # projectors of no model
        return before - _size(folder)

    def _remove_orphans(self, repo: str) -> None:
        """Blobs that no snapshot names any more."""
        named = {
            os.path.realpath(os.path.join(folder, name))
            for folder, _, names in os.walk(self.folder(repo) / "snapshots")
            for name in names
        }
        for blob in _entries(self.folder(repo) / "blobs"):
            if os.path.realpath(blob) not in named and PART not in blob.name:
                blob.unlink()


class UrlCache:
    """Files that were downloaded from an address."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def models(self) -> Iterator[CachedModel]:
        for path in sorted(self.root.glob(f"*{_ENDING}")):
            if path.is_file() and is_model(path.name):
                yield _cached(path.name, self._parts(path))

    def remove(self, name: str) -> int:
        """As HubCache.remove."""
        path = self.root / name
        if "/" in name or not name.endswith(_ENDING) or not path.is_file():
            return 0
        parts = self._parts(path)
        size = sum(one.stat().st_size for one in parts)
        for one in parts:
            one.unlink()
            one.with_name(one.name + ETAG).unlink(missing_ok=True)
        return size

    def _parts(self, path: Path) -> list[Path]:
        try:
            names = parts_of([one.name for one in _entries(self.root)], path.name)
        except ValueError:
            names = [path.name]
        return [self.root / name for name in names]


def _cached(name: str, local: list[Path]) -> CachedModel:
    stats = [one.stat() for one in local]
    size = sum(one.st_size for one in stats)
    return CachedModel(name, size, max(one.st_mtime for one in stats), str(local[0]))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
