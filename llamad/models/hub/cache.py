"""The folders in which models are kept. Any thread; blocks.

Models of a hub are kept in the same way and in the same folder as by huggingface_hub and llama-server:

    models--USER--MODEL/blobs/CHECKSUM            a downloaded file
    models--USER--MODEL/snapshots/COMMIT/PATH     a link to it, under its name
    models--USER--MODEL/refs/main                 the last commit that was seen

Files of --model-url are in another folder, which llama-server uses, too.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from llamad.models.hub.errors import HubError
from llamad.models.hub.names import is_model, shard_of, shards_of
from llamad.models.hub.part_file import ETAG, PART, is_busy

_PREFIX = "models--"
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII | re.IGNORECASE)
_ENDING = ".gguf"


class CachedModel(msgspec.Struct, frozen=True):
    """A complete model. `name` is the name for -hf, or the name of its file if it came from an address."""

    name: str
    size: int
    modified: float
    path: str


def hub_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that huggingface_hub would use, except that LLAMA_CACHE comes first."""
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
    """The cache of all repositories. Errors are OSError; the folder need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, repo: str) -> Path:
        return self.root / (_PREFIX + repo.replace("/", "--"))

    def blob(self, repo: str, oid: str) -> Path:
        return self.folder(repo) / "blobs" / oid

    def snapshot(self, repo: str, commit: str, path: str = "") -> Path:
        return self.folder(repo) / "snapshots" / commit / path

    def link(self, repo: str, commit: str, path: str, oid: str) -> Path:
        """Link a blob into the snapshot under its name."""
        blob, named = self.blob(repo, oid), self.snapshot(repo, commit, path)
        named.parent.mkdir(parents=True, exist_ok=True)
        link = named.with_name(f"{named.name}.{os.getpid()}.link")
        try:
            link.symlink_to(os.path.relpath(blob, named.parent))
            os.replace(link, named)
        except OSError:  # the file system has no links
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
        """Return the commits of the snapshots: the current one first, then the newest."""
        folders = [
            one
            for one in _entries(self.folder(repo) / "snapshots")
            if _COMMIT.fullmatch(one.name) and one.is_dir()
        ]
        folders.sort(key=lambda one: one.stat().st_mtime, reverse=True)
        names = [one.name for one in folders]
        try:
            current = (self.folder(repo) / "refs" / "main").read_text().strip()
        except (OSError, UnicodeDecodeError):
            current = ""
        return sorted(names, key=lambda name: name != current)

    def files(self, repo: str, commit: str) -> list[str]:
        """Return the paths of a snapshot's GGUF files that exist."""
        top = self.snapshot(repo, commit)
        paths = [
            os.path.relpath(os.path.join(folder, name), top)
            for folder, _, names in os.walk(top)
            for name in names
            if name.endswith(_ENDING) and os.path.isfile(os.path.join(folder, name))
        ]
        return sorted(paths)

    def repos(self) -> list[str]:
        return sorted(
            one.name.removeprefix(_PREFIX).replace("--", "/", 1)
            for one in _entries(self.root)
            if one.name.startswith(_PREFIX) and "--" in one.name.removeprefix(_PREFIX)
        )

    def models(self) -> Iterator[CachedModel]:
        """Yield every complete model."""
        for repo in self.repos():
            seen = set()
            for commit in self.commits(repo):
                paths = self.files(repo, commit)
                for path in filter(is_model, paths):
                    shard = shard_of(path)
                    if shard is None or shard.prefix in seen:
                        continue
                    try:
                        local = [self.snapshot(repo, commit, one) for one in shards_of(paths, path)]
                    except ValueError:
                        continue
                    seen.add(shard.prefix)
                    yield _cached(f"{repo}:{shard.quant}" if shard.quant else repo, local)

    def remove(self, repo: str, quant: str = "") -> int:
        """Remove a repository, or all files of one quantization in it. Return the bytes that it took, or 0 if there is
        none. Raises HubError while it is being downloaded."""
        folder = self.folder(repo)
        for path in folder.rglob(f"*{PART}"):
            if is_busy(path):
                raise HubError(f"{repo} is being downloaded by another process; stop that first")
        if not quant:
            size = _size(folder)
            if folder.exists():
                shutil.rmtree(folder)
            return size
        doomed = [
            self.snapshot(repo, commit, name)
            for commit in self.commits(repo)
            for name in self.files(repo, commit)
            if (shard := shard_of(name)) is not None
            and shard.prefix.upper().endswith((f"-{quant.upper()}", f".{quant.upper()}"))
        ]
        before = _size(folder)
        for named in doomed:
            named.unlink()
        self._remove_orphans(repo)
        if doomed and not any(is_model(name) for one in self.commits(repo) for name in self.files(repo, one)):
            shutil.rmtree(folder)  # only projectors are left
        return before - _size(folder)

    def _remove_orphans(self, repo: str) -> None:
        """Remove the blobs that no snapshot links to any more."""
        named = {
            os.path.realpath(os.path.join(folder, name))
            for folder, _, names in os.walk(self.folder(repo) / "snapshots")
            for name in names
        }
        for blob in _entries(self.folder(repo) / "blobs"):
            if os.path.realpath(blob) not in named and PART not in blob.name:
                blob.unlink()


class UrlCache:
    """The cache of files that were downloaded from an address."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def models(self) -> Iterator[CachedModel]:
        for path in sorted(self.root.glob(f"*{_ENDING}")):
            if path.is_file() and is_model(path.name):
                yield _cached(path.name, self._shards(path))

    def remove(self, name: str) -> int:
        """Remove a model with all of its shards; return the bytes that it took, or 0 if there is none."""
        path = self.root / name
        if "/" in name or not name.endswith(_ENDING) or not path.is_file():
            return 0
        shards = self._shards(path)
        size = sum(one.stat().st_size for one in shards)
        for one in shards:
            one.unlink()
            one.with_name(one.name + ETAG).unlink(missing_ok=True)
        return size

    def _shards(self, path: Path) -> list[Path]:
        try:
            names = shards_of([one.name for one in _entries(self.root)], path.name)
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
