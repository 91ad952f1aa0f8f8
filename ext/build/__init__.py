"""Builds a checkout or a wheel: environment, llama.cpp's libraries and the compiled modules at once, behind one
progress line. `make build` runs `python ext/build`, setup.py calls `pipeline`. Standard library only; knows nothing of
the `llamad` package. `recipe` in vendor/llama.cpp makes the libraries.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
