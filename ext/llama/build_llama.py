"""Builds `llamad._llama`: cffi in API mode over llama.cpp's real headers, with the shim beside it.

Runs at build time only (setup.py calls extension()). Must not be imported by the running program.
"""

import os
from pathlib import Path

from cffi import FFI
from setuptools import Extension

HERE = Path(__file__).resolve().parent
SOURCES = (
    "shim.cpp",
    "log.cpp",
    "embed.cpp",
    "floats.cpp",
    "gguf.cpp",
    "tokenizer/vocabulary.cpp",
    "tokenizer/merges.cpp",
    "tokenizer/words.cpp",
)
HEADERS = (
    "table.h",
    "shim.h",
    "declarations.h",
    "tokenizer/utf8.h",
    "tokenizer/hash.h",
    "tokenizer/vocabulary.h",
    "tokenizer/merges.h",
    "tokenizer/words.h",
)


def relative(name: str) -> str:
    """setuptools takes no absolute sources; setup.py runs in the checkout's root."""
    return os.path.relpath(HERE / name)


def extension(include_dir: str, lib_dir: str) -> Extension:
    """The extension module, ready to compile. `$ORIGIN/lib` is llamad/lib, where setup.py puts the libraries."""
    ffi = FFI()
    ffi.cdef((HERE / "declarations.h").read_text())
    ffi.set_source(
        "llamad._llama",
        '#include "shim.h"',
        source_extension=".cpp",
        sources=[relative(name) for name in SOURCES],
        depends=[relative(name) for name in (*HEADERS, "build_llama.py")],
        include_dirs=[relative("."), include_dir],
        library_dirs=[lib_dir],
        libraries=["llama", "mtmd", "ggml", "ggml-base"],
        runtime_library_dirs=["$ORIGIN/lib"],
        extra_compile_args=["-std=c++17", "-O2", "-Wno-missing-field-initializers"],
    )
    out = Path("build") / "cffi"
    out.mkdir(parents=True, exist_ok=True)
    return ffi.distutils_extension(str(out), verbose=False)
