"""Faults of compilers that the build keeps away from llama.cpp, each with its story."""

import platform
import re
import subprocess
from pathlib import Path

import pytest

from tiny_llama_cpp import RECIPE, Recipe

SHAPE = """
#include <immintrin.h>
void shape(unsigned char n_rows);
void shape(unsigned char n_rows) {
    alignas(64) unsigned char config[64] = {1};
    config[48] = n_rows;
    _tile_loadconfig(config);
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is x86-64's")
def test_the_shape_of_amx_tiles_survives_the_optimizer(tmp_path: Path, real_cxx: str) -> None:
    """With GCC 12.2 on a CPU that has AMX, the first prompt longer than a few tokens ended the process with an
    illegal instruction: the optimizer had dropped the rows of the tiles, as the compiler's own header did not
    say that they are read. So the argument, which is nothing but stored, must occur in the code."""
    (tmp_path / "shape.cpp").write_text(SHAPE)
    header = RECIPE / "workarounds" / "tile_config.h"
    command = [
        real_cxx,
        "-O3",
        "-mamx-tile",
        "-S",
        "-o",
        "-",
        "-include",
        str(header),
        str(tmp_path / "shape.cpp"),
    ]

    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "ldtilecfg" in code
    assert re.search(r"%(dil|edi|rdi)\b", code)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is x86-64's")
def test_the_build_of_ggml_uses_it(recipe: Recipe, tree: Path) -> None:
    (tree / "ggml" / "CMakeLists.txt").write_text(
        "project(ggml C CXX)\n"
        "add_library(ggml-cpu SHARED cpu.cpp)\n"
        "target_compile_options(ggml-cpu PRIVATE -mamx-tile)\n"
    )
    (tree / "ggml" / "cpu.cpp").write_text(
        "#if defined(__GNUC__) && !defined(__clang__) && !defined(_tile_loadconfig)\n"
        "#error the workaround is not there\n"
        "#endif\n"
    )
    with (tree / "CMakeLists.txt").open("a") as file:
        file.write("add_subdirectory(ggml)\ntarget_link_libraries(mtmd ggml-cpu)\n")

    made = recipe.built("libraries", LLAMAD_LLAMA_CPP=str(tree))

    assert (made / "lib" / "libggml-cpu.so").is_file()
