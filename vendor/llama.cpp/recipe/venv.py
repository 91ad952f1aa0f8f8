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
from pathlib import Path

from . import cache, index, toolchain
from .report import Progress, SetupError, is_disk_full, say

SPACE_NEEDED = 400_000_000
INSTEAD = "set LLAMAD_WHEELS to a folder that holds the wheels"


def ensure(checkout: Path, extras: list[str]) -> Path:
    """Creates or completes `.venv` with the build and runtime requirements, and those of `extras`."""
    venv = checkout / ".venv"
    requirements = _requirements(checkout, extras)
    stamp = venv / ("llamad-" + "-".join(["packages", *extras]) + ".txt")
    state = "\n".join(requirements) + "\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == state:
        return venv
    _check_host()
    cache.require_space(checkout, SPACE_NEEDED)
    python = _create(venv)
    _install(python, requirements, checkout)
    stamp.write_text(state, encoding="utf-8")
    return venv


def _requirements(checkout: Path, extras: list[str]) -> list[str]:
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    found = [*project["build-system"]["requires"], *project["project"].get("dependencies", [])]
    for extra in extras:
        found += project["project"]["optional-dependencies"][extra]
    return found


def _check_host() -> None:
    """What pip cannot bring, said before the long parts begin."""
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
    say(f"creating {venv}")
    # An environment whose Python cannot start is a half-made or moved one; one without pip only lacks pip.
    if _works(python, "") and _works(python, "import ensurepip"):
        command = [str(python), "-m", "ensurepip", "--upgrade"]
    else:
        command = [sys.executable, "-m", "venv", "--clear", str(venv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return python
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


def _works(python: Path, code: str) -> bool:
    if not python.exists():
        return False
    try:
        return subprocess.run([str(python), "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _install(python: Path, requirements: list[str], checkout: Path) -> None:
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    wheels = index.wheels_folder()
    if wheels:
        command += ["--no-index", "--find-links", str(wheels)]
    progress = Progress("Python packages")
    say(f"Python packages: installing {len(requirements)} requirements and what they need")
    try:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
            status = _watch([*command, *requirements], log.fileno(), progress)
            log.seek(0)
            output = log.read()
    except OSError as e:
        if is_disk_full(e):
            raise cache.disk_full(checkout) from None
        raise
    if status != 0:
        progress.abandon()
        raise index.explain(output, "the Python packages", INSTEAD, checkout / ".venv")
    progress.close("installed")


def _watch(command: list[str], log: int, progress: Progress) -> int:
    """Runs pip and shows what it is at."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    begin = time.monotonic()
    try:
        while process.poll() is None:
            tail = os.pread(log, 400, max(0, os.fstat(log).st_size - 400)).decode(errors="replace")
            lines = [
                line.strip() for line in tail.splitlines()[1:] if line.startswith(("Coll", "  Down", "Inst"))
            ]
            at = " ".join(lines[-1].split()[:2]) if lines else "waiting for the package index"
            progress.note(f"{at} ({time.monotonic() - begin:.0f} s)")
            time.sleep(index.POLL_SECONDS)
    except BaseException:
        process.terminate()
        process.wait()
        progress.abandon()
        raise
    return process.returncode
