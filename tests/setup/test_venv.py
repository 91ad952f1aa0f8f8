"""The environment of the checkout: made from nothing out of a folder of wheels, completed once, and refused in
one line where the machine lacks what only its administrator can install.
"""

import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from build import venv
from recipe import report
from tiny_llama_cpp import write_script

PROJECT = """
[build-system]
requires = ["tiny-build"]
[project]
dependencies = ["tiny-run>=1"]
[project.optional-dependencies]
test = ["tiny-test"]
"""


def write_wheel(folder: Path, name: str) -> None:
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{module}.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(
            f"{info}/RECORD", f"{module}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    write_wheel(tmp_path / "wheels", "tiny-build")
    write_wheel(tmp_path / "wheels", "tiny-run")
    monkeypatch.setenv("LLAMAD_WHEELS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_NO_COMPILE", "1")  # the newer pip is run once or twice
    return folder


def test_an_environment_from_nothing_and_from_wheels_alone(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = venv.ensure(checkout, [])
    assert (
        subprocess.run([made / "bin" / "python", "-c", "import tiny_build, tiny_run"], check=False).returncode
        == 0
    )
    assert capsys.readouterr().err

    assert venv.ensure(checkout, []) == made
    assert capsys.readouterr().err == ""  # the second time there is nothing to do

    with pytest.raises(
        report.SetupError, match=r"LLAMAD_WHEELS does not hold all that is needed .*tiny-test"
    ):
        venv.ensure(checkout, ["test"])
    write_wheel(checkout.parent / "wheels", "tiny-test")
    venv.ensure(checkout, ["test"])
    assert subprocess.run([made / "bin" / "python", "-c", "import tiny_test"], check=False).returncode == 0


def write_newer_pip(folder: Path) -> None:
    """This environment's pip, with a version that nobody has."""
    info = "pip-999.dist-info/"
    with zipfile.ZipFile(folder / "pip-999-py3-none-any.whl", "w") as wheel:
        for path in metadata.files("pip") or ():
            name = path.as_posix()
            if name.startswith("pip/") and name.endswith((".py", ".pem", ".txt")):
                wheel.writestr(name, path.read_binary())
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: pip\nVersion: 999\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")


def test_a_half_made_environment_is_made_anew_with_the_newest_pip(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = checkout / ".venv" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("")
    wheels = checkout.parent / "wheels"
    write_newer_pip(wheels)
    monkeypatch.delenv("LLAMAD_WHEELS")  # a folder of wheels may lack pip, an index does not
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))

    made = venv.ensure(checkout, [])

    asked = "import tiny_run; from importlib.metadata import version; print(version('pip'))"
    done = subprocess.run([made / "bin" / "python", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "999"


def test_a_python_without_ensurepip(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debian = write_script(tmp_path / "python3", "echo 'ensurepip is not available, apt install it'; exit 1\n")
    monkeypatch.setattr(sys, "executable", str(debian))

    with pytest.raises(report.SetupError, match="apt install python3-venv") as refused:
        venv.ensure(checkout, [])
    assert "\n" not in str(refused.value)


def test_a_python_without_headers(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sysconfig.get_path
    monkeypatch.setattr(
        sysconfig, "get_path", lambda name: str(tmp_path) if name == "include" else real(name)
    )

    with pytest.raises(report.SetupError, match="apt install python3-dev"):
        venv.ensure(checkout, [])
    assert not (checkout / ".venv").exists()


def test_no_compiler_is_said_before_anything_is_installed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(report.SetupError, match="compiler is missing"):
        venv.ensure(checkout, [])
    assert not (checkout / ".venv").exists()
