"""Limits how many compilers run at once. Several builds share one limit through GNU make's jobserver, which Ninja
supports from 1.13 on: a fifo that holds a token for each job that may still begin.
"""

import contextlib
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import children, toolchain

JOBSERVER_SINCE = (1, 13)


class Jobs:
    """A limit for a single build."""

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def arguments(self) -> list[str]:
        """Return the arguments for Ninja."""
        return ["-j", str(self.n_jobs)]

    def environment(self) -> dict[str, str]:
        return {}


class SharedJobs(Jobs):
    """A limit for `n_builds` that run at once. Each may always run one job, which it gives up with `retire`."""

    def __init__(self, n_jobs: int, n_builds: int, folder: Path) -> None:
        super().__init__(n_jobs)
        self._path = folder / "jobs"
        os.mkfifo(self._path)
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        self._put(n_jobs - n_builds)

    def arguments(self) -> list[str]:
        return []

    def environment(self) -> dict[str, str]:
        return {"MAKEFLAGS": f"-j{self.n_jobs} --jobserver-auth=fifo:{self._path}"}

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let other builds use this build's job during the block, which only waits."""
        self._put(1)
        try:
            yield
        finally:
            self._take()

    def retire(self) -> None:
        """End one build, so that the others can use its job."""
        self._put(1)

    def close(self) -> None:
        os.close(self._fd)

    def _put(self, n_tokens: int) -> None:
        os.write(self._fd, b"+" * n_tokens)

    def _take(self) -> None:
        while True:
            children.check()
            select.select([self._fd], [], [], 0.5)
            try:
                os.read(self._fd, 1)
                return
            except BlockingIOError:  # there is none yet, or another build was faster
                continue


def can_share(n_jobs: int, n_builds: int) -> bool:
    """Return whether there are enough jobs for each build, and Ninja supports the jobserver."""
    return n_jobs >= n_builds and _ninja_version() >= JOBSERVER_SINCE


def _ninja_version() -> tuple[int, ...]:
    command = [toolchain.find_tool("ninja"), "--version"]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in text.strip().split(".")[:2] if part.isdecimal())


@contextlib.contextmanager
def shared(n_jobs: int, n_builds: int) -> Iterator[SharedJobs]:
    with tempfile.TemporaryDirectory(prefix="llamad-") as folder:
        jobs = SharedJobs(n_jobs, n_builds, Path(folder))
        try:
            yield jobs
        finally:
            jobs.close()
