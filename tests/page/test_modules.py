"""The page's pure modules, tested in node: Markdown, trees of messages, requests, streams."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = Path(__file__).parent / "node"
NEEDED = (20, 19)  # takes .js files as modules


def version() -> tuple[int, ...]:
    if shutil.which("node") is None:
        return (0, 0)
    told = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return tuple(int(part) for part in re.findall(r"\d+", told)[:2])


@pytest.mark.skipif(version() < NEEDED, reason="there is no node of version 20.19 or newer here")
@pytest.mark.parametrize("path", sorted(NODE.glob("*.test.mjs")), ids=lambda path: path.name.split(".")[0])
def test_module(path):
    command = ["node", "--test", "--test-reporter=tap", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, "\n".join(
        line for line in result.stdout.splitlines() if not line.lstrip().startswith(("ok", "---", "duration"))
    )
