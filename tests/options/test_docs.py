"""docs/options.md is what the table of options says, lists every option that a request is asked for, and no flag that
does not exist."""

import re
from pathlib import Path

from llamad.flags.parse import parse
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Ready
from llamad.options.page import page
from llamad.options.table import FIELDS

PAGE = (Path(__file__).parents[2] / "docs" / "options.md").read_text(encoding="utf-8")
ROWS = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `")]
LISTED = {name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[1])}


def test_the_page_is_made_from_the_table():
    assert page() == PAGE, "run: python -m llamad.options > docs/options.md"


def test_every_option_has_its_row_and_every_row_its_option():
    # The prompt is the endpoint's own matter.
    assert {*FIELDS, "prompt"} == LISTED


def test_every_option_is_listed_once():
    names = [name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[1])]
    assert sorted(names) == sorted(set(names))


def test_the_flags_of_the_page_work():
    flags = [flag for row in ROWS if len(row) > 5 for flag in re.findall(r"`(-[\w-]+)`", row[4])]
    assert len(flags) > 30
    for flag in flags:
        assert isinstance(TABLE.by_name[flag][0].status, Ready), flag


def test_the_defaults_of_the_page_are_the_servers():
    defaults = parse(["-m", "x.gguf"], {}).settings.model.options
    n_checked = 0
    for row in ROWS:
        if len(row) < 6 or not re.fullmatch(r" (-?[\d.]+|true|false) ", row[3]):
            continue
        name = re.findall(r"`([\w.]+)`", row[1])[0]
        value = {"true": True, "false": False}.get(row[3].strip())
        assert getattr(defaults, FIELDS[name].attribute) == (float(row[3]) if value is None else value), name
        n_checked += 1
    assert n_checked > 30
