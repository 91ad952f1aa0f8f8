"""Lets the kernel read the files of a model that waits for memory, so that its load is faster when its turn comes.

Only as much is read as fits into memory that nobody uses: the pages of other models' files must not be dropped for it.
The calls run in a thread, because they may block.
"""

from __future__ import annotations

import asyncio
import logging
import os

from llamad.models.hub.names import shard_names

log = logging.getLogger("llamad.models")

SPARE_BYTES = 1 << 30  # unused memory that stays unused


def unused_bytes() -> int:
    """Return the memory that holds nothing, not even pages of files. 0: unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            values = dict(line.split(":", 1) for line in file)
        return int(values["MemFree"].split()[0]) << 10
    except (OSError, ValueError, KeyError):
        return 0


def _read(path: str) -> int:
    """Ask for the pages of a model's files; return how many bytes were asked for."""
    left = unused_bytes() - SPARE_BYTES
    n_asked = 0
    for name in shard_names(path):
        if left <= 0:
            break
        try:
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            break  # the load reports it
        try:
            n = min(left, os.fstat(fd).st_size)
            os.posix_fadvise(fd, 0, n, os.POSIX_FADV_WILLNEED)
        except OSError:
            break
        finally:
            os.close(fd)
        left -= n
        n_asked += n
    return n_asked


async def read_ahead(path: str) -> None:
    """Read ahead as much of a model as there is unused memory."""
    n = await asyncio.get_running_loop().run_in_executor(None, _read, path)
    log.debug("reading %d MiB of %s ahead", n >> 20, path)
