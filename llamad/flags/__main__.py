"""The program `python -m llamad.flags`, which prints docs/flags.md or writes it to a file.

Run by contributors. Must not be imported by the daemon.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from llamad.flags.help import markdown_page

USAGE = "usage: python -m llamad.flags [--write FILE]"


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        sys.stdout.write(markdown_page())
        return 0
    if len(arguments) != 2 or arguments[0] != "--write":
        print(USAGE, file=sys.stderr)
        return 2
    path = Path(arguments[1])
    try:
        path.write_text(markdown_page(), encoding="utf-8")
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
