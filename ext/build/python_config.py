"""Finds out how extension modules are compiled for a Python: its headers, its compiler flags, the suffix of file names.
It runs that Python, which may be another one than the Python of the build.
"""

import json
import subprocess
from dataclasses import dataclass

from recipe.report import SetupError

QUESTION = """
import importlib.util, json, sysconfig
variables = {name: sysconfig.get_config_var(name) or "" for name in ("CFLAGS", "CCSHARED", "LDSHARED", "EXT_SUFFIX")}
cython = importlib.util.find_spec("Cython")
includes = sorted({sysconfig.get_path("include"), sysconfig.get_path("platinclude")})
print(json.dumps({**variables, "includes": includes, "cython": cython.origin if cython else ""}))
"""


@dataclass(frozen=True)
class PythonConfig:
    python: str
    cflags: str
    ldshared: str  # its first word is a C compiler
    suffix: str
    includes: list[str]
    cython: str  # a file that changes when Cython is updated


def ask(python: str) -> PythonConfig:
    done = subprocess.run([python, "-c", QUESTION], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"{python} does not work ({done.stderr.strip()[-200:]}): remove .venv and run again")
    config = json.loads(done.stdout)
    if not config["cython"]:
        raise SetupError(
            f"{python} has no Cython: run `make build`, which installs it, or pip install cython"
        )
    cflags = f"{config['CFLAGS']} {config['CCSHARED']}"
    return PythonConfig(
        python, cflags, config["LDSHARED"], config["EXT_SUFFIX"], config["includes"], config["cython"]
    )
