"""Owns the tests of what people see: --help, docs/flags.md, and the settings in /props."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from llamad.flags.__main__ import main
from llamad.flags.help import help_text, markdown_page, props, spellings
from llamad.flags.parse import parse
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Flag, Inert, Later

PAGE = Path(__file__).parents[2] / "docs" / "flags.md"
READY = [flag for flags in TABLE.groups().values() for flag in flags]


@pytest.mark.parametrize("flag", READY, ids=lambda flag: flag.title)
def test_help_has_each_flag_once(flag: Flag) -> None:
    assert help_text(100).splitlines().count(f"  {spellings(flag)}") == 1


def test_help_shows_every_spelling_that_works() -> None:
    heads = re.findall(r"^  (-.*)$", help_text(100).split("\nKnown,")[0], re.MULTILINE)
    shown = [name for head in heads for name in re.findall(r"(?<![\w-])--?[A-Za-z][\w.-]*", head)]
    assert sorted(shown) == sorted(name for flag in READY for name in flag.names + flag.off)


def test_help_names_the_others() -> None:
    text = help_text(100)
    later, inert = text.split("\nKnown, but not available in this version:\n")[1].split(
        "\nAccepted without effect:\n"
    )
    for status, part in ((Later, later), (Inert, inert)):
        assert part.replace(",", " ").split() == [
            flag.title for flag in TABLE.flags if isinstance(flag.status, status)
        ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_keeps_to_the_width(width: int) -> None:
    heads = {f"  {spellings(flag)}" for flag in READY}
    long = [line for line in help_text(width).splitlines() if len(line) > width and line not in heads]
    assert all(" " not in line.strip() for line in long)


def test_help_tells_defaults_ranges_and_variables() -> None:
    text = " ".join(help_text(100).split())
    assert "0: any free port. (default 8080; 0 to 65535) [LLAMA_ARG_PORT]" in text
    assert r'(default \n : " *)' in text
    assert "(default layer; one of none, layer, row, tensor)" in text


def test_the_page_has_a_row_of_four_cells_for_each_flag() -> None:
    rows = [line for line in markdown_page().splitlines() if line.startswith("| `-")]
    assert len(rows) == len(READY)
    for flag, line in zip(READY, rows, strict=True):
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        assert len(cells) == 4
        assert re.findall(r"`([^`]+)`", cells[0]) == [*flag.names, *flag.off]


def test_the_page_names_the_others_once() -> None:
    later, inert = (
        markdown_page().split("\n## Not available yet\n")[1].split("\n## Accepted without effect\n")
    )
    for status, part in ((Later, later), (Inert, inert)):
        names = [flag.title for flag in TABLE.flags if isinstance(flag.status, status)]
        assert sorted(re.findall(r"`([^`]+)`", part)) == sorted(names)


def test_main_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == markdown_page()
    page = tmp_path / "page.md"
    assert main(["--write", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == markdown_page()
    assert main(["--write", str(tmp_path / "missing" / "page.md")]) == 1
    assert "page.md: No such file or directory" in capsys.readouterr().err
    assert main(["--what"]) == 2


def test_docs_flags_md_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == markdown_page(), "run: python -m llamad.flags --write docs/flags.md"


def test_props_publishes_every_setting_but_the_secrets() -> None:
    line = "-m m.gguf --api-key hunter2 --api-key-file hunter3 -l 5-inf -l 6+1 --override-kv a=bool:true"
    published = props(parse(line.split(), {}).settings)
    assert set(published) == {flag.dest for flag in TABLE.settings if not flag.secret}
    text = json.dumps(published, allow_nan=False)
    assert "hunter" not in text
    assert json.loads(text) == published
    assert published["logit_bias"] == [[5, False], [6, 1.0]]
    assert published["override_kv"] == [{"key": "a", "type": "bool", "value": True}]
    assert published["model"] == "m.gguf"
