"""`python ext/build`: builds everything that the targets of `make` need. It runs under any Python from 3.11 on, creates
`.venv` and builds with the tools in it. After a failure the exit status is 1, and one line says what went wrong.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

EXT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(EXT), str(EXT.parent / "vendor" / "llama.cpp")]

from build import ROOT, display, estimate, modules, package, pipeline, variant, venv, wheel  # noqa: E402
from recipe import build as llama_cpp  # noqa: E402
from recipe import cache, children, command, model, report, source, toolchain  # noqa: E402

WHAT = {
    "all": "all: what the targets of make need",
    "venv": "venv: `.venv` only",
    "wheel": "wheel: a wheel for other machines, in dist/",
    "sdist": "sdist: a source distribution, in dist/",
}
INSTALLED = (
    "llamad-installed"  # a file in .venv with the checkout that is installed, and a hash of its metadata
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python ext/build", description=__doc__)
    parser.add_argument("what", nargs="?", choices=WHAT, default="all", help="; ".join(WHAT.values()))
    parser.add_argument("--extras", nargs="*", default=[], help="optional dependencies to install, too")
    parser.add_argument("--model", action="store_true", help="fetch the default model, too")
    parser.add_argument(
        "--beside", action="store_true", help="leave the checkout's modules; build/<variant>/package"
    )
    parsed = parser.parse_args(arguments)
    if parsed.what == "venv":
        return command.run(lambda: venv.ensure(ROOT, parsed.extras))
    if parsed.what in ("wheel", "sdist"):
        return command.run(wheel.wheel if parsed.what == "wheel" else wheel.sdist)
    return command.run(lambda: build_all(parsed))


def build_all(parsed: argparse.Namespace) -> None:
    n_jobs = toolchain.jobs()
    shown = display.BuildDisplay(estimate.History.load(cache.root()), n_jobs)
    report.show_on(shown)
    shown.start()
    succeeded = False
    try:
        make(shown, n_jobs, parsed)
        succeeded = True
    finally:
        shown.finish(succeeded)
        report.show_on(None)


def make(shown: display.BuildDisplay, n_jobs: int, parsed: argparse.Namespace) -> None:
    os.chdir(ROOT)
    plan = llama_cpp.plan(llama_cpp.LIBRARIES)
    how = variant.chosen()
    _expect(shown, plan, how, parsed)
    python = _environment(plan)
    beside: list[Callable[[], None]] = [lambda: _install(parsed.extras)]
    if parsed.model:
        beside.append(_fetch_model)
    target = ROOT / how.folder / "package" / "llamad" if parsed.beside else ROOT / "llamad"
    if parsed.beside:
        package.link_sources(ROOT, target)
    order = pipeline.Order(str(python), how, modules.find(ROOT), target, n_jobs)
    pipeline.run(order, beside)


def _expect(
    shown: display.BuildDisplay, plan: llama_cpp.Plan, how: variant.Variant, parsed: argparse.Namespace
) -> None:
    """Add the parts that will be needed to the estimate, so that it is right from the start."""
    if not venv.tools(ROOT).are_there:
        shown.plan("environment", "build tools")
    if not venv.packages(ROOT, parsed.extras).are_there:
        shown.plan("Python packages")
    if not cache.is_finished(plan.final):
        shown.plan("llama.cpp sources", "llama.cpp libraries")
    if not (ROOT / how.folder / ".ninja_log").is_file():
        shown.plan(pipeline.TITLE)


def _environment(plan: llama_cpp.Plan) -> Path:
    """Make `.venv` with the build tools and return its Python. llama.cpp's sources are fetched at the same time."""
    tools = venv.tools(ROOT)
    python = venv.python_of(ROOT)
    if not tools.are_there or not python.exists():
        python = venv.create(ROOT)
        toolchain.use_python(python)
        parts: list[Callable[[], None]] = [lambda: venv.install(ROOT, tools, "--no-compile")]
        if not cache.is_finished(plan.final):
            parts.append(lambda: source.fetch(plan.source))
        pipeline.together(parts)
    toolchain.use_python(python)
    return python


def _install(extras: list[str]) -> None:
    """Install what llamad needs to run: the packages, llamad itself (as a link to the checkout), and bytecode, so that
    the first start is as fast as the others."""
    packages = venv.packages(ROOT, extras)
    if not packages.are_there:
        venv.install(ROOT, packages)
    stamp = ROOT / ".venv" / INSTALLED
    metadata = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "setup.py"))
    state = f"{ROOT} {hashlib.sha256(metadata).hexdigest()}\n"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != state:
        # The checkout is added to sys.path, because a finder of setuptools would delay every start of Python by 25 ms.
        options = "--quiet --disable-pip-version-check --no-build-isolation --no-deps"
        link = "--config-settings editable_mode=compat --editable ."
        # setuptools warns that this mode is transitional, as it has for years; a user can do nothing about it.
        env = {"LLAMAD_EXTENSIONS": "0", "PYTHONWARNINGS": "ignore:::setuptools.command.editable_wheel"}
        _run(["-m", "pip", "install", *options.split(), *link.split()], env)
        stamp.write_text(state, encoding="utf-8")
    _run(["-m", "compileall", "-q", "llamad"], {})


def _run(arguments: list[str], env: dict[str, str]) -> None:
    command = [toolchain.python(), *arguments]
    with children.running(command, env={**os.environ, **env}) as process:
        pass
    if process.returncode != 0:
        raise report.SetupError(f"`{' '.join(command)}` failed with the output above")


def _fetch_model() -> None:
    model.default_model()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
