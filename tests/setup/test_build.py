"""From sources to a finished folder in the cache: what is built, when it is built again, and that a build cut
off or failing in the middle is never taken for a finished one.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from tiny_llama_cpp import CHECKOUT, TREE, Recipe, write_archive, write_script, write_tree


@dataclass(frozen=True)
class FirstBuild:
    """What one build in an empty cache left and said."""

    recipe: Recipe
    tree: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> FirstBuild:
    folder = tmp_path_factory.mktemp("first")
    recipe, tree = Recipe(folder / "cache"), write_tree(folder / "tree")
    done = recipe.run("libraries", LLAMAD_LLAMA_CPP=str(tree))
    assert done.returncode == 0, done.stderr
    return FirstBuild(recipe, tree, done)


@pytest.fixture
def made(first: FirstBuild, recipe: Recipe) -> Path:
    """The result of that build in the test's own cache. The test's tree is the same, so it is not done again."""
    shutil.copytree(first.recipe.cache, recipe.cache, symlinks=True)
    return recipe.cache / Path(first.done.stdout.strip()).relative_to(first.recipe.cache)


def test_a_tree_becomes_libraries_that_find_each_other_wherever_they_are(
    recipe: Recipe, made: Path, tmp_path: Path
) -> None:
    libraries = {p.name: p.is_symlink() for p in (made / "lib").iterdir()}
    assert libraries == {
        "libllama.so": True,
        "libllama.so.0": False,
        "libmtmd.so": True,
        "libmtmd.so.0": False,
    }
    assert {"llama.h", "ggml.h", "mtmd.h", "mtmd-helper.h"} <= {p.name for p in (made / "include").iterdir()}
    assert "a licence" in (made / "licenses" / "llama.cpp-and-ggml.txt").read_text()
    moved = shutil.copytree(made, tmp_path / "elsewhere", symlinks=True)
    shutil.rmtree(recipe.cache)
    assert subprocess.run([moved / "bin" / "ggml-rpc-server"], check=False).returncode == 42


def test_a_finished_build_leaves_no_build_tree_and_is_not_done_again(first: FirstBuild) -> None:
    again = first.recipe.run("libraries", LLAMAD_LLAMA_CPP=str(first.tree))

    assert "[" in first.done.stderr
    assert not [p for p in (first.recipe.cache / "work").iterdir() if p.is_dir()]
    assert again.stdout == first.done.stdout
    assert again.stderr == ""


def test_progress_is_shown_in_steps(first: FirstBuild) -> None:
    lines = first.done.stderr.splitlines()

    n_steps = lines[-1].split("/")[1].split("]")[0]
    assert lines[-1] == f"llama.cpp libraries: [{n_steps}/{n_steps}] built"
    assert any(line.startswith(f"llama.cpp libraries: [1/{n_steps}] ") for line in lines)


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("a.tar.gz", "llama.cpp-master"),
        ("a.tar.xz", "llama_cpp_python-9/vendor/llama.cpp"),
        ("a.tar.gz", "."),
    ],
)
def test_an_archive_is_built_like_its_tree(
    recipe: Recipe, tree: Path, tmp_path: Path, name: str, prefix: str
) -> None:
    archive = write_archive(tree, tmp_path / name, prefix)

    made = recipe.built("libraries", LLAMAD_LLAMA_CPP=str(archive))

    assert (made / "lib" / "libmtmd.so.0").is_file()


def test_only_what_the_build_reads_is_unpacked(
    recipe: Recipe, tree: Path, tmp_path: Path, real_cxx: str
) -> None:
    archive = write_archive(tree, tmp_path / "a.tar.gz", "x")
    failing = write_script(tmp_path / "cxx", f'case "$*" in *server*) exit 1;; esac; exec {real_cxx} "$@"\n')

    recipe.refused("libraries", LLAMAD_LLAMA_CPP=str(archive), CXX=str(failing))

    (kept,) = (recipe.cache / "work").glob("*/src")
    assert {p.name for p in kept.iterdir()} == {name.split("/")[0] for name in TREE} - {"models"}


def test_the_key_follows_flags_sources_and_compiler(
    recipe: Recipe, tree: Path, tmp_path: Path, real_cxx: str
) -> None:
    here = {"LLAMAD_LLAMA_CPP": str(tree)}
    other_cxx = write_script(
        tmp_path / "cxx", f'[ "$1" = --version ] && echo "another 1.0" && exit; exec {real_cxx} "$@"\n'
    )

    def key(**more: str) -> str:
        return recipe.run("key", **here, **more).stdout.strip()

    same = [key(), key()]
    others = [
        key(LLAMAD_CMAKE_ARGS="-DX=1"),
        key(LLAMAD_CMAKE_ARGS="-DX=2"),
        key(LLAMAD_CMAKE_ARGS="-DGGML_NATIVE=OFF"),
        key(CXXFLAGS="-O1"),
        key(CXX=str(other_cxx)),
    ]
    (tree / "src" / "llama.cpp").write_text("// changed\n")
    others.append(key())

    assert same[0] == same[1] != ""
    assert len({same[0], *others}) == 1 + len(others)


def test_sources_that_the_build_does_not_read_do_not_change_the_key(recipe: Recipe, tree: Path) -> None:
    before = recipe.built("key", LLAMAD_LLAMA_CPP=str(tree))
    (tree / "models" / "big.gguf").write_text("changed\n")

    assert recipe.built("key", LLAMAD_LLAMA_CPP=str(tree)) == before


def test_two_sets_of_flags_live_side_by_side(recipe: Recipe, made: Path, tree: Path) -> None:
    one = recipe.built("libraries", LLAMAD_LLAMA_CPP=str(tree))
    assert one == made
    two = recipe.built("libraries", LLAMAD_LLAMA_CPP=str(tree), LLAMAD_CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Debug")

    assert one != two
    assert (
        json.loads((one / "meta.json").read_text())["flags"]
        != json.loads((two / "meta.json").read_text())["flags"]
    )
    assert (one / "lib" / "libllama.so.0").is_file()


def test_a_damaged_result_is_built_again(recipe: Recipe, made: Path, tree: Path) -> None:
    whole = (made / "lib" / "libllama.so.0").read_bytes()
    (made / "lib" / "libllama.so.0").write_bytes(whole[:100])

    assert recipe.built("libraries", LLAMAD_LLAMA_CPP=str(tree)) == made
    assert (made / "lib" / "libllama.so.0").stat().st_size == len(whole)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_build_cut_off_is_not_taken_for_finished_and_the_next_run_completes_it(
    recipe: Recipe, tree: Path, tmp_path: Path, real_cxx: str, how: signal.Signals
) -> None:
    """The compiler stops at the program, the last step, until the test lets it go on."""
    gate, waiting = tmp_path / "gate", tmp_path / "waiting"
    gate.touch()
    slow = write_script(
        tmp_path / "cxx",
        f'case "$*" in *server.cpp*) while [ -e {gate} ]; do : >{waiting}; sleep 0.05; done;; esac\n'
        f'exec {real_cxx} "$@"\n',
    )
    env = recipe.environment(LLAMAD_LLAMA_CPP=str(tree), CXX=str(slow))
    build = subprocess.Popen(
        recipe.command("libraries"),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        while not waiting.exists():
            assert build.poll() is None, build.communicate()
            time.sleep(0.02)
        if how == signal.SIGKILL:
            os.killpg(build.pid, how)  # the machine dies: nobody tidies up
        else:
            build.send_signal(how)
            gate.unlink()
        _, errors = build.communicate(timeout=60)
    finally:
        gate.unlink(missing_ok=True)
        build.kill()

    assert build.returncode == (130 if how == signal.SIGTERM else -how)
    assert b"Traceback" not in errors
    assert recipe.finished() == []
    made = recipe.built("libraries", LLAMAD_LLAMA_CPP=str(tree), CXX=str(slow))
    assert subprocess.run([made / "bin" / "ggml-rpc-server"], check=False).returncode == 42


def test_two_builds_at_once_make_one(recipe: Recipe, tree: Path) -> None:
    env = recipe.environment(LLAMAD_LLAMA_CPP=str(tree))
    both = [
        subprocess.Popen(
            recipe.command("libraries"), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [build.communicate(timeout=60) for build in both]

    assert [build.returncode for build in both] == [0, 0]
    assert said[0][0] == said[1][0]
    assert sum("configuring" in errors for _, errors in said) == 1


def test_libraries_and_peer_are_compiled_once_for_the_two(recipe: Recipe, tree: Path) -> None:
    here = {"LLAMAD_LLAMA_CPP": str(tree)}
    first = recipe.run("both", **here)
    assert first.returncode == 0, first.stderr
    server = Path(first.stdout.strip())
    made = recipe.run("libraries", **here)
    peer = recipe.run("peer", **here)

    assert first.stderr.count("configuring") == 1
    assert (made.stderr, peer.stderr, peer.stdout) == ("", "", first.stdout)
    ours = Path(made.stdout.strip())
    assert {p.name for p in (ours / "bin").iterdir()} == {"ggml-rpc-server"}
    assert {p.name for p in (ours / "lib").iterdir() if not p.is_symlink()} == {
        "libllama.so.0",
        "libmtmd.so.0",
    }
    assert {p.name for p in server.parent.iterdir()} == {"llama-server", "llama-batched-bench"}
    assert subprocess.run([server], check=False).returncode == 43
    assert subprocess.run([ours / "bin" / "ggml-rpc-server"], check=False).returncode == 42


def test_both_keeps_what_is_there(recipe: Recipe, made: Path, tree: Path) -> None:
    here = {"LLAMAD_LLAMA_CPP": str(tree)}
    written = (made / "meta.json").stat().st_mtime_ns

    assert subprocess.run([recipe.built("both", **here)], check=False).returncode == 43
    assert (made / "meta.json").stat().st_mtime_ns == written


def test_the_package_has_its_version() -> None:
    assert version("llamad") == "0.1.0"
    (script,) = entry_points(group="console_scripts", name="llamad")
    assert script.value == "llamad.__main__:main"


def test_the_package_describes_the_libraries_it_carries() -> None:
    package = CHECKOUT / "llamad"
    info = json.loads((package / "_build_info.json").read_text())

    assert info["llama_cpp"]["build_info"] == f"b0-{info['llama_cpp']['commit']}"
    assert info["compiler"]
    assert all(
        (package / "lib" / f"lib{name}.so.0").is_file() for name in ("llama", "mtmd", "ggml", "ggml-base")
    )
    assert not [p for p in (package / "lib").iterdir() if p.is_symlink()]
    program = package / "lib" / "ggml-rpc-server"
    assert subprocess.run([program, "--help"], capture_output=True, check=False).returncode == 0
