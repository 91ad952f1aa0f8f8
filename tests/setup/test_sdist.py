"""A source distribution holds every file that a build reads, and nothing that was built."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tiny_llama_cpp import CHECKOUT

BUILD = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
SOURCES = (
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "pyproject.toml",
    "setup.py",
    "deploy",
    "ext",
    "llamad",
    "vendor",
)


def test_it_holds_the_sources_and_nothing_else(tmp_path: Path) -> None:
    env = {**os.environ, "LLAMAD_EXTENSIONS": "0"}
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, check=True)
    (archive,) = tmp_path.glob("llamad-*.tar.gz")
    with tarfile.open(archive) as tar:
        held = {member.name.partition("/")[2] for member in tar if member.isfile()}

    listed = subprocess.run(
        ["git", "ls-files", *SOURCES], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert set(listed.stdout.split()) - held == set()
    made = {name for name in held if not name.startswith("llamad.egg-info/")} - {"PKG-INFO", "setup.cfg"}
    assert made - set(listed.stdout.split()) == set()
