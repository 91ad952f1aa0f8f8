"""setuptools' side of the build: `pip install .`, wheels and `build_ext --inplace`. ext/build does the work; this file
hands it the package folder and says which modules there are. pyproject.toml has the rest.

Its variant.py lists the variables that choose flags. LLAMAD_EXTENSIONS=0 leaves out everything compiled, because
it is already in place (the build of a checkout sets it).
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError as CommandError

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "ext"), str(ROOT / "vendor" / "llama.cpp")]

from build import modules, pipeline, variant  # noqa: E402
from recipe import cache, children, report, toolchain  # noqa: E402

try:
    VARIANT = variant.chosen()
except report.SetupError as e:
    raise SystemExit(f"llamad: {e}") from None


def declared() -> list[Extension]:
    """The names of what will be built, so that asking for the metadata builds nothing."""
    if os.environ.get("LLAMAD_EXTENSIONS") == "0":
        return []
    return [Extension(module.name, sources=[]) for module in modules.find(ROOT)]


class BuildExt(build_ext):
    """Builds all modules at once. A wheel gets those of llamad, a checkout those for tests, too."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.inplace and not self.editable_mode:
            self.extensions = [module for module in self.extensions if not modules.is_test_only(module.name)]

    def run(self) -> None:
        if not self.extensions:
            return
        in_place = bool(self.inplace or self.editable_mode)
        names = {module.name for module in self.extensions}
        order = pipeline.Order(
            python=sys.executable,
            variant=VARIANT,
            modules=[module for module in modules.find(ROOT) if module.name in names],
            package=(ROOT if in_place else Path(self.build_lib).absolute()) / "llamad",
            n_jobs=int(self.parallel) if isinstance(self.parallel, int) else toolchain.jobs(),
        )
        os.chdir(ROOT)
        children.allow()
        try:
            pipeline.run(order, [])
        except report.SetupError as e:
            raise CommandError(str(e)) from None
        except OSError as e:
            if not report.is_disk_full(e):
                raise
            raise CommandError(str(cache.disk_full(ROOT))) from None


class BuildPy(build_py):
    """build_py that leaves out of the wheel what only tests use, and every module of an earlier build."""

    def run(self) -> None:
        if not self.editable_mode:
            for old in (Path(self.build_lib) / "llamad").rglob("*.py*"):
                old.unlink()
        super().run()

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [item for item in found if not modules.is_test_only(f"{item[0]}.{item[1]}")]

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        found = super().find_data_files(package, src_dir)
        return [path for path in found if not modules.is_test_only(f"{package}.{Path(path).stem}")]


setup(
    ext_modules=declared(),
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
    # Relative, as setuptools wants it.
    options={"build": {"build_base": VARIANT.folder + "/setuptools"}},
)
