"""The cache folder. Nothing incomplete is ever used: a folder is made under another name and renamed when it is
complete, by one process at a time, and the size of every file is checked.
"""

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from .report import SetupError, is_disk_full, stage

STALE_SECONDS = 7 * 24 * 3600
META = "meta.json"


def root() -> Path:
    named = os.environ.get("LLAMAD_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "llamad"


def make_dir(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        if is_disk_full(e):
            raise disk_full(path) from None
        raise SetupError(
            f"cannot create {path} ({e.strerror}): set LLAMAD_CACHE to a folder that can be written"
        ) from None
    return path


def disk_full(where: Path) -> SetupError:
    return SetupError(
        f"no space left on the disk while writing to {where} (or the temporary folder): free some space, "
        "or set LLAMAD_CACHE (and TMPDIR) to folders on another disk, and run the same command again"
    )


def require_space(where: Path, needed: int) -> None:
    """Raise SetupError if the disk has too little space, before anything is written."""
    free = shutil.disk_usage(make_dir(where)).free
    if free < needed:
        raise SetupError(
            f"not enough space on the disk of {where}: {needed / 1e6:.0f} MB are needed and "
            f"{free / 1e6:.0f} MB are free; free some, or set LLAMAD_CACHE to a folder on another disk"
        )


def lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[int]:
    """Hold an exclusive lock and yield its descriptor. Children that inherit the descriptor keep the lock, so that
    others wait for a build whose parent has died."""
    make_dir(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stage(what, "waiting for another process")
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of all plain files under `folder`, except for the metadata."""
    return {
        str(p.relative_to(folder)): p.stat().st_size
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.is_symlink() and p.name != META
    }


def finish(made: Path, final: Path, meta: dict[str, object]) -> None:
    """Rename the folder `made` to `final`, which is finished then."""
    meta = {**meta, "files": sizes(made)}
    (made / META).write_text(json.dumps(meta, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for path in made.rglob("*"):
        if path.is_file() and not path.is_symlink():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    shutil.rmtree(final, ignore_errors=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    made.rename(final)


def is_finished(final: Path) -> bool:
    meta = read_meta(final)
    files = meta.get("files")
    return bool(files) and files == sizes(final)


def read_meta(final: Path) -> dict[str, object]:
    try:
        meta = json.loads((final / META).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def drop_stale(work: Path, keep: Path) -> None:
    """Remove the folders of builds that were abandoned days ago."""
    for tree in work.iterdir():
        if tree != keep and tree.is_dir() and time.time() - tree.stat().st_mtime > STALE_SECONDS:
            with locked(lock_of(tree), tree.name):
                shutil.rmtree(tree, ignore_errors=True)
