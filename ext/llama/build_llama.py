"""Writes the C++ of `llamad._llama`: cffi in API mode over llama.cpp's real headers, with the shim beside it.

Runs at build time only (`python ext/llama/build_llama.py OUTPUT`). Must not be imported by the running program.
"""

import re
import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
HEADERS = ("adapters.h", "media.h", "shim.h")
_C_PART = re.compile(r'extern "C" \{\n#endif\n(.*?)#ifdef __cplusplus\n\}', re.DOTALL)


def _declarations(header: Path) -> str:
    """Return what a header declares to C. Constants have no values here: the compiler knows them."""
    part = _C_PART.search(header.read_text(encoding="utf-8"))
    return re.sub(r"(?m)^(#define \w+) .*", r"\1 ...", part[1]) if part is not None else ""


def write(output: Path) -> None:
    """Write the C++ source; cffi does not touch a file that is unchanged."""
    ffi = FFI()
    ffi.cdef((HERE / "declarations.h").read_text(encoding="utf-8"))
    for name in HEADERS:
        ffi.cdef(_declarations(HERE / name))
    ffi.set_source("llamad._llama", '#include "shim.h"', source_extension=".cpp")
    output.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(output))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
