"""What `make fuzz` runs: every target in fuzz/, whatever its name."""

import tomllib
from fnmatch import fnmatch

import pytest
from support.imports import ROOT

PYTEST = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]


@pytest.mark.parametrize("path", sorted((ROOT / "fuzz").glob("*.py")), ids=lambda path: path.name)
def test_every_target_is_collected(path):
    """tokenize.py was not: pytest looks into a folder for names that it was told."""
    assert any(fnmatch(path.name, pattern) for pattern in PYTEST["python_files"])
