"""The build recipe: CMake flags, cache key, and the build from sources to a finished {lib,bin,include} folder
in the cache. `libraries()` is what llamad links; `peer()` is llama-server, for comparisons.
"""

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import cache, licences, ninja, source, toolchain
from .jobs import Jobs
from .report import SetupError, is_disk_full, say, stage

RECIPE = 4  # part of the key: raise it when the contents of the finished folder change
WORKAROUNDS = Path(__file__).resolve().parents[1] / "workarounds" / "ggml.cmake"
SPACE_NEEDED = 500_000_000

ON, OFF = "ON|1|TRUE|YES|Y", "OFF|0|FALSE|NO|N"
ORIGIN = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DLLAMA_BUILD_COMMON=ON",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_MTMD=ON",
    "-DMTMD_VIDEO=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_ALL_WARNINGS=OFF",
    "-DGGML_RPC=ON",
    "-DFETCHCONTENT_FULLY_DISCONNECTED=ON",
    # The libraries find each other, and the programs find them, wherever they are copied.
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    f"-DCMAKE_INSTALL_RPATH={ORIGIN};{ORIGIN}/../lib",
)


@dataclass(frozen=True)
class Product:
    """Something that the recipe can make: its folder in the cache, its own flags and its targets for Ninja."""

    title: str
    folder: str
    flags: tuple[str, ...]
    targets: tuple[str, ...]
    programs: tuple[str, ...]


LIBRARIES = Product(
    title="llama.cpp libraries",
    folder="llama.cpp",
    flags=("-DLLAMA_BUILD_SERVER=OFF",),
    targets=("llama", "mtmd", "ggml-rpc-server"),
    programs=("ggml-rpc-server",),
)
PEER = Product(
    title="llama-server",
    folder="peer",
    flags=("-DLLAMA_BUILD_SERVER=ON", "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"),
    targets=("llama-server", "llama-batched-bench"),
    programs=("llama-server", "llama-batched-bench"),
)

BOTH = Product(
    title="llama.cpp and llama-server",
    folder="both",
    flags=PEER.flags,
    targets=(*LIBRARIES.targets, *PEER.targets),
    programs=(*LIBRARIES.programs, *PEER.programs),
)


@dataclass(frozen=True)
class Plan:
    """Everything that determines the result of a build. It is known before the build begins."""

    product: Product
    source: source.Source
    tools: toolchain.Toolchain
    flags: tuple[str, ...]
    inputs: dict[str, object]

    @property
    def key(self) -> str:
        text = json.dumps(self.inputs, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def final(self) -> Path:
        return cache.root() / self.product.folder / self.key


def plan(product: Product) -> Plan:
    extra = shlex.split(os.environ.get("LLAMAD_CMAKE_ARGS", ""))
    sources = source.choose()
    tools = toolchain.find_compilers()
    identity = (f"-DLLAMA_BUILD_COMMIT={sources.commit}", "-DLLAMA_BUILD_NUMBER=0")
    linking = f"-DCMAKE_SHARED_LINKER_FLAGS_INIT={tools.link_flags}"
    flags = (*FLAGS, linking, *product.flags, *identity, *extra)
    inputs: dict[str, object] = {
        "recipe": RECIPE,
        "source": sources.identity,
        "commit": sources.commit,
        "flags": list(flags),
        "targets": list(product.targets),
        "toolchain": asdict(tools),
        "cuda": toolchain.cuda_compiler(extra),
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": "" if _is_set(extra, "GGML_NATIVE", OFF) else toolchain.cpu_features(tools.cc),
    }
    return Plan(product, sources, tools, flags, inputs)


def _is_set(flags: Sequence[str], option: str, values: str) -> bool:
    return any(re.fullmatch(rf"-D{option}(:\w+)?=({values})", flag, re.IGNORECASE) for flag in flags)


@dataclass(frozen=True)
class Surroundings:
    """What a build gets that runs beside others: its jobs, and a function to call when the sources are there."""

    jobs: Jobs
    on_sources: Callable[[Path], None]

    @classmethod
    def none(cls) -> "Surroundings":
        return cls(Jobs(toolchain.jobs()), lambda tree: None)


def libraries(around: Surroundings | None = None) -> Path:
    """Return the folder {lib,bin,include} of llamad's llama.cpp, which is built unless the cache has it."""
    return _ensure(plan(LIBRARIES), around)


def peer() -> Path:
    """Return the path of llama-server, which is built from the same sources with the same flags."""
    return _ensure(plan(PEER)) / "bin" / "llama-server"


def both() -> Path:
    """Make what `libraries()` and `peer()` make, but compile the libraries once. Return the path of llama-server."""
    ours, theirs = plan(LIBRARIES), plan(PEER)
    if not cache.is_finished(ours.final) and not cache.is_finished(theirs.final):
        made = _ensure(plan(BOTH))
        for planned in (ours, theirs):
            _take(made, planned)
    libraries()
    return peer()


def _take(made: Path, planned: Plan) -> None:
    """Copy one product from the folder that holds both: its programs, and the libraries except those of the tools."""
    out = cache.root() / "work" / f"{planned.product.folder}-{planned.key}.out"
    with cache.locked(cache.lock_of(out), planned.product.title):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out, symlinks=True, copy_function=os.link)
        (out / cache.META).unlink()
        for program in (out / "bin").iterdir():
            if not program.is_symlink() and program.name not in planned.product.programs:
                program.unlink()
        for library in (out / "lib").glob("libllama-*") if planned.product is LIBRARIES else ():
            library.unlink()
        cache.finish(out, planned.final, {**planned.inputs, "key": planned.key, "taken_from": made.name})


