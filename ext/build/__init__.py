"""Builds a checkout or a wheel: the environment, llama.cpp's libraries and the compiled modules at the same time, with
one progress line. `make build` runs `python ext/build`, and setup.py calls `pipeline`. Uses only the standard library;
must not know the `llamad` package. `recipe` in vendor/llama.cpp makes the libraries.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
