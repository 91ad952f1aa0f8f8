"""A program that writes entries to a cache on disk until it is killed, and prints the number of each complete one:
`python -m support.states.disk_cache_writer FOLDER FIRST`."""

from __future__ import annotations

import sys
from pathlib import Path

from support.states.disk_cache import Disk
from support.states.fake_cache_memory import tokens_of


def entry_tokens(n: int) -> list[int]:
    """The tokens of the entry with this number."""
    return tokens_of(n, 700 + n % 5)


def main() -> None:
    disk, n = Disk(Path(sys.argv[1])), int(sys.argv[2])
    print("ready", flush=True)
    while True:
        n += 1
        id = disk.memory.put(entry_tokens(n))
        disk.step()
        disk.memory.drop(id)
        print(n, flush=True)


if __name__ == "__main__":
    main()
