"""A place for each test of the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.many_models.catalogues import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
