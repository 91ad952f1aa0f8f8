"""The real program as a child process: started with flags, found by the address it logs, ended with a signal."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from support.http_client import Client

WAIT_SECONDS = 60
TESTS = Path(__file__).resolve().parent.parent
# Flags that say what is served, in place of the default model.
SOURCES = frozenset({"-hf", "-mu", "--models-dir", "--models-preset"})
VARIABLES = frozenset({"LLAMA_ARG_MODELS_DIR", "LLAMA_ARG_MODELS_PRESET"})
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d |llamad: ").match


def model_path() -> str:
    """The default model, fetched by `make test`."""
    named = os.environ.get("LLAMAD_TEST_MODEL")
    if not named:
        root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llamad"
        named = str(Path(os.environ.get("LLAMAD_CACHE", root)) / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert os.path.exists(named), "no model: run the tests with `make test`, which fetches it"
    return named


def until(condition: Callable[[], Any], what: str = "it did not come") -> Any:
    """What the condition is in the end, if that is true."""
    t_end = time.monotonic() + WAIT_SECONDS
    while not (result := condition()):
        assert time.monotonic() < t_end, what
        time.sleep(0.01)
    return result


def engines(front: int) -> list[int]:
    """The front's engine processes."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_child = f"PPid:\t{front}\n" in Path(f"/proc/{name}/status").read_text()
            if is_child and b"llamad.engine" in Path(f"/proc/{name}/cmdline").read_bytes():
                pids.append(int(name))
        except OSError:
            pass
    return pids


class Live:
    """One thread each for llama.cpp and sampling, as on a busy two-core machine. `before`: a program that becomes the
    daemon, with the descriptors that it needs. `trust`: with TLS, whose certificates. `watched`: with
    a watchdog of its event loop, whose reports pytest shows beside a test that fails."""

    def __init__(
        self,
        *flags: str,
        model: str | None = None,
        ready: bool = True,
        env: dict[str, str] | None = None,
        before: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
        trust: Path | None = None,
        watched: bool = False,
    ):
        has_own = not SOURCES.isdisjoint(flags) or not VARIABLES.isdisjoint(env or {})
        command = [
            *before,
            sys.executable,
            "-m",
            "support.loops.watched_daemon" if watched else "llamad",
            *([] if has_own else ["-m", model or model_path()]),
            "-t",
            "1",
            "--port",
            "0",
            "--log-format",
            "text",
            *flags,
        ]
        self._watched = watched
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **({"PYTHONPATH": str(TESTS)} if watched else {}), **(env or {})},
            pass_fds=pass_fds,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        address = self.wait_line(r"listening on https?://([^:]+):(\d+)")
        context = None if trust is None else ssl.create_default_context(cafile=trust)
        self.client = Client(address[1], int(address[2]), context=context)
        if ready:
            self.wait_ready()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if self._watched and not LOG_LINE(line):
                print(line, end="", file=sys.stderr)

    def wait_line(self, pattern: str) -> re.Match[str]:
        """The first log line that matches, past or to come."""
        t_end = time.monotonic() + WAIT_SECONDS
        n_seen = 0
        while time.monotonic() < t_end:
            while n_seen < len(self.lines):
                match = re.search(pattern, self.lines[n_seen])
                n_seen += 1
                if match:
                    return match
            if self.process.poll() is not None and not self._reader.is_alive() and n_seen == len(self.lines):
                break
            time.sleep(0.005)
        raise AssertionError(f"no line matches {pattern!r}:\n" + "\n".join(self.lines))

    def wait_ready(self) -> None:
        t_end = time.monotonic() + WAIT_SECONDS
        while self.client.get("/health").status != 200:
            assert time.monotonic() < t_end, "the model did not load:\n" + "\n".join(self.lines)
            time.sleep(0.02)

    def wait_idle(self) -> None:
        """Until every slot is idle and nobody waits."""
        t_end = time.monotonic() + WAIT_SECONDS
        while True:
            health = self.client.get("/health").json
            if health.get("slots_processing") == 0:
                return
            assert time.monotonic() < t_end, health
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_exit(self) -> int:
        return self.process.wait(WAIT_SECONDS)

    def n_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert resident is not None
        return int(resident[1]) * 1024

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(5)
