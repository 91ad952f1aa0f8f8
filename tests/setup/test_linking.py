"""What the libraries and modules export."""

import shutil
import subprocess

import pytest

from recipe.toolchain import HIDE_STATIC_CXX

CXX = shutil.which("c++") or shutil.which("g++")
STREAM = """
#include <sstream>
#include <string>
std::string shown(long n) { std::ostringstream s; s << n; return s.str(); }
"""


def exported(library) -> list[str]:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    return [line.split()[-1] for line in listed.stdout.splitlines()]


@pytest.mark.skipif(CXX is None or shutil.which("nm") is None, reason="there is no C++ compiler or no nm")
@pytest.mark.parametrize("flags", [[], [HIDE_STATIC_CXX]])
def test_a_static_libstdcxx_is_not_exported(tmp_path, flags):
    """A process with NumPy and llama.cpp, both with a C++ library of their own, crashed in the load of a model: streams
    of llama.cpp used one copy's functions with another copy's locale."""
    source, library = tmp_path / "shown.cpp", tmp_path / "libshown.so"
    source.write_text(STREAM)
    command = [CXX, "-shared", "-fPIC", "-static-libstdc++", str(source), "-o", str(library), *flags]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"there is no static libstdc++: {made.stderr.strip()[-80:]}")
    names = exported(library)
    assert any("shown" in name for name in names)
    assert any(name.startswith("_ZNSo9_M_insert") for name in names) == (not flags)
