"""llama.cpp and the modules in one build: side by side within one limit of jobs, and again only what a change needs."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from build import graph, translate
from recipe import cache
from tiny_checkout import TinyCheckout
from tiny_llama_cpp import CHECKOUT

MODULES = {"llamad.engine.one": 42, "llamad.engine.two": 8, "llamad.engine.other": 7, "llamad._llama": 42}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What any worker has compiled."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "objects"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def tiny(tmp_path: Path, objects: Path) -> TinyCheckout:
    """Nothing is built yet."""
    return TinyCheckout.write(tmp_path, objects)


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory, objects: Path) -> TinyCheckout:
    made = TinyCheckout.write(tmp_path_factory.mktemp("tiny"), objects)
    assert made.built()
    return made


@pytest.fixture
def built(built_once: TinyCheckout, tmp_path: Path) -> TinyCheckout:
    """A checkout of the test's own in which all is built."""
    return built_once.copy(tmp_path)


def test_jobs_beyond_the_limit_wait(tiny: TinyCheckout) -> None:
    """With one job there is one compiler, although there are two builds."""
    folder, most = tiny.root.parent / "running", tiny.root.parent / "most"
    folder.mkdir()
    note = f"mkdir {folder}/$$; ls {folder} | wc -l >> {most}; sleep 0.05; rmdir {folder}/$$"
    compilers = tiny.write_compiler(f"case $source in *.c|*.cpp) {note};; esac")
    done = tiny.build(1, **compilers)

    assert done.returncode == 0, done.stderr
    assert {int(line) for line in most.read_text().split()} == {1}
    assert {name: tiny.answer(name) for name in MODULES} == MODULES


def test_modules_do_not_wait_for_llama_cpp(tiny: TinyCheckout) -> None:
    """llama.cpp's only source waits for a module to be compiled; two jobs suffice for that, and there are no more."""
    begun, folder, most = (tiny.root.parent / name for name in ("begun", "running", "most"))
    folder.mkdir()
    wait = f"n=0; while [ ! -e {begun} ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done; [ -e {begun} ] || exit 1"
    compilers = tiny.write_compiler(
        f"case $source in *.c|*.cpp) mkdir {folder}/$$; ls {folder} | wc -l >> {most};; esac\n"
        f"case $source in */tree/src/llama.cpp) {wait};; *translated*) touch {begun};; esac\n"
        f"[ ! -d {folder}/$$ ] || rmdir {folder}/$$"
    )
    done = tiny.build(2, **compilers)

    assert done.returncode == 0, done.stderr
    assert max(int(line) for line in most.read_text().split()) == 2
    assert {name: tiny.answer(name) for name in MODULES} == MODULES


def test_a_second_build_does_nothing(built: TinyCheckout) -> None:
    again = built.build()

    assert (again.returncode, again.stderr, again.stdout) == (0, "", "")
    assert built.built() == []


def test_a_change_rebuilds_what_was_made_from_it_and_no_more(built: TinyCheckout) -> None:
    engine = built.root / "ext" / "llamad" / "engine"

    (engine / "one.h").write_text("static inline int one(void) { return 2; }\n")
    assert built.built() == ["compile llamad.engine.one.c", "link one"]
    assert built.answer("llamad.engine.one") == 84

    with (engine / "one.pxd").open("a") as file:
        file.write("cdef int thrice(int a) noexcept nogil\n")
    with (engine / "one.pyx").open("a") as file:
        file.write("cdef int thrice(int a) noexcept nogil:\n    return 3 * a\n")
    changed = built.built()
    assert {"translate llamad.engine.one.c", "translate llamad.engine.two.c"} <= set(changed)
    assert not [step for step in changed if "other" in step or "shim" in step]

    (engine / "beside.cpp").write_text('#include "other.h"\nint other() { return 8; }\n')
    assert built.built() == ["compile beside.cpp", "link other"]
    assert built.answer("llamad.engine.other") == 8

    (built.root / "ext" / "llama" / "shim.cpp").touch()
    assert built.built() == ["compile shim.cpp", "link _llama"]


