"""deploy/constraints.txt names a version of every package that a release is built and run with, and each fits
pyproject.toml."""

import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tiny_llama_cpp import CHECKOUT

PINS = dict(re.findall(r"(?m)^([\w-]+)==(\S+)$", (CHECKOUT / "deploy" / "constraints.txt").read_text()))
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
REQUIRED = [
    Requirement(one) for one in (*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"])
]


@pytest.mark.parametrize("required", REQUIRED, ids=lambda one: one.name)
def test_each_requirement_has_a_version_that_fits(required: Requirement) -> None:
    assert PINS[canonicalize_name(required.name)] in required.specifier


def test_what_those_need_has_one_too() -> None:
    """A package that the pinned ones bring along could change otherwise."""
    for name in PINS:
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in PINS, f"{name} needs {needed.name}"
