"""The linters: all of them, also before a commit, and not again over files that were found clean."""

import re
from pathlib import Path

import pytest

from tiny_llama_cpp import CHECKOUT, write_script
from tools import lint


@pytest.fixture
def linter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lint.Linter:
    """One that complains about the word `bad`, and says each time that it runs."""
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "BIN", tmp_path / "bin")
    monkeypatch.setattr(lint, "CLEAN", tmp_path / "clean")
    monkeypatch.setattr(lint, "CONFIGURATION", ("configuration",))
    (tmp_path / "configuration").write_text("strict\n")
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "a.c").write_text("good\n")
    write_script(tmp_path / "bin" / "tool", 'echo run >> runs; ! grep -H bad "$@"\n')
    return lint.Linter("tool", ("tool",), files=("ext/**/*.c",))


def n_runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def test_what_was_found_clean_is_not_looked_at_again(linter: lint.Linter, tmp_path: Path) -> None:
    assert [lint.run(linter, fix=False)[1] for _ in range(3)] == ["", "", ""]
    assert n_runs(tmp_path) == 1


def test_a_complaint_comes_back_until_it_is_heard(linter: lint.Linter, tmp_path: Path) -> None:
    lint.run(linter, fix=False)
    (tmp_path / "ext" / "a.c").write_text("bad\n")

    assert [lint.run(linter, fix=False)[1] for _ in range(2)] == ["ext/a.c:bad", "ext/a.c:bad"]
    assert n_runs(tmp_path) == 3


@pytest.mark.parametrize("changed", ["configuration", "ext/b.c"])
def test_another_configuration_or_file_is_looked_at(
    linter: lint.Linter, tmp_path: Path, changed: str
) -> None:
    lint.run(linter, fix=False)
    (tmp_path / changed).write_text("something else\n")
    lint.run(linter, fix=False)

    assert n_runs(tmp_path) == 2


def test_a_commit_is_checked_by_all_of_them() -> None:
    text = (CHECKOUT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    named = [name for line in re.findall(r"tools/lint\.py (.*)", text) for name in line.split()]

    assert sorted(named) == sorted(linter.name for linter in lint.LINTERS)


def test_an_unknown_linter_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        lint.main(["no-such-linter"])
    assert "there is no linter no-such-linter" in capsys.readouterr().err


def test_every_linter_finds_files() -> None:
    assert all(list(lint._files(linter)) for linter in lint.LINTERS if linter.files)
    assert "ext/llama/shim.cpp" in lint._files(
        next(one for one in lint.LINTERS if one.name == "clang-format")
    )
