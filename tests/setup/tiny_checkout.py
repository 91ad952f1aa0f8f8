"""A checkout of two small modules and a binding, with the real build and recipe, over a llama.cpp of a few lines.
Its builds use the real Cython, Ninja, CMake and compiler, which compiles what it has seen before no second time.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tiny_llama_cpp import CHECKOUT, write_script, write_tree

FILES = {
    "llamad/__init__.py": "",
    "llamad/engine/__init__.py": "",
    "ext/llamad/engine/one.pxd": "cdef int twice(int a) noexcept nogil\n",
    "ext/llamad/engine/one.pyx": (
        'cdef extern from "llamad/engine/one.h":\n'
        "    int one() noexcept nogil\n"
        "cdef int twice(int a) noexcept nogil:\n"
        "    return 2 * a * one()\n"
        "def answer():\n"
        "    return twice(21)\n"
    ),
    "ext/llamad/engine/two.pyx": (
        "from llamad.engine.one cimport twice\ndef answer():\n    return twice(4)\n"
    ),
    "ext/llamad/engine/other.pyx": (
        "# distutils: language = c++\n"
        "# distutils: sources = ext/llamad/engine/beside.cpp\n"
        'cdef extern from "llamad/engine/other.h":\n'
        "    int other() noexcept nogil\n"
        "def answer():\n"
        "    return other()\n"
    ),
    "ext/llamad/engine/one.h": "static inline int one(void) { return 1; }\n",
    "ext/llamad/engine/other.h": "int other();\n",
    "ext/llamad/engine/beside.cpp": '#include "other.h"\nint other() { return 7; }\n',
    "ext/llamad/engine/testing/probe.pyx": "def answer():\n    return 3\n",
    "ext/llama/declarations.h": "int binding_answer(void);\n",
    "ext/llama/adapters.h": "",
    "ext/llama/media.h": "",
    "ext/llama/shim.h": "extern int binding_answer(void);\n",
    "ext/llama/shim.cpp": 'extern "C" {\n#include "llama.h"\n}\n#include "shim.h"\n'
    "int binding_answer(void) { return llama_answer(); }\n",
}
MORE_CMAKE = """
add_library(ggml SHARED src/ggml.cpp)
add_library(ggml-base SHARED src/ggml.cpp)
"""
BUILD = """
import sys
from pathlib import Path
sys.path[:0] = ["ext", "vendor/llama.cpp"]
from build import modules, pipeline, variant
from recipe import report
root = Path.cwd()
order = pipeline.Order(sys.executable, variant.chosen(), modules.find(root), root / "llamad", int(sys.argv[1]))
try:
    pipeline.run(order, [])
except report.SetupError as e:
    sys.exit(f"llamad: {e}")
"""

# Of what Cython writes, compiling takes five times as long as preprocessing, and the checkouts differ in a line or two.
COMPILER = """
case " $* " in *" -c "*" -o "*) ;; *) exec {real} "$@";; esac
{real} "$@" -E -P || exit 1
flags=
out=
for argument in "$@"; do
    case $argument in -D*) ;; */*) [ "$before" != -o ] || out=$argument;; *) flags="$flags $argument";; esac
    before=$argument
done
kept={objects}/$( (echo "$flags"; cat "$out") | sha256sum | cut -c -64)
if [ ! -e "$kept" ]; then
    {real} "$@" || exit 1
    cp "$out" "$kept.$$" && mv "$kept.$$" "$kept"
else
    cp "$kept" "$out"
fi
"""


@dataclass
class TinyCheckout:
    """`compilers` has the compilers of C and of C++."""

    root: Path
    tree: Path
    cache: Path
    compilers: dict[str, str]

    @classmethod
    def write(cls, folder: Path, objects: Path) -> "TinyCheckout":
        """What is compiled goes to `objects` as well, and comes from there the next time."""
        root = folder / "checkout"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("vendor", "ext/build"):
            shutil.copytree(CHECKOUT / name, root / name, ignore=ignored)
        for name, text in FILES.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        shutil.copy(CHECKOUT / "ext" / "llama" / "build_llama.py", root / "ext" / "llama")
        tree = write_tree(folder / "tree")
        (tree / "src" / "ggml.cpp").write_text("int ggml;\n")
        (tree / "src" / "llama.cpp").write_text('extern "C" int llama_answer() { return 42; }\n')
        (tree / "tools" / "mtmd" / "mtmd.cpp").write_text(
            'extern "C" int llama_answer(); int mtmd_answer() { return llama_answer(); }\n'
        )
        with (tree / "CMakeLists.txt").open("a") as file:
            file.write(MORE_CMAKE)
            file.write("target_link_libraries(mtmd ggml ggml-base)\n")
        compilers = {
            variable: str(
                write_script(
                    folder / "compilers" / name, COMPILER.format(real=shutil.which(name), objects=objects)
                )
            )
            for variable, name in (("CC", "cc"), ("CXX", "c++"))
        }
        return cls(root, tree, folder / "cache", compilers)

    def copy(self, folder: Path) -> "TinyCheckout":
        """Another checkout that is as far as this one, over the same llama.cpp."""
        return TinyCheckout(
            shutil.copytree(self.root, folder / "checkout"), self.tree, self.cache, self.compilers
        )

    def write_compiler(self, before: str) -> dict[str, str]:
        """Compilers that run this shell code first, with the source file in `$source`."""
        found = {}
        for variable, compiler in self.compilers.items():
            body = f'for source in "$@"; do case $source in *.c|*.cpp) break;; esac; done\n{before}\n'
            script = write_script(self.root.parent / f"bin-{variable}", f'{body}exec {compiler} "$@"\n')
            found[variable] = str(script)
        return found

    def build(self, n_jobs: int = 2, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {k: os.environ[k] for k in ("PATH", "HOME", "LANG") if k in os.environ}
        env = {
            **kept,
            "LLAMAD_CACHE": str(self.cache),
            "LLAMAD_LLAMA_CPP": str(self.tree),
            **self.compilers,
            **more,
        }
        env |= {"CCACHE_DISABLE": "1", "LLAMAD_DEBUG_BUILD": "1"}  # the quickest to compile
        command = [sys.executable, "-c", BUILD, str(n_jobs)]
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, check=False)

    def built(self, n_jobs: int = 2, **more: str) -> list[str]:
        """The steps of the modules that were run, each as `translate one` or `compile shim`."""
        log = self.root / "build" / "debug" / "build.log"
        log.unlink(missing_ok=True)
        done = self.build(n_jobs, **more)
        assert done.returncode == 0, done.stderr
        lines = log.read_text().splitlines() if log.is_file() else []
        words = [line.split() for line in lines if line.startswith("[")]
        return sorted(f"{w[1]} {Path(w[2]).name.removesuffix('.o')}".split(".cpython")[0] for w in words)

    def answer(self, module: str) -> int:
        code = f"import {module} as m; print(m.answer() if hasattr(m, 'answer') else m.lib.binding_answer())"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)
