"""The checkout's Python environment, `.venv`: creates it and installs what pyproject.toml names, once.
Runs under the Python that `make` was given, so it checks that Python first.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe import cache, children, index, toolchain
from recipe.report import Progress, SetupError, close, is_disk_full, stage

SPACE_NEEDED = 400_000_000
TAIL_BYTES = 8000  # pip lists everything that it installs in one line
INSTEAD = "set LLAMAD_WHEELS to a folder that holds the wheels"


@dataclass(frozen=True)
class Packages:
    """A set of requirements, and the file in `.venv` that says that it is installed."""

    title: str
    requirements: list[str]
    stamp: Path

    @property
    def are_there(self) -> bool:
        return self.stamp.is_file() and self.stamp.read_text(encoding="utf-8") == self._state

    def are_installed(self) -> None:
        self.stamp.write_text(self._state, encoding="utf-8")

    @property
    def _state(self) -> str:
        return "\n".join(self.requirements) + "\n"


def tools(checkout: Path) -> Packages:
    """Return only the packages that are needed to compile, because the whole build waits for them."""
    requirements = _project(checkout)["build-system"]["requires"]
    return Packages("build tools", requirements, checkout / ".venv" / "llamad-tools.txt")


def packages(checkout: Path, extras: list[str]) -> Packages:
    """Return the packages that are needed to build and run llamad, and those of `extras`."""
    project = _project(checkout)
    requirements = [*project["build-system"]["requires"], *project["project"].get("dependencies", [])]
    for extra in extras:
        requirements += project["project"]["optional-dependencies"][extra]
    name = "llamad-" + "-".join(["packages", *extras]) + ".txt"
    return Packages("Python packages", requirements, checkout / ".venv" / name)


def ensure(checkout: Path, extras: list[str]) -> Path:
    """Create or complete `.venv` with the build and runtime requirements, and those of `extras`."""
    required = packages(checkout, extras)
    if not required.are_there:
        create(checkout)
        install(checkout, required)
    return checkout / ".venv"


def create(checkout: Path) -> Path:
    """Create `.venv` if it does not exist, without packages, and return its Python."""
    _check_host()
    cache.require_space(checkout, SPACE_NEEDED)
    return _create(checkout / ".venv")


def python_of(checkout: Path) -> Path:
    return checkout / ".venv" / "bin" / "python"


def _project(checkout: Path) -> dict[str, Any]:
    return tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))


def _check_host() -> None:
    """Raise SetupError early if something is missing that pip cannot install."""
    toolchain.find_compilers()
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        raise SetupError(
            f"the headers of Python {sysconfig.get_python_version()} are missing (Python.h): install them "
            "(Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)"
        )


def _create(venv: Path) -> Path:
    python = venv / "bin" / "python"
    if _works(python, "import pip"):
        if not _works(python, "import sys; sys.exit(sys.version_info < (3, 11))"):
            raise SetupError(f"{venv} has a Python that is too old: remove that folder and run again")
        return python
    stage("environment", f"creating {venv}")
    # If its Python cannot start, the environment is incomplete or was moved, and is made again; else it only lacks pip.
    if _works(python, "") and _works(python, "import ensurepip"):
        command = [str(python), "-m", "ensurepip", "--upgrade"]
    else:
        command = [sys.executable, "-m", "venv", "--clear", str(venv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        _renew_pip(python)
        close("environment")
        return python
    close("environment")
    output = done.stdout + done.stderr
    if "No space left on device" in output:
        raise cache.disk_full(venv)
    if "ensurepip" in output:
        raise SetupError(
            f"{sys.executable} cannot create environments, as its ensurepip is missing: install it "
            "(Debian, Ubuntu: apt install python3-venv) or set PYTHON to another Python"
        )
    last = (output.strip().splitlines() or ["no output"])[-1]
    raise SetupError(f"creating {venv} failed ({last}): remove that folder and run again")


def _renew_pip(python: Path) -> None:
    """Update pip. That of Python 3.11 takes minutes of CPU for the test packages, a new one half a minute. If there is
    no newer one, the old one is used."""
    if not index.wheels_folder():
        command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--upgrade", "pip"]
        subprocess.run(command, capture_output=True, check=False)


def _works(python: Path, code: str) -> bool:
    if not python.exists():
        return False
    try:
        return subprocess.run([str(python), "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def install(checkout: Path, required: Packages, *options: str) -> None:
    command = [str(python_of(checkout)), "-m", "pip", "install", "--disable-pip-version-check", *options]
    command += ["--progress-bar", "off"]
    wheels = index.wheels_folder()
    if wheels:
        command += ["--no-index", "--find-links", str(wheels)]
    progress = Progress(required.title)
    stage(required.title, f"installing {len(required.requirements)} requirements and what they need")
    try:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            status = _watch([*command, *required.requirements], log.fileno(), progress)
            log.seek(0)
            output = log.read()
    except OSError as e:
        if is_disk_full(e):
            raise cache.disk_full(checkout) from None
        raise
    if status != 0:
        progress.abandon()
        raise index.explain(output, f"the {required.title}", INSTEAD, checkout / ".venv")
    required.are_installed()
    progress.close("installed")


def _watch(command: list[str], log: int, progress: Progress) -> int:
    """Run pip, show its progress, and return its exit status."""
    begin = time.monotonic()
    try:
        with children.running(command, stdout=log, stderr=log) as process:
            while process.poll() is None:
                tail = os.pread(log, TAIL_BYTES, max(0, os.fstat(log).st_size - TAIL_BYTES)).decode(
                    errors="replace"
                )
                lines = [
                    line.strip()
                    for line in tail.splitlines()[1:]
                    if line.startswith(("Coll", "  Down", "Inst"))
                ]
                at = " ".join(lines[-1].split()[:2]) if lines else "waiting for the package index"
                progress.note(f"{at} ({time.monotonic() - begin:.0f} s)")
                time.sleep(index.POLL_SECONDS)
    except BaseException:
        progress.abandon()
        raise
    return process.returncode
