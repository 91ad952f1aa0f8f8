"""docs/families.md is what the formats say of themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llamad.chat.parsing.families import main, markdown_page
from llamad.chat.parsing.formats import FORMATS

PAGE = Path(__file__).parents[3] / "docs" / "families.md"


def test_the_page_is_up_to_date() -> None:
    own = "run: python -m llamad.chat.parsing.families --write docs/families.md"
    assert PAGE.read_text(encoding="utf-8") == markdown_page(), own


def test_each_format_has_a_row() -> None:
    rows = [line for line in markdown_page().splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(FORMATS)
    for row, format in zip(rows, FORMATS, strict=True):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert len(cells) == 5
        assert all(cells)
        assert f"`{format.name}`" in cells[1]


def test_main_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == markdown_page()
    page = tmp_path / "page.md"
    assert main(["--write", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == markdown_page()
    assert main(["--what"]) == 2
