"""A shell in a Debian that holds nothing but its package manager, as on a new machine. It has its own files and
processes, and this machine's network. Needs root and debootstrap.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from support.booted import machine

HEALTH = "http://127.0.0.1:8080/health"
WAIT_SECONDS = 3 * 3600.0  # a first build on a busy machine
# What a package index or a cache of this place needs. Folders that they name must be in LLAMAD_TEST_FOLDERS.
HANDED_ON = re.compile(
    r"(PIP|UV)_\w+|(SSL|REQUESTS_CA|CURL_CA)_\w+|\w+_proxy|LLAMAD_(CACHE|JOBS|WHEELS|LLAMA_CPP)"
)
ENVIRONMENT = {
    "PATH": "/root/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
}
MARK = "llamad-test-status"


def why_not() -> str:
    """Why there can be no such shell here; empty if there can."""
    if os.geteuid() != 0:
        return "a root file system of its own needs root"
    missing = [name for name in ("debootstrap", "unshare", "chroot") if not shutil.which(name)]
    if missing:
        return f"there is no {' and no '.join(missing)}"
    if sys.version_info[:2] not in machine.SUITES:
        return "no Debian has this version of Python"
    return "" if not _answers() else "something listens on port 8080"


def _answers() -> bool:
    try:
        with urllib.request.urlopen(HEALTH, timeout=5):
            return True
    except urllib.error.HTTPError:
        return False  # loading
    except OSError:
        return False


class Shell:
    """A context manager; `folders` are seen inside by the names that they are given."""

    def __init__(self, folder: Path, folders: dict[str, Path]) -> None:
        self._root = folder / "root"
        empty = machine.tree("ca-certificates,sudo", "-empty")
        subprocess.run(["cp", "-a", empty, self._root], check=True)
        (self._root / "etc/apt/apt.conf.d/yes").write_text('APT::Get::Assume-Yes "true";\n')
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", self._root / "etc" / name)
        shared = {name: Path(name) for name in os.environ.get("LLAMAD_TEST_FOLDERS", "").split(":") if name}
        mounts = ["mount -t proc proc proc", "mount --rbind /dev dev"]
        for inside, path in {**shared, **folders}.items():
            target = self._root / inside.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir(exist_ok=True) if path.is_dir() else target.touch()
            mounts.append(f"mount --bind '{path}' '.{inside}'")
        script = f"cd '{self._root}' && {' && '.join(mounts)} && exec chroot . sh"
        handed_on = {name: value for name, value in os.environ.items() if HANDED_ON.fullmatch(name)}
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", script],
            env={**ENVIRONMENT, **handed_on},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Shell:
        self.run("cd /root")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def run(self, command: str) -> str:
        """Run a command in the one shell, so that `cd` stays; return what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{{ {command}\n}} </dev/null\necho; echo {MARK} $?\n")
        self._process.stdin.flush()
        lines = []
        for line in self._process.stdout:
            if line.startswith(MARK):
                break
            lines.append(line)
        else:
            line = f"{MARK} (the shell has ended)"
        output = "".join(lines)
        assert line.split()[1] == "0", f"{command}:\n{output[-4000:]}"
        return output

    def serve(self, command: str) -> None:
        """Start a server, and return when it is ready."""
        assert not _answers(), "something listens on port 8080"
        self.run(f"{command} >/root/server.log 2>&1 & echo $! >/root/server.pid")
        t_end = time.monotonic() + WAIT_SECONDS
        while not _answers():
            assert self.run("kill -0 $(cat /root/server.pid) && echo alive || true").startswith("alive"), (
                self.log()
            )
            assert time.monotonic() < t_end, self.log()
            time.sleep(0.1)

    def log(self) -> str:
        return (self._root / "root/server.log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """End the server as Ctrl+C does, or at the latest when the shell ends."""
        self.run("kill $(cat /root/server.pid); wait || true")
