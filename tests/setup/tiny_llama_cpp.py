"""A llama.cpp of three small files, and the recipe run on it as `make` runs it: with the real CMake, Ninja,
compiler and pip, but never with a network, nor with a cache of its own beyond the test.
"""

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
RECIPE = CHECKOUT / "vendor" / "llama.cpp"

CMAKE = """
cmake_minimum_required(VERSION 3.14)
foreach(language C CXX)  # CMake need not try out the compilers, which takes longer than this build
    set(CMAKE_${language}_COMPILER_WORKS TRUE)
    set(CMAKE_${language}_ABI_COMPILED TRUE)
endforeach()
project(tiny C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(llama SHARED src/llama.cpp)
set_target_properties(llama PROPERTIES VERSION 0.5.0 SOVERSION 0)
add_library(mtmd SHARED tools/mtmd/mtmd.cpp)
set_target_properties(mtmd PROPERTIES VERSION 0.5.0 SOVERSION 0)
target_link_libraries(mtmd llama)
add_executable(ggml-rpc-server tools/server.cpp)
target_link_libraries(ggml-rpc-server mtmd)
add_library(llama-common SHARED tools/common.cpp)
set_target_properties(llama-common PROPERTIES VERSION 0.5.0 SOVERSION 0)
target_link_libraries(llama-common llama)
add_executable(llama-server tools/peer.cpp)
target_link_libraries(llama-server llama-common)
add_executable(llama-batched-bench tools/peer.cpp)
target_link_libraries(llama-batched-bench llama-common)
"""
TREE = {
    "CMakeLists.txt": CMAKE,
    "LICENSE": "a licence\n",
    "include/llama.h": "int llama_answer(void);\n",
    "ggml/CMakeLists.txt": "",
    "ggml/include/ggml.h": "",
    "src/llama.cpp": "extern int llama_answer(); int llama_answer() { return ANSWER; }\n".replace(
        "ANSWER", "42"
    ),
    "tools/mtmd/mtmd.h": "",
    "tools/mtmd/mtmd-helper.h": "",
    "tools/mtmd/mtmd.cpp": "int llama_answer(); int mtmd_answer(); int mtmd_answer() { return llama_answer(); }\n",
    "tools/server.cpp": "int mtmd_answer(); int main() { return mtmd_answer(); }\n",
    "tools/common.cpp": "int llama_answer(); int common_answer(); int common_answer() { return llama_answer() + 1; }\n",
    "tools/peer.cpp": "int common_answer(); int main() { return common_answer(); }\n",
    "models/big.gguf": "not needed by the build\n",
}


def write_tree(folder: Path) -> Path:
    for name, text in TREE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def write_archive(tree: Path, archive: Path, prefix: str) -> Path:
    with tarfile.open(archive, "w:xz" if archive.suffix == ".xz" else "w:gz") as tar:
        tar.add(tree, arcname=prefix)
    return archive


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@dataclass
class Recipe:
    """Runs `python vendor/llama.cpp ...` in an environment of its own."""

    cache: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: os.environ[k] for k in ("PATH", "HOME", "LANG") if k in os.environ}
        offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
        return {**kept, **offline, "LLAMAD_CACHE": str(self.cache), **self.env, **more}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(RECIPE), *arguments]

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(**more),
            capture_output=True,
            text=True,
            check=False,
        )

    def built(self, *arguments: str, **more: str) -> Path:
        done = self.run(*arguments, **more)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    def refused(self, *arguments: str, **more: str) -> str:
        """The one line of a failure, which must be the last and the only one of its kind."""
        done = self.run(*arguments, **more)
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        *before, line = done.stderr.splitlines()
        assert line.startswith("llamad: ")
        assert not any(text.startswith("llamad: ") for text in before)
        return line

    def finished(self) -> list[Path]:
        """Everything in the cache that a later run could take for a result."""
        return [p for kind in ("llama.cpp", "peer", "models") for p in self.cache.glob(f"{kind}/*[!k]")]
