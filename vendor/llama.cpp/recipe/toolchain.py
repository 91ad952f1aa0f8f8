"""Finds the compiler, CMake and Ninja, or says in one line what is missing. Describes for the cache key what the
libraries depend on: compiler, architecture, CPU features.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from .report import SetupError

# CMake takes these from the environment, so they are part of what is built.
ENVIRONMENT = ("CFLAGS", "CXXFLAGS", "LDFLAGS", "CUDAFLAGS", "CUDAARCHS", "CUDAHOSTCXX")

# A compiler without libstdc++.so puts libstdc++.a into each library. If they export it, they use parts of each other's
# copy, and parts of the libstdc++.so that a Python package such as NumPy has loaded before: llama.cpp then crashes
# while it loads a model. Harmless where libstdc++.so is used.
HIDE_STATIC_CXX = "-Wl,--exclude-libs,libstdc++.a"
# Templates of libstdc++ that a library instantiates are exported all the same, and the first library's would serve all
# of them. Some use variables of their own copy: std::call_once of one library then crashes in another's template.
USE_OWN_TEMPLATES = "-Wl,-Bsymbolic"


_python = sys.executable


def use_python(python: Path) -> None:
    """Use pip, CMake and Ninja of this Python's environment instead of those of the running Python."""
    global _python
    _python = str(python)


def python() -> str:
    """Return the Python whose packages the build uses."""
    return _python


@dataclass(frozen=True)
class Toolchain:
    cc: str
    cxx: str
    compiler: str  # the first line of the C++ compiler's --version
    target: str
    environment: tuple[str, ...]

    @property
    def link_flags(self) -> str:
        """Return the linker's flags for every shared library and module."""
        # GCC prints the bare name of a file that it does not have.
        shared = _output([*shlex.split(self.cxx), "-print-file-name=libstdc++.so"]).strip()
        is_static = not os.path.isabs(shared) or "-static-libstdc++" in shlex.split(
            os.environ.get("LDFLAGS", "")
        )
        return f"{HIDE_STATIC_CXX} {USE_OWN_TEMPLATES}" if is_static else HIDE_STATIC_CXX


def find_compilers() -> Toolchain:
    cxx = _compiler("CXX", ("c++", "g++", "clang++"), "a C++ compiler")
    cc = _compiler("CC", ("cc", "gcc", "clang"), "a C compiler")
    lines = _output([*shlex.split(cxx), "--version"]).splitlines()
    target = _output([*shlex.split(cxx), "-dumpmachine"]).strip() or platform.machine()
    environment = tuple(f"{name}={os.environ[name]}" for name in ENVIRONMENT if os.environ.get(name))
    return Toolchain(cc, cxx, lines[0].strip() if lines else "unknown", target, environment)


def _compiler(variable: str, names: tuple[str, ...], what: str) -> str:
    named = os.environ.get(variable)
    if named:
        program = shlex.split(named)[0]
        if not shutil.which(program):
            raise SetupError(f"{variable}={named}: there is no such program; set it to {what}, or unset it")
        return named
    for name in names:
        if shutil.which(name):
            return name
    raise SetupError(
        f"{what} is missing (looked for {', '.join(names)}): install one (Debian, Ubuntu: apt install g++; "
        f"Fedora: dnf install gcc-c++; macOS: xcode-select --install) or set {variable}"
    )


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise SetupError(
            f"{command[0]} cannot be run ({e}): install a working compiler, or set CXX"
        ) from None
    return done.stdout


def cuda_compiler(options: list[str]) -> str:
    """Return the version of nvcc if the options enable CUDA, else ""."""
    asked = any(re.fullmatch(r"-DGGML_CUDA(:\w+)?=(ON|1|TRUE|YES|Y)", o, re.IGNORECASE) for o in options)
    if not asked or any(o.startswith("-DCMAKE_CUDA_COMPILER") for o in options):
        return ""
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc")
    if not nvcc and Path("/usr/local/cuda/bin/nvcc").exists():
        nvcc = "/usr/local/cuda/bin/nvcc"
    if not nvcc or not shutil.which(nvcc):
        raise SetupError(
            "GGML_CUDA=ON needs nvcc, which was not found: install the CUDA toolkit, or set CUDACXX to its path"
        )
    lines = _output([nvcc, "--version"]).strip().splitlines()
    return lines[-1] if lines else "unknown"


def find_tool(name: str) -> str:
    """Return the path of CMake or Ninja: the one beside the build's Python, or the one on PATH."""
    folders = [str(Path(python()).parent)]
    if python() == sys.executable:
        folders.append(sysconfig.get_path("scripts"))
    beside = shutil.which(name, path=os.pathsep.join(folders))
    if beside:
        return beside
    # In an isolated build the packages can be imported, but their scripts may not be on PATH.
    spec = importlib.util.find_spec(name)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for candidate in (Path(folder) / "data" / "bin" / name, Path(folder) / "bin" / name):
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return str(candidate)
    on_path = shutil.which(name)
    if on_path:
        return on_path
    raise SetupError(f"{name} is missing: run `make build`, which installs it, or pip install {name}")


def cpu_features(cc: str) -> str:
    """Return a hash of the macros that the compiler defines for the CPU of this machine. Unlike the list in
    /proc/cpuinfo, it does not change with the kernel."""
    flag = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    macros = _output([*shlex.split(cc), flag, "-E", "-dM", "-x", "c", os.devnull])
    return hashlib.sha256(macros.encode()).hexdigest()[:16] if macros else platform.processor()


def jobs() -> int:
    """Return the number of compiler processes: the usable cores, but not more than memory allows (1 GB each)."""
    named = os.environ.get("LLAMAD_JOBS")
    if named:
        if not named.isdecimal() or int(named) < 1:
            raise SetupError(f"LLAMAD_JOBS={named} is not a number of jobs: set it to 1 or more, or unset it")
        return int(named)
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(n_cores, _memory_available() // 1_000_000_000))


def _memory_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 40
