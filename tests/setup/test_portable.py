"""A build for other machines: ggml's CPU backends are modules, of which one is chosen at run time."""

import platform
import subprocess
from pathlib import Path

import pytest

from build import package, wheel
from recipe.report import SetupError
from tiny_llama_cpp import Recipe

# As ggml declares its backends: modules with a version, which the library that opens them waits for.
GGML = """
project(ggml C CXX)
add_library(ggml SHARED ggml.cpp)
foreach(variant x64 haswell zen4)
    add_library(ggml-cpu-${variant} MODULE ggml.cpp)
    set_target_properties(ggml-cpu-${variant} PROPERTIES VERSION 0.5.0 SOVERSION 0)
    set_target_properties(ggml-cpu-${variant} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
    add_dependencies(ggml ggml-cpu-${variant})
endforeach()
"""
DYNAMIC = "-DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"


@pytest.fixture
def portable(tree: Path) -> Path:
    (tree / "ggml" / "CMakeLists.txt").write_text(GGML)
    (tree / "ggml" / "ggml.cpp").write_text("int ggml;\n")
    with (tree / "CMakeLists.txt").open("a") as file:
        file.write("add_subdirectory(ggml)\ntarget_link_libraries(llama ggml)\n")
    return tree


def built(recipe: Recipe, tree: Path, flags: str = DYNAMIC) -> Path:
    return recipe.built("libraries", LLAMAD_LLAMA_CPP=str(tree), LLAMAD_CMAKE_ARGS=flags)


def test_backends_are_where_ggml_looks_for_them(recipe: Recipe, portable: Path) -> None:
    """ggml takes libggml-cpu-*.so beside the program, but no libggml-cpu-x64.so.0."""
    made = built(recipe, portable)

    names = {f"libggml-cpu-{variant}.so" for variant in ("x64", "haswell", "zen4")}
    assert names == {path.name for path in (made / "lib").glob("libggml-cpu*")}
    assert not any((made / "lib" / name).is_symlink() for name in names)
    assert {path.name for path in (made / "bin").iterdir()} == {"ggml-rpc-server", *names}
    assert all((made / "bin" / name).is_file() for name in names)


def test_a_package_has_them_beside_its_program(recipe: Recipe, portable: Path, tmp_path: Path) -> None:
    made = built(recipe, portable)
    (tmp_path / "llamad" / "bin").mkdir(parents=True)  # of an earlier version

    package.carry_libraries(made, tmp_path / "llamad", "portable")

    carried = {path.name: path.is_symlink() for path in (tmp_path / "llamad" / "lib").iterdir()}
    assert carried.keys() >= {"ggml-rpc-server", "libllama.so.0", "libggml-cpu-zen4.so"}
    assert not any(carried.values())
    assert not (tmp_path / "llamad" / "bin").exists()
    assert subprocess.run([tmp_path / "llamad" / "lib" / "ggml-rpc-server"], check=False).returncode == 42


def test_only_the_named_variants_are_built(recipe: Recipe, portable: Path) -> None:
    made = built(recipe, portable, f"{DYNAMIC} '-DLLAMAD_CPU_VARIANTS=x64;zen4'")

    assert {path.name for path in (made / "lib").glob("libggml-cpu*")} == {
        "libggml-cpu-x64.so",
        "libggml-cpu-zen4.so",
    }


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX-512 is x86-64's")
def test_variants_with_wide_vectors_are_tuned_for_their_cpu(recipe: Recipe, portable: Path) -> None:
    """Not tuned, loops have vectors of 512 bits, with which many of these CPUs are slower."""
    (portable / "ggml" / "CMakeLists.txt").write_text(
        GGML.replace("x64 haswell zen4", "haswell cascadelake")
        + "target_compile_definitions(ggml-cpu-cascadelake PRIVATE TUNED)\n"
    )
    (portable / "ggml" / "ggml.cpp").write_text(
        "#if !defined(__clang__) && defined(TUNED) != defined(__tune_cascadelake__)\n#error tuning\n#endif\n"
    )

    made = built(recipe, portable)

    assert (made / "lib" / "libggml-cpu-cascadelake.so").is_file()


def test_peers_keep_their_backends(recipe: Recipe, portable: Path) -> None:
    here = {"LLAMAD_LLAMA_CPP": str(portable), "LLAMAD_CMAKE_ARGS": DYNAMIC}
    server = recipe.built("both", **here)

    for folder in (server.parent, recipe.built("libraries", **here) / "bin"):
        assert (folder / "libggml-cpu-x64.so").is_file()


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("llamad-1.0-cp311-cp311-manylinux_2_34_x86_64.whl", "is for Python 3.11 and glibc 2.34 or newer"),
        (
            "llamad-1.0-cp314-cp314-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
            "is for Python 3.14 and glibc 2.17 or newer",
        ),
    ],
)
def test_a_wheel_names_what_it_needs(name: str, needed: str) -> None:
    assert wheel.needs(name) == needed


def test_a_wheel_for_this_machine_only_is_refused() -> None:
    with pytest.raises(SetupError, match="this machine only"):
        wheel.needs("llamad-1.0-cp311-cp311-linux_x86_64.whl")
