"""Exit statuses tell a unit what to do. Those of flags and addresses are in tests/daemon."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from support.live_daemon import Live, engines
from support.systemd.recorder import Recorder

from llamad.systemd import exit_codes

ROOT = Path(__file__).parents[2]


def test_the_table_for_operators_has_each_of_them() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.split("\n## Exit statuses\n")[1].split("\n## ")[0]
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    numbers = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert listed == numbers
    assert max(numbers) < 126, "from there on they are a shell's, signals' and systemd's own"


@pytest.mark.parametrize("is_told", [True, False])
def test_an_engine_that_is_given_up_ends_a_daemon_that_is_supervised(
    tiny: str, tmp_path: Path, is_told: bool
) -> None:
    model = shutil.copy(tiny, tmp_path / "model.gguf")
    with Recorder() as told:
        flags, env = ((), told.env) if is_told else (("--exit-on-load-failure",), {})
        with Live("-c", "512", *flags, model=model, env=env) as server:
            Path(model).unlink()
            Path(model).write_bytes(b"GGUF" + b"\xff" * 500)
            os.kill(engines(server.process.pid)[0], signal.SIGKILL)
            assert server.wait_exit() == exit_codes.ENGINE_GIVEN_UP
        assert any(f"exiting with status {exit_codes.ENGINE_GIVEN_UP}" in line for line in server.lines)
        if is_told:
            assert told.all("STOPPING") == ["1"]
            assert told.all("STATUS")[-1].startswith("failed: ")
