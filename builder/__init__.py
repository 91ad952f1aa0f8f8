"""Builds a checkout or a wheel: environment, llama.cpp's libraries and the compiled modules at once, behind one
progress line. `make build` runs `python -m builder`, setup.py calls `pipeline`. Standard library only; knows nothing
of the `llamad` package. vendor/llama.cpp/recipe makes the libraries.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "vendor" / "llama.cpp"

if str(RECIPE) not in sys.path:
    sys.path.insert(0, str(RECIPE))
