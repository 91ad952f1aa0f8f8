"""Builds the compiled half of llamad: llama.cpp's libraries (through vendor/llama.cpp), the cffi module
`llamad._llama`, and a module for each ext/llamad/**/*.pyx. Runs at build time; pyproject.toml has the rest.

LLAMAD_NATIVE=1       compile for this machine's CPU (make sets it)
LLAMAD_DEBUG_BUILD=1  -O0 -g and bounds checks
LLAMAD_SANITIZE=1     AddressSanitizer in the modules of ext/llamad; Python then needs LD_PRELOAD of libasan
LLAMAD_EXTENSIONS=0   leave out everything compiled, because it is already in place (make sets it)
"""

import json
import os
import platform
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError as CommandError

ROOT = Path(__file__).resolve().parent
EXT = ROOT / "ext"
sys.path[:0] = [str(ROOT / "vendor" / "llama.cpp"), str(EXT / "llama")]

from recipe import build, cache, pin, report  # noqa: E402

DEBUG = os.environ.get("LLAMAD_DEBUG_BUILD") == "1"
NATIVE = os.environ.get("LLAMAD_NATIVE") == "1"
SANITIZE = os.environ.get("LLAMAD_SANITIZE") == "1"
VARIANT = "sanitize" if SANITIZE else "debug" if DEBUG else "native" if NATIVE else "portable"
# Relative, as setuptools wants it; every variant keeps its own objects, so switching needs no clean.
BUILD_BASE = Path("build") / VARIANT

N_PARALLEL = 2
SPACE_NEEDED = 200_000_000
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
}


def compile_args() -> list[str]:
    if SANITIZE:
        return ["-O1", "-g", "-fsanitize=address", "-fno-omit-frame-pointer"]
    if DEBUG:
        return ["-O0", "-g"]
    # On x86-64 llama.cpp's own samplers are compiled without fused multiply-add; ours must round as they do.
    contract = ["-ffp-contract=off"] if platform.machine() in ("x86_64", "AMD64") else []
    native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    return ["-O3", native, *contract] if NATIVE else ["-O3", *contract]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def header_files() -> list[str]:
    """All that a compiled module may include or cimport: a change in one rebuilds."""
    return sorted(relative(p) for kind in ("*.h", "*.hpp", "*.pxd", "*.pxi") for p in EXT.rglob(kind))


def cython_modules() -> list[Extension]:
    """ext/llamad/engine/sampler/sampler.pyx -> llamad.engine.sampler.sampler."""
    return [
        Extension(
            ".".join(pyx.relative_to(EXT).with_suffix("").parts),
            sources=[relative(pyx)],
            include_dirs=["ext"],
            depends=header_files(),
            extra_compile_args=compile_args(),
            extra_link_args=["-fsanitize=address"] if SANITIZE else [],
            undef_macros=["NDEBUG"] if DEBUG else [],
        )
        for pyx in sorted((EXT / "llamad").rglob("*.pyx"))
    ]


def declared_modules() -> list[Extension]:
    """The names of what will be built. Their contents come when building begins (see `BuildExt.run`),
    because asking for the metadata must not start a build of llama.cpp."""
    if os.environ.get("LLAMAD_EXTENSIONS") == "0":
        return []
    binding = [Extension("llamad._llama", sources=[])] if (EXT / "llama" / "build_llama.py").exists() else []
    return [*binding, *cython_modules()]


