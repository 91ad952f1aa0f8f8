"""Fetches one pinned file from the Python package index with pip, so that pip's settings apply. Shows progress and
verifies the sha256.
"""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import cache, children, toolchain
from .pin import Pin
from .report import Progress, SetupError, megabytes, says_disk_full

POLL_SECONDS = 0.2
NO_NETWORK_TEXTS = (
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeout",
    "Connection refused",
    "Network is unreachable",
    "Temporary failure in name resolution",
    "Max retries exceeded",
    "No matching distribution found",
    "Could not find a version",
    "Read timed out",
)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def wheels_folder() -> Path | None:
    """Return the folder of LLAMAD_WHEELS, which replaces the package index, or None."""
    named = os.environ.get("LLAMAD_WHEELS")
    if not named:
        return None
    folder = Path(named).expanduser().absolute()
    if not folder.is_dir():
        raise SetupError(f"LLAMAD_WHEELS={named} is no folder: name a folder of wheels, or unset it")
    return folder


def fetch(pin: Pin, instead: str) -> Path:
    """Return the pinned file, from the cache, from LLAMAD_WHEELS or from the index. If it cannot be fetched, the error
    ends with the advice `instead`."""
    downloads = cache.make_dir(cache.root() / "downloads")
    final = downloads / pin.filename
    with cache.locked(cache.lock_of(final), pin.title):
        if final.exists():
            if sha256_of(final) == pin.sha256:
                return final
            final.unlink()  # it is damaged and is fetched again
        wheels = wheels_folder()
        if wheels:
            return _from_wheels(pin, wheels, instead)
        prefix = f"fetch-{pin.package}-"
        for left in downloads.glob(prefix + "*"):  # left by a run that was killed; this process has the lock
            shutil.rmtree(left, ignore_errors=True)
        cache.require_space(downloads, 3 * pin.size)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=downloads) as temporary:
            made = _download(pin, Path(temporary), instead)
            _check(pin, made, "from the package index", instead)
            made.rename(final)
    return final


def _from_wheels(pin: Pin, wheels: Path, instead: str) -> Path:
    wheel = wheels / pin.filename
    if not wheel.is_file():
        raise SetupError(
            f"LLAMAD_WHEELS is set, so nothing is fetched, and {wheels} has no {pin.filename}: "
            f"put it there, or {instead}"
        )
    _check(pin, wheel, f"in {wheels}", instead)
    return wheel


def _check(pin: Pin, path: Path, where: str, instead: str) -> None:
    actual = sha256_of(path)
    if actual != pin.sha256:
        raise _mismatch(f"{pin.filename} {where}", f"{actual}, expected {pin.sha256}", instead)


def _download(pin: Pin, temporary: Path, instead: str) -> Path:
    got, scratch = temporary / "got", temporary / "tmp"
    got.mkdir()
    scratch.mkdir()
    # With a hash in the requirement, pip rejects a wrong file before it runs any code in it.
    requirement = temporary / "requirement.txt"
    requirement.write_text(f"{pin.package}=={pin.version} --hash=sha256:{pin.sha256}\n")
    kind = ["--no-binary", pin.package] if pin.filename.endswith(".tar.gz") else ["--only-binary", ":all:"]
    command = [
        toolchain.python(),
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--progress-bar=off",
    ]
    command += [*kind, "--dest", str(got), "--require-hashes", "-r", str(requirement)]
    env = {**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    log = temporary / "pip.log"
    progress = Progress(pin.title, in_bytes=True)
    made = got / pin.filename
    try:
        with (
            log.open("wb") as out,
            children.running(command, stdout=out, stderr=out, env=env, process_group=0) as process,
        ):
            while process.poll() is None:
                if _show(progress, pin, temporary) and _take_early(pin, temporary, made):
                    children.end(process)  # otherwise it would build the package's metadata
                    break
                time.sleep(POLL_SECONDS)
    except BaseException:
        progress.abandon()
        raise
    if not made.exists():
        progress.abandon()
        what = f"{pin.package} {pin.version}"
        raise explain(log.read_text(errors="replace"), what, instead, cache.root())
    progress.close(megabytes(made.stat().st_size))
    return made


def _show(progress: Progress, pin: Pin, temporary: Path) -> bool:
    """Show how much of the file has arrived, and return whether it is complete."""
    n_bytes = max((_size(path) for path in _written(pin, temporary)), default=0)
    progress.update(n_bytes, pin.size)
    return n_bytes >= pin.size


def _written(pin: Pin, temporary: Path) -> Iterator[Path]:
    """Return the path of the file that pip downloads: it has its own name, somewhere below pip's temporary folder."""
    for folder, _, files in os.walk(temporary):  # unlike rglob, it does not fail if a folder disappears
        if pin.filename in files:
            yield Path(folder) / pin.filename


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # pip has just moved it
        return 0


def _take_early(pin: Pin, temporary: Path, made: Path) -> bool:
    """Move the file away from pip as soon as it is complete. For a source distribution pip would also unpack it and
    install its build system, to build metadata that nobody needs."""
    for path in _written(pin, temporary):
        try:
            if path.stat().st_size == pin.size and sha256_of(path) == pin.sha256:
                if path != made:
                    os.link(path, made)
                return True
        except OSError:  # pip has just moved it
            continue
    return False


def explain(output: str, what: str, instead: str, where: Path) -> SetupError:
    """Return an error of one line from the output of pip, which failed to get `what`."""
    if says_disk_full(output):
        return cache.disk_full(where)
    if "DO NOT MATCH THE HASHES" in output:
        actual = next((line.split()[-1] for line in output.splitlines() if " Got " in line), "another one")
        return _mismatch(what, actual, instead)
    if "No module named pip" in output:
        return SetupError(f"{toolchain.python()} has no pip: install it (python3 -m ensurepip), or {instead}")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if wheels_folder():
        missing = next((line for line in lines if "No matching distribution" in line), "see pip's output")
        return SetupError(
            f"LLAMAD_WHEELS does not hold all that is needed ({missing[:200]}): add it to the folder"
        )
    if any(text in output for text in NO_NETWORK_TEXTS):
        return SetupError(
            f"cannot fetch {what} from the package index (no network, or the index does not have it): "
            f"check the connection and the index that pip uses (pip config list), or {instead}"
        )
    last = lines[-1] if lines else "no output"
    return SetupError(f"pip could not fetch {what} ({last[:300]}): run it again, or {instead}")


def _mismatch(what: str, actual: str, instead: str) -> SetupError:
    return SetupError(
        f"{what} does not match its pin: the sha256 is {actual}; it was not used: "
        f"check the index that pip uses (pip config list), or {instead}"
    )
