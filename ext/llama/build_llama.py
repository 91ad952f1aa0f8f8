"""Writes the C++ of `llamad._llama`: cffi in API mode over llama.cpp's real headers, with the shim beside it.

Runs at build time only (`python ext/llama/build_llama.py OUTPUT`). Must not be imported by the running program.
"""

import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent


def write(output: Path) -> None:
    """Write the C++ source; cffi does not touch a file that is unchanged."""
    ffi = FFI()
    ffi.cdef((HERE / "declarations.h").read_text(encoding="utf-8"))
    ffi.set_source("llamad._llama", '#include "shim.h"', source_extension=".cpp")
    output.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(output))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
