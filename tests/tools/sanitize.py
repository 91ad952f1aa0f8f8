"""`python tests/tools/sanitize.py asan|tsan [pytest arguments]`: runs tests with the modules of build/asan or
build/tsan, which `make asan` and `make tsan` have just built. By default the tests of the engine over its fake table:
they need no model, and nothing runs in them but our code and Python.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDERS = ("client", "engine", "tokenizer")
FAKE = "import Fake"
REPORTS = "reports"  # a folder beside the package, since pytest keeps what a test writes to stderr


def options(kind: str, reports: Path) -> dict[str, str]:
    log = f"log_path={reports / 'found'}"
    if kind == "tsan":
        return {"TSAN_OPTIONS": f"{log}:suppressions={HERE / 'tsan.supp'}:history_size=5"}
    # Python frees little at its end, so leaks are not looked for.
    return {"ASAN_OPTIONS": f"{log}:detect_leaks=0:detect_stack_use_after_return=1", "UBSAN_OPTIONS": log}


def environment(kind: str, package: Path, reports: Path) -> dict[str, str]:
    return {
        **os.environ,
        **options(kind, reports),
        "LD_PRELOAD": " ".join([_runtime(f"lib{kind}.so"), _runtime("libstdc++.so.6")]),
        # The checkout is last, for what is not in the package: bench, which some tests use.
        "PYTHONPATH": os.pathsep.join([str(package), str(HERE / "sanitized"), str(ROOT)]),
        "PYTHONSAFEPATH": "1",  # or the checkout's own modules would come first
        "LLAMAD_TEST_PATIENCE": "10",
        "PYTHONMALLOC": "malloc",  # so that the sanitizer sees every block
    }


def main(arguments: list[str]) -> int:
    kind, *words = arguments
    package = ROOT / "build" / kind / "package"
    if not (package / "llamad").is_dir():
        print(f"llamad: {package} is not there: run `make {kind}`", file=sys.stderr)
        return 1
    reports = ROOT / "build" / kind / REPORTS
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    env = environment(kind, package, reports)
    if not any(Path(word.split("::")[0]).exists() for word in words):
        words += over_the_fake()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    if kind == "tsan" and shutil.which("setarch"):
        command = ["setarch", "--addr-no-randomize", *command]  # GCC's runtime takes few layouts of memory
    status = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    for report in sorted(reports.iterdir()):
        print(report.read_text(encoding="utf-8", errors="replace"), file=sys.stderr)
        status = status or 1
    return status


def over_the_fake() -> list[str]:
    """The engine's tests that run without a model."""
    files = sorted(path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if FAKE in path.read_text(encoding="utf-8")]


def _runtime(name: str) -> str:
    """A library of the compiler's, by its path."""
    compiler = os.environ.get("CC", "cc").split()
    return subprocess.run(
        [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("asan", "tsan"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