def test_a_comment_in_a_declaration_file_compiles_nothing(built: TinyCheckout) -> None:
    """The translation comes out as it was."""
    with (built.root / "ext" / "llamad" / "engine" / "one.pxd").open("a") as file:
        file.write("# a comment\n")

    assert built.built() == ["translate llamad.engine.one.c", "translate llamad.engine.two.c"]


def test_other_flags_compile_again_but_do_not_translate(built: TinyCheckout) -> None:
    changed = built.built(CPPFLAGS="-DX=1")

    assert "compile beside.cpp" in changed
    assert not [step for step in changed if step.startswith("translate")]


def test_a_module_without_its_source_goes(built: TinyCheckout) -> None:
    (built.root / "ext" / "llamad" / "engine" / "two.pyx").unlink()
    built.built()

    assert [path.name.split(".")[0] for path in (built.root / "llamad" / "engine").glob("t*.so")] == []


def test_a_new_declaration_file_is_noticed(built: TinyCheckout) -> None:
    (built.root / "ext" / "llamad" / "engine" / "two.pxd").write_text("cdef int x\n")

    assert "translate llamad.engine.two.c" in built.built()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ext/llamad/engine/two.pyx", "def answer(:\n", "two.pyx:1"),
        ("ext/llamad/engine/beside.cpp", "#error it cannot be\n", "it cannot be"),
    ],
)
def test_a_module_that_fails_ends_the_build_with_its_error(
    tiny: TinyCheckout, name: str, text: str, said: str
) -> None:
    (tiny.root / name).write_text(text)
    done = tiny.build()

    *shown, last = done.stderr.splitlines()
    assert done.returncode == 1
    assert any(said in line for line in shown)
    assert re.fullmatch(r"llamad: compiling the modules failed .*build\.log\)", last)
    assert "Traceback" not in done.stderr


def test_llama_cpp_that_fails_ends_the_modules(tiny: TinyCheckout) -> None:
    (tiny.tree / "src" / "llama.cpp").write_text("#error llama.cpp cannot be\n")
    done = tiny.build()

    assert done.returncode == 1
    assert "llama.cpp cannot be" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("llamad: building llama.cpp libraries failed")
    assert not [path for path in (tiny.cache / "llama.cpp").glob("*") if cache.is_finished(path)]

    (tiny.tree / "src" / "llama.cpp").write_text('extern "C" int llama_answer() { return 1; }\n')
    tiny.built()
    assert tiny.answer("llamad._llama") == 1


def test_a_setting_that_the_build_does_not_know_is_refused(tiny: TinyCheckout) -> None:
    (tiny.root / "ext" / "llamad" / "engine" / "two.pyx").write_text("# distutils: libraries = m\n")

    assert "the build knows no libraries" in tiny.build().stderr


def test_a_source_that_is_not_there_is_named(tiny: TinyCheckout) -> None:
    (tiny.root / "ext" / "llamad" / "engine" / "two.pyx").write_text("# distutils: sources = ext/no/*.cpp\n")

    assert "there is no ext/no/*.cpp" in tiny.build().stderr


def run_translate(folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(CHECKOUT / graph.TRANSLATE), "a.c", "a.pyx", "-3"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_cython_that_has_started_gives_the_same_as_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "a.pyx").write_text("def f(int a):\n    return a + 1\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, translate.__file__, "--serve", str(listener.fileno())],
            pass_fds=(listener.fileno(),),
        )
    env = {translate.SOCKET: str(tmp_path / "socket")}
    try:
        assert run_translate(tmp_path, env).returncode == 0
        served = (tmp_path / "a.c").read_bytes()
        written = (tmp_path / "a.c").stat().st_mtime_ns
        assert "a.pyx" in (tmp_path / "a.c.dep").read_text()

        (tmp_path / "a.pyx").write_text("def f(\n")
        failed = run_translate(tmp_path, env)
        assert failed.returncode == 1
        assert "a.pyx:" in failed.stderr
        (tmp_path / "a.pyx").write_text("def f(int a):\n    return a + 1\n")
    finally:
        server.terminate()
        server.wait()

    assert run_translate(tmp_path, env).returncode == 0  # nobody listens any more
    assert (tmp_path / "a.c").read_bytes() == served
    assert (tmp_path / "a.c").stat().st_mtime_ns == written
