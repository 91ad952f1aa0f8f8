"""Nothing is too long to read at once: a file, a function, the list of modules in llamad/ itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.imports import ROOT

from tools.function_lengths import READERS, of_c, of_cython, of_python

MODULES_MAX = 10
FILE_MAX = 500
FUNCTION_MAX = 60

FOLDERS = ("bench", "ext", "fuzz", "llamad", "tests", "vendor/llama.cpp")
PAGE = (".css", ".html", ".js")


def files(*endings: str) -> list[Path]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in endings)
    return sorted(paths)


def test_llamad_itself_has_few_modules() -> None:
    modules = {path.stem for path in (ROOT / "llamad").glob("*.py")} - {"__init__"}
    assert len(modules) <= MODULES_MAX, sorted(modules)


def test_files_are_short() -> None:
    lengths = {path: path.read_bytes().count(b"\n") for path in files(*READERS, *PAGE)}
    assert len(lengths) > 1000
    long = [f"{path.relative_to(ROOT)}: {n}" for path, n in lengths.items() if n > FILE_MAX]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("ending", READERS)
def test_functions_are_short(ending: str) -> None:
    long = [
        f"{path.relative_to(ROOT)}:{function.line}: {function.name} has {function.n_lines} lines"
        for path in files(ending)
        for function in READERS[ending](path.read_text(encoding="utf-8"))
        if function.n_lines > FUNCTION_MAX
    ]
    assert not long, "\n".join(long)


PYTHON = """
@decorated
def one(
    a,
):
    def two():
        return a

    return two
"""

CYTHON = """
cdef class Thing:  # no function
    cdef int declared(self) noexcept nogil
    cdef int n

    def __cinit__(self,
                  int a):
        self.n = a

        # The last line is below.
        self.n += 1

    cdef int one(self, int a
    ) noexcept nogil:
        return a

cdef extern from "a.h":
    int two(int a) noexcept nogil
ctypedef int (*three)(int) noexcept nogil
cpdef four(): return 4
"""

C = """
#define MACRO(x) \\
    { x }
namespace a {
struct Thing : Base {
    explicit Thing(int a) : a_(a) {
        if (a) { f("}"); }
    }
    int declared() const;
};
static const int table[] = {1, '{'};
template <typename T> // }
int one(T a,
        int b) {
    auto inner = [](int c) {
        return c;
    };
    return R"(})" + inner(a);
}
extern "C" {
int two(void) { return 2; }
}
}
"""


def test_the_readers_find_functions_and_their_ends() -> None:
    assert [(one.name, one.line, one.n_lines) for one in of_python(PYTHON)] == [("one", 3, 7), ("two", 6, 2)]
    assert [(one.name, one.line, one.n_lines) for one in of_cython(CYTHON)] == [
        ("__cinit__", 6, 6),
        ("one", 13, 3),
    ]
    assert [(one.name.split()[-1], one.n_lines) for one in of_c(C)] == [("Thing", 3), ("one", 8), ("two", 1)]


@pytest.mark.parametrize(("ending", "n_least"), [(".py", 8000), (".pyx", 1000), (".cpp", 400), (".hpp", 40)])
def test_the_readers_find_the_functions_of_this_checkout(ending: str, n_least: int) -> None:
    functions = [one for path in files(ending) for one in READERS[ending](path.read_text(encoding="utf-8"))]
    assert len(functions) >= n_least
    assert not any(one.name in ("if", "for", "while", "switch") for one in functions)
