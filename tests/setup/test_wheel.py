"""What a wheel holds, asked of setuptools without compiling: all of llamad, and nothing that only tests use."""

import json
import os
import subprocess
import sys
from email.parser import Parser
from pathlib import Path

import pytest

from build import modules
from tiny_llama_cpp import CHECKOUT

ASK = """
import json, sys
from setuptools import Distribution
import setuptools, distutils.core

distribution = distutils.core.run_setup("setup.py", stop_after="commandline")
build_ext = distribution.get_command_obj("build_ext")
build_ext.inplace = int(sys.argv[1])
build_ext.ensure_finalized()
build_py = distribution.get_command_obj("build_py")
build_py.build_lib = "lib"
build_py.ensure_finalized()
files = [name for name in build_py.get_outputs(include_bytecode=False)]
print(json.dumps([[module.name for module in build_ext.extensions], files]))
"""


def asked(in_place: bool) -> tuple[set[str], set[str]]:
    """The compiled modules, and the other files, that setuptools would put there."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("LLAMAD_")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(int(in_place))],
        cwd=CHECKOUT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    names, files = json.loads(done.stdout.splitlines()[-1])
    return set(names), {name.removeprefix("lib/") for name in files}


def test_a_wheel_has_every_module_but_those_for_tests() -> None:
    everything = {module.name for module in modules.find(CHECKOUT)}
    names, files = asked(in_place=False)

    for_tests = everything - names
    assert {name.rsplit(".", 1)[-1] for name in for_tests} >= {"fake", "fake_memory"}
    assert all(modules.is_test_only(name) for name in for_tests)
    assert {"llamad._llama", "llamad.engine.core"} <= names
    assert not [file for file in files if "fake" in Path(file).stem or "testing" in Path(file).parts]
    assert {"llamad/__main__.py", "llamad/py.typed", "llamad/_llama.pyi"} <= files
    page = {
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / "llamad" / "page").rglob("*")
        if path.is_file()
    }
    assert {"llamad/page/index.html", "llamad/page/completion.js"} <= page <= files


def test_a_checkout_has_all_of_them() -> None:
    names, _ = asked(in_place=True)

    assert names == {module.name for module in modules.find(CHECKOUT)}


def test_no_module_of_the_wheel_needs_one_for_tests() -> None:
    """Else the wheel could not be imported."""
    for_tests = {module.name for module in modules.find(CHECKOUT) if modules.is_test_only(module.name)}
    sources = [
        *(CHECKOUT / one.pyx for one in modules.find(CHECKOUT) if one.pyx and one.name not in for_tests),
        *(path for path in (CHECKOUT / "llamad").rglob("*.py") if modules.TESTING not in path.parts),
    ]
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for name in for_tests:
            package, _, leaf = name.rpartition(".")
            assert f"from {name} " not in text, source
            assert f"import {name}" not in text, source
            assert f"from {package} import {leaf}\n" not in text, source
            assert f"from {package} cimport {leaf}\n" not in text, source


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llamad.engine.testing.fake", True),
        ("llamad.engine.testing", True),
        ("llamad.testing.deeper.one", True),
        ("llamad.engine.fake", False),
        ("llamad.engine.attesting", False),
        ("llamad.engine.core", False),
    ],
)
def test_a_folder_named_testing_stays_at_home(name: str, expected: bool) -> None:
    assert modules.is_test_only(name) is expected


def test_the_metadata_names_the_licence(tmp_path: Path) -> None:
    ask = "from setuptools import build_meta; import sys; build_meta.prepare_metadata_for_build_wheel(sys.argv[1])"
    env = {**os.environ, "LLAMAD_EXTENSIONS": "0"}
    subprocess.run(
        [sys.executable, "-c", ask, str(tmp_path)], cwd=CHECKOUT, env=env, capture_output=True, check=True
    )

    (info,) = tmp_path.glob("*.dist-info")
    metadata = Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Author"] == "The llamad authors"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or [])
    assert (info / "licenses" / "LICENSE").read_bytes() == (CHECKOUT / "LICENSE").read_bytes()