class BuildExt(build_ext):
    """build_ext that first makes llama.cpp's libraries ready and carries them into the package."""

    _n_begun = 0

    def initialize_options(self) -> None:
        super().initialize_options()
        self.parallel = N_PARALLEL

    def run(self) -> None:
        if not self.extensions:
            return
        os.chdir(ROOT)
        try:
            self._build_all()
        except report.SetupError as e:
            raise CommandError(str(e)) from None
        except OSError as e:
            if not report.is_disk_full(e):
                raise
            raise CommandError(str(cache.disk_full(ROOT))) from None

    def _build_all(self) -> None:
        libraries = build.libraries()
        cache.require_space(BUILD_BASE.absolute(), SPACE_NEEDED)
        in_place = bool(self.inplace or self.editable_mode)
        carry(libraries, (ROOT if in_place else Path(self.build_lib)) / "llamad")
        real = {module.name: module for module in self._real_modules(libraries)}
        for module in self.extensions:
            module.__dict__.update(vars(real[module.name]))
            if in_place:  # the package may hold nothing but compiled modules
                ROOT.joinpath(*module.name.split(".")[:-1]).mkdir(parents=True, exist_ok=True)
        if in_place:
            self._drop_modules_without_source()
        super().run()

    def _drop_modules_without_source(self) -> None:
        wanted = {ROOT / self.get_ext_filename(module.name) for module in self.extensions}
        for found in (ROOT / "llamad").rglob("*" + str(sysconfig.get_config_var("EXT_SUFFIX"))):
            if found not in wanted:
                found.unlink()

    def _real_modules(self, libraries: Path) -> list[Extension]:
        from Cython.Build import cythonize

        found: list[Extension] = cythonize(
            cython_modules(),
            build_dir=str(BUILD_BASE / "cython"),
            include_path=["ext"],
            compiler_directives=DIRECTIVES,
            quiet=True,
        )
        if any(module.name == "llamad._llama" for module in self.extensions):
            from build_llama import extension

            binding = extension(str(libraries / "include"), str(libraries / "lib"))
            binding.extra_compile_args = [*binding.extra_compile_args, *(["-O0", "-g"] if DEBUG else [])]
            binding.depends = [*binding.depends, *header_files(), str(libraries / cache.META)]
            found.append(binding)
        return found

    def build_extension(self, ext: Extension) -> None:
        self._n_begun += 1
        report.say(f"extension modules: [{self._n_begun}/{len(self.extensions)}] {ext.name}")
        super().build_extension(ext)


class BuildPy(build_py):
    """build_py that leaves no module of an earlier build in the wheel."""

    def run(self) -> None:
        if not self.editable_mode:
            for old in (Path(self.build_lib) / "llamad").rglob("*.py*"):
                old.unlink()
        super().run()


def carried(package: Path) -> dict[str, int]:
    return {f"{d}/{p.name}": p.stat().st_size for d in ("lib", "bin") for p in (package / d).glob("*")}


def carry(libraries: Path, package: Path) -> None:
    """Puts the libraries (each once, under its SONAME) and the programs into the package folder, with a
    description of the build that the daemon reads."""
    meta = cache.read_meta(libraries)
    info = {
        "llama_cpp": {
            "commit": meta["commit"],
            "build_info": f"b0-{meta['commit']}",
            "version": pin.LLAMA_CPP.version if str(meta["source"]).startswith("pin-") else None,
        },
        "key": meta["key"],
        "flags": meta["flags"],
        "compiler": meta["toolchain"]["compiler"],  # type: ignore[index]
        "target": meta["toolchain"]["target"],  # type: ignore[index]
        "variant": VARIANT,
    }
    wanted = {f"lib/{p.name}": p for p in (libraries / "lib").iterdir() if not p.is_symlink()}
    wanted |= {f"bin/{p.name}": p for p in (libraries / "bin").iterdir()}
    wanted["lib/LICENSE.llama.cpp"] = libraries / "LICENSE"
    described = package / "_build_info.json"
    text = json.dumps(info, indent=2) + "\n"
    sizes = {name: path.stat().st_size for name, path in wanted.items()}
    if described.is_file() and described.read_text(encoding="utf-8") == text and sizes == carried(package):
        return
    described.unlink(missing_ok=True)
    for folder in ("lib", "bin"):
        shutil.rmtree(package / folder, ignore_errors=True)
        (package / folder).mkdir(parents=True)
    for name, path in wanted.items():
        shutil.copy2(path, package / name)
    described.write_text(text, encoding="utf-8")


setup(
    ext_modules=declared_modules(),
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
    options={"build": {"build_base": str(BUILD_BASE)}},
)
