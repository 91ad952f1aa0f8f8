"""The program `python -m llamad.options`, which prints docs/options.md."""

from __future__ import annotations

import sys

from llamad.options.page import page

if __name__ == "__main__":
    sys.stdout.write(page())