def _ensure(planned: Plan, around: Surroundings | None = None) -> Path:
    final = planned.final
    if cache.is_finished(final):
        return final
    work = cache.root() / "work" / f"{planned.product.folder}-{planned.key}"
    with cache.locked(cache.lock_of(work), planned.product.title) as lock:
        if cache.is_finished(final):  # another process built it meanwhile
            return final
        cache.make_dir(work)
        cache.drop_stale(work.parent, keep=work)
        cache.require_space(work, SPACE_NEEDED)
        try:
            _build(planned, work, lock, around or Surroundings.none())
            cache.finish(_collect(planned, work), final, {**planned.inputs, "key": planned.key})
        except OSError as e:
            if not is_disk_full(e):
                raise
            shutil.rmtree(work, ignore_errors=True)
            raise cache.disk_full(work) from None
        except SetupError:
            if not (work / "build").exists():  # there is nothing that the next run could continue
                shutil.rmtree(work, ignore_errors=True)
            raise
        shutil.rmtree(work, ignore_errors=True)
    return final


def _build(planned: Plan, work: Path, lock: int, around: Surroundings) -> None:
    tree = source.provide(planned.source, work)
    around.on_sources(tree)
    cmake, ninja_ = toolchain.find_tool("cmake"), toolchain.find_tool("ninja")
    made = work / "build"
    log = work / "build.log"
    log.unlink(missing_ok=True)
    if not (made / "build.ninja").is_file():  # configuring was interrupted: CMake's own cache may be damaged
        shutil.rmtree(made, ignore_errors=True)
    env = {**os.environ, "CC": planned.tools.cc, "CXX": planned.tools.cxx}
    title = planned.product.title
    configure = [cmake, "-S", str(tree), "-B", str(made), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja_}"]
    configure.append(f"-DCMAKE_PROJECT_ggml_INCLUDE={WORKAROUNDS}")
    compile_ = [ninja_, "-C", str(made), *around.jobs.arguments(), *planned.product.targets]
    try:
        doing = "configuring"
        stage(title, doing)
        ninja.run([*configure, *planned.flags], title, log, env, (lock,))
        doing = "building"
        ninja.pending(compile_, title)
        ninja.run(compile_, title, log, {**env, **around.jobs.environment()}, (lock,))
    except ninja.Failed as e:
        raise _failure(e.steps, doing, planned, log) from None
    ninja.learn(title, made)


def _failure(steps: ninja.Steps, doing: str, planned: Plan, log: Path) -> SetupError:
    if steps.disk_full:
        shutil.rmtree(log.parent, ignore_errors=True)  # it would only keep the disk full
        return cache.disk_full(log.parent)
    if steps.out_of_memory:
        return SetupError(
            f"memory ran out while compiling llama.cpp with {toolchain.jobs()} jobs at once: "
            "set LLAMAD_JOBS=1 and run the same command again"
        )
    for line in steps.tail:
        say("  " + line)
    return SetupError(
        f"{doing} {planned.product.title} failed with the output above (whole log: {log}): correct what it "
        "names, often a missing package or a flag in LLAMAD_CMAKE_ARGS, and run the same command again"
    )


def headers(tree: Path) -> list[Path]:
    """Return the public headers in a source tree; they are copied into one folder."""
    mtmd = [tree / "tools" / "mtmd" / name for name in ("mtmd.h", "mtmd-helper.h")]
    return [*tree.glob("include/*.h"), *tree.glob("ggml/include/*.h"), *mtmd]


def _collect(planned: Plan, work: Path) -> Path:
    """Copy what is kept into one folder and return it. Each library is there once, under its SONAME.

    Backends that are modules keep the names by which ggml looks for them; it does that beside the program."""
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    for name in ("lib", "bin", "include"):
        (out / name).mkdir(parents=True)
    made = work / "build" / "bin"
    has_modules = _is_set(planned.flags, "GGML_BACKEND_DL", ON)
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    for library in sorted(made.glob(f"lib*{suffix}")):
        soname = os.readlink(library) if library.is_symlink() else library.name
        if has_modules and re.match("libggml-(?!base)", library.name):
            soname = library.name
            (out / "bin" / soname).symlink_to(f"../lib/{soname}")
        shutil.copyfile(library, out / "lib" / soname)
        (out / "lib" / soname).chmod(0o755)
        if soname != library.name:
            (out / "lib" / library.name).symlink_to(soname)
    for program in planned.product.programs:
        shutil.copy(made / program, out / "bin" / program)
    tree = source.provide(planned.source, work)
    for header in headers(tree):
        shutil.copyfile(header, out / "include" / header.name)
    licences.collect(tree, out / "licenses", strict=planned.source.is_pinned)
    return out
