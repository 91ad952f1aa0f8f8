"""A Debian that systemd boots in a container of its own: with its own processes, network and users, and a file system
whose changes are forgotten. Needs root, debootstrap and systemd-nspawn; the tree is made once and kept in the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

WAIT_SECONDS = 120
# The Debian with the Python that the wheel is built for.
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,libgomp1,libstdc++6,procps,curl,openssl"
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


def why_not() -> str:
    """Why no machine can be booted here; empty if one can."""
    if os.geteuid() != 0:
        return "booting a container needs root"
    missing = [name for name in ("debootstrap", "systemd-nspawn", "nsenter") if not shutil.which(name)]
    if missing:
        return f"there is no {' and no '.join(missing)}"
    if sys.version_info[:2] not in SUITES:
        return "no Debian has this version of Python"
    return ""


def tree(packages: str = PACKAGES, suffix: str = "") -> Path:
    """A root file system with these packages, which takes a minute to make and needs a mirror of Debian."""
    suite = SUITES[sys.version_info[:2]]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "llamad"
    folder = Path(os.environ.get("LLAMAD_CACHE", cache)) / "boot" / (suite + suffix)
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={packages}", suite, str(partial)],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        partial.rename(folder)
    return folder


class Machine:
    """A context manager; `folders` are seen inside, read-only, by the names that they are given."""

    def __init__(self, log: Path, folders: dict[str, Path]) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [
                "systemd-nspawn",
                f"--directory={tree()}",
                "--volatile=overlay",
                "--boot",
                "--register=no",
                "--keep-unit",
                "--private-network",
                f"--machine=llamad-{os.getpid()}",
                *(f"--bind-ro={folder}:{name}" for name, folder in folders.items()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
            start_new_session=True,
        )

    def __enter__(self) -> Machine:
        self.until(self._is_booted)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()  # an orderly shutdown
        try:
            self._process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _is_booted(self) -> bool:
        assert self._process.poll() is None, f"the machine did not boot: {self._log.name}"
        if not self._init():
            return False
        return self.run("systemctl", "is-system-running", check=False).stdout.strip() in (
            "running",
            "degraded",
        )

    def _init(self) -> str:
        """The machine's first process."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return children[0] if children else ""

    def _inside(self, command: tuple[str, ...]) -> list[str]:
        variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return ["nsenter", f"--target={self._init()}", "--all", "env", "-i", *variables, *command]

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._inside(command), capture_output=True, text=True, timeout=600, check=False, cwd="/"
        )
        assert done.returncode == 0 or not check, (command, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen(
            self._inside(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )

    def ask(self, *command: str) -> str:
        return self.run(*command).stdout.strip()

    def write(self, path: str, text: str) -> None:
        subprocess.run(self._inside(("tee", path)), input=text, text=True, check=True, capture_output=True)

    def shown(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.ask("systemctl", "show", "--value", f"--property={name}", unit)

    @staticmethod
    def until(is_so) -> None:
        t_end = time.monotonic() + WAIT_SECONDS
        while not is_so():
            assert time.monotonic() < t_end, "it did not happen"
            time.sleep(0.1)
