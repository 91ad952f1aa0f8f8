"""Owns `python -m llamad.flags`: prints the README's table of flags, or writes it into a file.

Runs when a contributor calls it. Must not be imported by the daemon.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from llamad.flags.help import markdown_table

BEGIN = "<!-- flags -->"
END = "<!-- /flags -->"
USAGE = "usage: python -m llamad.flags [--write FILE]"


def rewrite(text: str) -> str:
    """The text with a fresh table between its markers; ValueError when it has not both, once, in order."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"needs one line {BEGIN} and below it one line {END}")
    return f"{before}{BEGIN}\n\n{markdown_table()}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        sys.stdout.write(markdown_table())
        return 0
    if len(arguments) != 2 or arguments[0] != "--write":
        print(USAGE, file=sys.stderr)
        return 2
    path = Path(arguments[1])
    try:
        path.write_text(rewrite(path.read_text(encoding="utf-8")), encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
