"""Selects the llama.cpp sources: the pinned ones, or those of LLAMAD_LLAMA_CPP (a tree or an archive).
Identifies them for the cache key and unpacks them for the build. Never patches them.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from . import index, pin
from .report import SetupError, close, stage

# What the build reads; the rest of the tree (models, docs, tests) is not unpacked.
NEEDED = (
    "CMakeLists.txt",
    "LICENSE",
    "licenses",
    "cmake",
    "common",
    "ggml",
    "include",
    "scripts",
    "src",
    "tools",
    "vendor",
)
MARKS = ("CMakeLists.txt", "include/llama.h", "ggml/CMakeLists.txt")
SKIPPED_FOLDERS = {".git", "node_modules", "__pycache__"}
INSTEAD = "set LLAMAD_LLAMA_CPP to a llama.cpp source tree or archive"


@dataclass(frozen=True)
class Source:
    """Sources of llama.cpp. `identity` names the content; it is in `tree` or `archive`, or in the package index."""

    identity: str
    commit: str
    tree: Path | None = None
    archive: Path | None = None

    @property
    def is_pinned(self) -> bool:
        return self.identity.startswith("pin-")


def choose() -> Source:
    named = os.environ.get("LLAMAD_LLAMA_CPP")
    if not named:
        return _pinned(None)
    path = Path(named).expanduser().absolute()
    if path.is_dir():
        return _tree(path)
    if not path.is_file():
        raise _bad(named, "does not exist")
    digest = index.sha256_of(path)
    if digest == pin.LLAMA_CPP.sha256:
        return _pinned(path)
    if not tarfile.is_tarfile(path):
        raise _bad(named, "is not a tar archive")
    return Source(identity=f"archive-{digest}", commit="unknown", archive=path)


def _pinned(archive: Path | None) -> Source:
    commit = pin.LLAMA_CPP_COMMIT[:7]
    return Source(identity=f"pin-{pin.LLAMA_CPP.sha256}", commit=commit, archive=archive)


def _tree(path: Path) -> Source:
    # An unpacked source distribution of the pinned package contains a tree, too.
    for tree in (path, path / "vendor" / "llama.cpp"):
        if all((tree / mark).is_file() for mark in MARKS):
            return Source(identity=f"tree-{_tree_hash(tree)}", commit=_git_commit(tree), tree=tree)
    raise _bad(str(path), "has no " + " or ".join(m for m in MARKS if not (path / m).is_file()))


def _bad(named: str, why: str) -> SetupError:
    return SetupError(
        f"LLAMAD_LLAMA_CPP={named} {why}: name a llama.cpp source tree or a .tar.gz or .tar.xz archive "
        "of one, or unset it to fetch the pinned sources"
    )


def _tree_hash(tree: Path) -> str:
    digest = hashlib.sha256()
    for name in NEEDED:
        top = tree / name
        if top.is_file():
            _hash_file(digest, top, tree)
        for folder, folders, files in os.walk(top):
            folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS)
            for file in sorted(files):
                _hash_file(digest, Path(folder) / file, tree)
    return digest.hexdigest()


def _hash_file(digest: "hashlib._Hash", path: Path, tree: Path) -> None:
    if path.is_file():  # not a dangling link
        digest.update(f"{path.relative_to(tree)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())


def _git_commit(tree: Path) -> str:
    if not (tree / ".git").exists() or not shutil.which("git"):
        return "unknown"
    command = ["git", "-C", str(tree), "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def fetch(source: Source) -> None:
    """Download the archive, so that `provide` need not wait for it."""
    if not source.tree and not source.archive:
        index.fetch(pin.LLAMA_CPP, INSTEAD)


def provide(source: Source, work: Path) -> Path:
    """Return the folder that CMake reads: the tree itself, or the archive, which is unpacked below `work` once."""
    if source.tree:
        return source.tree
    unpacked = work / "src"
    if unpacked.is_dir():
        return unpacked
    archive = source.archive or index.fetch(pin.LLAMA_CPP, INSTEAD)
    partial = work / "src.partial"
    shutil.rmtree(partial, ignore_errors=True)
    stage(pin.LLAMA_CPP.title, "unpacking")
    try:
        _unpack(archive, partial)
    except (tarfile.TarError, EOFError) as e:
        raise SetupError(f"{archive} cannot be unpacked ({e}): fetch it again, or {INSTEAD}") from None
    partial.rename(unpacked)
    close(pin.LLAMA_CPP.title)
    return unpacked


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        names = {member.name for member in tar}
        prefix = _prefix(names)
        if prefix is None:
            raise _bad(str(archive), "holds no llama.cpp source tree")
        for member in tar:
            if not member.isfile() or not member.name.startswith(prefix):
                continue
            parts = PurePosixPath(member.name[len(prefix) :]).parts
            if not parts or parts[0] not in NEEDED or ".." in parts:
                continue
            path = target.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None  # isfile() above
            with content, path.open("wb") as out:
                shutil.copyfileobj(content, out, 1 << 20)


def _prefix(names: set[str]) -> str | None:
    """Return where in the archive the tree begins: the shortest path below which all marks are."""
    mark = "include/llama.h"
    starts = (name[: -len(mark)] for name in names if name == mark or name.endswith("/" + mark))
    whole = [start for start in starts if all(start + m in names for m in MARKS)]
    return min(whole, key=len, default=None)
