"""The walk "Add a flag" in CONTRIBUTING.md: its example, as an attribute of a group, works at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HEAD = "class Server:\n"

READ = """
import json, sys
from llamad.flags.help import help_text, markdown_page, props
from llamad.flags.parse import FlagError, parse

def said(*arguments, **variables):
    try:
        return parse(["-m", "x.gguf", *arguments], variables).settings.daemon.motto
    except FlagError as error:
        return str(error)

json.dump({
    "default": said(),
    "flag": said("--motto", "Hello"),
    "variable": said(LLAMA_ARG_MOTTO="Hello"),
    "empty": said("--motto="),
    "missing": said("--motto"),
    "props": props(parse(["--motto", "Hello"], {}).settings)["motto"],
    "help": help_text(),
    "page": markdown_page(),
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the flags says after the example was added to the server's."""
    walk = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Add a flag\n")[2]
    example = re.search(r"```python\n(.*?)```", walk, re.DOTALL)
    assert example is not None
    copy = tmp_path_factory.mktemp("copy")
    (copy / "llamad").mkdir()
    (copy / "llamad" / "__init__.py").touch()
    for name in ("base", "flags", "options"):
        shutil.copytree(ROOT / "llamad" / name, copy / "llamad" / name)
    group = copy / "llamad" / "flags" / "groups" / "server.py"
    before, head, after = group.read_text(encoding="utf-8").partition(HEAD)
    docstring, end, rest = after.partition('"""\n\n')
    group.write_text(f"{before}{head}{docstring}{end}{example[1]}{rest}", encoding="utf-8")
    environ = os.environ | {"PYTHONPATH": str(copy)}
    made = subprocess.run(
        [sys.executable, "-c", READ], env=environ, cwd=copy, check=True, capture_output=True
    )
    said: dict[str, Any] = json.loads(made.stdout)
    return said


def test_it_sets_its_field(seen: dict[str, Any]) -> None:
    assert seen["default"] is None
    assert seen["flag"] == seen["variable"] == seen["props"] == "Hello"


def test_its_errors_name_it(seen: dict[str, Any]) -> None:
    assert seen["empty"] == "--motto: the value is empty"
    assert seen["missing"] == "--motto needs a value: --motto TEXT"


def test_it_is_documented(seen: dict[str, Any]) -> None:
    assert (
        "  --motto TEXT\n      Line at the top of the page; default: none. [LLAMA_ARG_MOTTO]\n"
        in seen["help"]
    )
    assert (
        "| `--motto` TEXT | `LLAMA_ARG_MOTTO` |  | Line at the top of the page; default: none. |"
        in seen["page"]
    )
