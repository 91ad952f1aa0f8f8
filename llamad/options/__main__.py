"""The program `python -m llamad.options`, which prints docs/options.md."""

import sys

from llamad.options.page import page

if __name__ == "__main__":
    sys.stdout.write(page())
