"""`python tests/tools/lint.py`: every linter, two at a time, with the tools of `.venv`. `make lint`, `make test` and
pre-commit run it; `--fix` lets those that can rewrite do so. A linter without a cache of its own is skipped while its
files are the ones that it last found clean. Exit status 1 and the linter's own output say what is wrong.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "bin"
CLEAN = ROOT / "build" / "lint"
CONFIGURATION = ("pyproject.toml", ".clang-format", ".clang-format-ignore", "tests/tools/lint.py")
CYTHON = ("ext/**/*.pyx", "ext/**/*.pxd")
C = tuple(
    f"{folder}/**/*{ending}" for folder in ("ext", "bench", "fuzz") for ending in (".c", ".h", ".cpp", ".hpp")
)
TYPED = ("llamad", "bench", "ext/build", "vendor/llama.cpp", "setup.py", "tests", "fuzz")
# Tests import these by their own names. mypy would take them for two modules each, as tests.support.x and support.x,
# so it sees them here only.
LINKED = ("tests/support", "tests/tools", "tests/setup/tiny_checkout.py", "tests/setup/tiny_llama_cpp.py")
# Spaces around operators and after commas mean other things in Cython (casts, buffers, templates).
CYTHON_STYLE = (
    "E121,E123,E126,E133,E203,E211,E225,E226,E227,E231,E241,E242,E275,E402,E741,E901,E999,W503,W504"
)


@dataclass(frozen=True)
class Linter:
    """`files` are added to the commands; without them the tool finds its own and keeps its own cache."""

    name: str
    check: tuple[str, ...]
    fix: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


LINTERS = (
    Linter("mypy", ("mypy", *TYPED)),
    Linter("cython-lint", ("cython-lint",), files=CYTHON),
    Linter("pycodestyle", ("pycodestyle", "--max-line-length=124", f"--ignore={CYTHON_STYLE}"), files=CYTHON),
    Linter("clang-format", ("clang-format", "--dry-run", "-Werror"), ("clang-format", "-i"), files=C),
    Linter("ruff", ("ruff", "check", "--quiet"), ("ruff", "check", "--quiet", "--fix")),
    Linter("ruff-format", ("ruff", "format", "--quiet", "--diff"), ("ruff", "format", "--quiet")),
)


def run(linter: Linter, fix: bool) -> tuple[Linter, str]:
    """What the linter has to say; nothing if all is well."""
    files = sorted(_files(linter))
    state = _state(linter, files)
    clean = CLEAN / linter.name
    if state and clean.is_file() and clean.read_text(encoding="utf-8") == state:
        return linter, ""
    command = [*(linter.fix if fix and linter.fix else linter.check), *files]
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return linter, (done.stdout + done.stderr).strip() or f"exit status {done.returncode}"
    if state:
        CLEAN.mkdir(parents=True, exist_ok=True)
        clean.write_text(_state(linter, files), encoding="utf-8")
    return linter, ""


def link_helpers() -> None:
    folder = CLEAN / "path"
    folder.mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        link = folder / name.rsplit("/", 1)[-1]
        if not link.exists():
            link.symlink_to(os.path.relpath(ROOT / name, folder))


def _files(linter: Linter) -> Iterator[str]:
    for pattern in linter.files:
        yield from (str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))


def _state(linter: Linter, files: list[str]) -> str:
    """Names what was checked; nothing for a linter that keeps its own cache."""
    digest = hashlib.sha256()
    for name in [*CONFIGURATION, *files] if files else []:
        digest.update(f"{name}\0".encode() + (ROOT / name).read_bytes() + b"\0")
    return digest.hexdigest() if files else ""


def main(arguments: list[str]) -> int:
    names = [linter.name for linter in LINTERS]
    parser = argparse.ArgumentParser(prog="python tests/tools/lint.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--fix", action="store_true", help="rewrite files where the linter can")
    parsed = parser.parse_args(arguments)
    unknown = sorted(set(parsed.names) - set(names))
    if unknown:
        parser.error(f"there is no linter {unknown[0]}: choose from {', '.join(names)}")
    chosen = [linter for linter in LINTERS if not parsed.names or linter.name in parsed.names]
    status = 0
    link_helpers()
    with ThreadPoolExecutor(2) as pool:
        for linter, complaint in pool.map(lambda linter: run(linter, parsed.fix), chosen):
            if complaint:
                print(f"{linter.name}:\n{complaint}", file=sys.stderr)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
