"""The file of results: it has a line of JSON for each point and program, which is written when it is measured.

A command that ran out of time continues with it.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from bench.programs import LLAMAD
from bench.stats import Measures

# Flags that do not change a single round of a point.
NO_SETTINGS = """model streams rounds programs server batched_bench llamad_args server_args measure results again json
minutes timeout quick""".split()


def key_of(flags: argparse.Namespace, point: str, program: str) -> dict[str, Any]:
    model = Path(flags.model)
    settings = {name: value for name, value in vars(flags).items() if name not in NO_SETTINGS}
    return {
        **settings,
        "point": point,
        "program": program,
        "model": f"{model.name}, {model.stat().st_size} bytes",
        "own_args": flags.llamad_args if program == LLAMAD else flags.server_args,
        "ids": [flags.ids.start, flags.ids.stop],
    }


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Results:
    """Reads and writes the file. If a key has several lines, the last one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rounds: dict[str, list[Measures]] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    one = json.loads(line)
                except ValueError:
                    continue  # the line was cut off while it was written
                self._rounds[json.dumps(one["key"], sort_keys=True)] = [
                    {name: math.nan if value is None else value for name, value in measures.items()}
                    for measures in one["rounds"]
                ]

    def get(self, key: dict[str, Any]) -> list[Measures] | None:
        return self._rounds.get(json.dumps(key, sort_keys=True))

    def add(self, key: dict[str, Any], rounds: list[Measures]) -> None:
        self._rounds[json.dumps(key, sort_keys=True)] = rounds
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, "rounds": without_nan(rounds)}, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as out:
            out.write(line + "\n")
