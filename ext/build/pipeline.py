"""Builds llama.cpp's libraries and the modules at the same time, with one limit of jobs. The modules can begin at once:
only `llamad._llama` needs anything of llama.cpp, its headers to be compiled and its libraries to be linked.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recipe import build as llama_cpp
from recipe import cache, children, jobs, ninja, toolchain
from recipe.report import SetupError, say

from . import ROOT, graph, modules, package, python_config, translate, variant

TITLE = "modules"
SPACE_NEEDED = 200_000_000


@dataclass(frozen=True)
class Order:
    """The build to make: its Python, variant, modules and package folder."""

    python: str
    variant: variant.Variant
    modules: list[modules.Module]
    package: Path
    n_jobs: int


def run(order: Order, beside: list[Callable[[], None]]) -> None:
    """Build everything. The functions of `beside` run at the same time in threads and should mostly wait."""
    cache.require_space(ROOT / order.variant.folder, SPACE_NEEDED)
    plan = llama_cpp.plan(llama_cpp.LIBRARIES)
    setting = graph.Setting(python_config.ask(order.python), plan.tools, order.variant, plan.final)
    graph.write(ROOT / order.variant.folder / "modules.ninja", setting, order.modules)
    compiling = Compiling(setting)
    if cache.is_finished(plan.final):
        together([lambda: compiling.alone(order.n_jobs), *beside])
    elif jobs.can_share(order.n_jobs, 2):
        with jobs.shared(order.n_jobs, 2) as shared:
            together([lambda: compiling.libraries(shared), lambda: compiling.with_libraries(shared), *beside])
    else:
        together([lambda: compiling.after_libraries(order.n_jobs), *beside])
    package.carry_libraries(plan.final, order.package, order.variant.name)
    products = {module.name: ROOT / graph.product(setting, module) for module in order.modules}
    package.carry_modules(products, order.package, setting.python.suffix)


class Compiling:
    """Runs Ninja for the modules, which waits for llama.cpp if that is built at the same time."""

    def __init__(self, setting: graph.Setting) -> None:
        self._setting = setting
        self._folder = ROOT / setting.variant.folder
        self._sources = threading.Event()
        self._finished = threading.Event()

    def libraries(self, shared: jobs.SharedJobs) -> None:
        llama_cpp.libraries(llama_cpp.Surroundings(shared, self._take_tree))
        self._take_headers(sorted((self._setting.libraries / "include").iterdir()))
        self._finished.set()
        shared.retire()

    def with_libraries(self, shared: jobs.SharedJobs) -> None:
        with _translator() as env:
            self._ninja(shared, env, graph.MODULES)
            with shared.lent():
                _wait_for(self._sources)
            self._ninja(shared, env, graph.BINDING_OBJECTS)
            with shared.lent():
                _wait_for(self._finished)
            self._ninja(shared, env)
        ninja.learn(TITLE, self._folder)

    def after_libraries(self, n_jobs: int) -> None:
        """Build the libraries first and then the modules, because there is only one job or Ninja cannot share jobs."""
        llama_cpp.libraries(llama_cpp.Surroundings(jobs.Jobs(n_jobs), lambda tree: None))
        self.alone(n_jobs)

    def alone(self, n_jobs: int) -> None:
        """Build the modules when the libraries exist and nothing else is being compiled."""
        self._take_headers(sorted((self._setting.libraries / "include").iterdir()))
        limit = jobs.Jobs(n_jobs)
        if not ninja.pending(self._command(limit), TITLE):
            return
        with _translator() as env:
            self._ninja(limit, env)
        ninja.learn(TITLE, self._folder)

    def _take_tree(self, tree: Path) -> None:
        self._take_headers(llama_cpp.headers(tree))

    def _take_headers(self, headers: list[Path]) -> None:
        """Copy the headers into a folder that stays, so that commands and times do not change when the sources are
        removed."""
        folder = ROOT / self._setting.include
        folder.mkdir(parents=True, exist_ok=True)
        for header in headers:
            target = folder / header.name
            if not target.is_file() or target.read_bytes() != header.read_bytes():
                shutil.copyfile(header, target)
        self._sources.set()

    def _command(self, limit: jobs.Jobs, *targets: str) -> list[str]:
        file = str(self._folder.relative_to(ROOT) / "modules.ninja")
        return [toolchain.find_tool("ninja"), "-C", str(ROOT), "-f", file, *limit.arguments(), *targets]

    def _ninja(self, limit: jobs.Jobs, env: dict[str, str], *targets: str) -> None:
        command = self._command(limit, *targets)
        log = self._folder / "build.log"
        log.unlink(missing_ok=True)
        ninja.pending(command, TITLE)
        try:
            ninja.run(command, TITLE, log, {**os.environ, **env, **limit.environment()})
        except ninja.Failed as e:
            raise _failure(e.steps, log, limit.n_jobs) from None


def _failure(steps: ninja.Steps, log: Path, n_jobs: int) -> SetupError:
    if steps.disk_full:
        return cache.disk_full(log.parent)
    if steps.out_of_memory:
        return SetupError(
            f"memory ran out while compiling the modules with {n_jobs} jobs at once: set LLAMAD_JOBS=1 and run "
            "the same command again"
        )
    for line in steps.tail:
        say(line)
    return SetupError(f"compiling the modules failed with the output above (whole log: {log})")


def _wait_for(event: threading.Event) -> None:
    while not event.wait(0.2):
        children.check()


@contextlib.contextmanager
def _translator() -> Iterator[dict[str, str]]:
    """Start a Cython process and yield the environment variable with the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="llamad-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(folder) / "translator")
        listener.bind(path)
        listener.listen(64)
        command = [
            toolchain.python(),
            "-P",
            str(ROOT / graph.TRANSLATE),
            "--serve",
            str(listener.fileno()),
        ]
        with children.running(command, pass_fds=(listener.fileno(),), stderr=subprocess.DEVNULL) as process:
            listener.close()
            yield {translate.SOCKET: path}
            process.terminate()


def together(parts: list[Callable[[], None]]) -> None:
    """Run each part in a thread of its own. The first failure ends the others and is raised."""
    failures: list[BaseException] = []

    def guard(part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as e:
            failures.append(e)
            children.stop_all()

    threads = [threading.Thread(target=guard, args=(part,), daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except BaseException:
        children.stop_all()
        raise
    first = next((e for e in failures if not isinstance(e, children.Stopped)), None)
    if first is not None:
        raise first
