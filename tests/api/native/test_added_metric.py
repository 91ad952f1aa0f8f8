"""The walk "Add a metric" in CONTRIBUTING.md: its example, as a row of the table, is served at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.fake_daemon import Faked

from llamad.api.native import metrics_table, prometheus
from llamad.engine.testing.fake import Fake

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"


def test_the_example_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = GUIDE.read_text(encoding="utf-8").partition("\n## Add a metric\n")[2]
    example = re.search(r"```python\n(.*?)```", walk, re.DOTALL)
    assert example is not None
    rows = eval(f"({example[1]})", vars(metrics_table))
    engine = metrics_table.ENGINE
    longer = metrics_table.ModelSection(engine.is_there, *engine.metrics, *rows)
    sections = [longer if one is engine else one for one in metrics_table.SECTIONS]
    monkeypatch.setattr(prometheus, "SECTIONS", sections)
    with Faked(Fake(), "-np", "3", "--metrics") as server:
        lines = server.client.get("/metrics").body.decode()
    assert "# HELP acme:slots Slots of the engine.\n# TYPE acme:slots gauge\nacme:slots 3\n" in lines
