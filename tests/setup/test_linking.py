"""What the libraries and modules export."""

import shutil
import subprocess
import sys

import pytest

from recipe import toolchain
from recipe.toolchain import HIDE_STATIC_CXX, USE_OWN_TEMPLATES

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


PROMISE = """
#include <future>
extern "C" int %s() { std::promise<int> made; made.set_value(1); return made.get_future().get(); }
"""
LOAD = """
import ctypes, sys
first, second = (ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:3])
sys.exit(0 if first.one() + second.two() == 2 else 1)
"""


def link_flags(monkeypatch, ldflags: str) -> list[str]:
    monkeypatch.setenv("LDFLAGS", ldflags)
    return toolchain.find_compilers().link_flags.split()


def test_flags_of_a_shared_and_of_a_static_libstdcxx(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    assert HIDE_STATIC_CXX in link_flags(monkeypatch, "")
    assert USE_OWN_TEMPLATES in link_flags(monkeypatch, "-O1 -static-libstdc++")


@pytest.mark.skipif(CXX is None, reason="there is no C++ compiler")
def test_two_libraries_each_with_a_libstdcxx_of_its_own_can_both_keep_promises(tmp_path, monkeypatch):
    """llama.cpp's RPC library ran another library's std::call_once, which looked for its work in that one's copy of
    libstdc++ and crashed: no RPC worker could be used."""
    flags = link_flags(monkeypatch, "-static-libstdc++")
    libraries = []
    for name in ("one", "two"):
        source, library = tmp_path / f"{name}.cpp", tmp_path / f"lib{name}.so"
        source.write_text(PROMISE % name)
        command = [
            CXX,
            "-O2",
            "-shared",
            "-fPIC",
            "-static-libstdc++",
            str(source),
            "-o",
            str(library),
            *flags,
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"there is no static libstdc++: {made.stderr.strip()[-80:]}")
        libraries.append(str(library))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *libraries], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
