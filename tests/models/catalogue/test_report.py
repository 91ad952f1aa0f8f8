"""`llamad check` for a daemon of many models."""

from __future__ import annotations

import json

import pytest
from support.many_models.catalogues import Place

from llamad import check


def run(place: Place, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str, str]:
    status = check.main(flags, place.environ)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_each_model_and_what_is_wrong_with_it(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    model = place.file("m.gguf")
    place.cached("a/b", "m-Q4_0.gguf")
    place.preset.write_text(
        f"[*]\ndefault-model = x\nport = 1\n[x]\nmodel = {model}\nalias = y\npin = 1\nload-on-startup = 1\n"
        f"[z]\nmodel = {model}\ntemp = 0\nhost = h\n[wrong]\nctx-sise = 1\n[later]\nhf = c/d\n"
        "[own]\nhf = a/b\ndedup-cache-models = 1\n"
    )
    status, out, _ = run(place, capsys, "--models-preset", str(place.preset))
    assert status == 1
    (path,) = place.root.rglob("m-Q4_0.gguf")
    assert out.splitlines() == [
        f"a/b:Q4_0: {path}; not listed",
        "later: c/d",
        f"own: {path}; shares the engine of a/b:Q4_0",
        "wrong: disabled: ctx-sise (line 14): there is no such flag; did you mean ctx-size?",
        f"x: {model}; aliases y; default; pinned; loaded at the start",
        f"z: {model}; shares the engine of x",
        "  warning: host (line 12) is ignored: it is for the whole daemon; use --host on the command line",
        "6 models, 1 of them disabled",
        "warning: [*] port (line 3) is ignored: it is for the whole daemon; use --port on the command line",
    ]


def test_programs_read_json(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    path = place.file("models/x.gguf")
    status, out, _ = run(place, capsys, "--json", "--models-dir", str(place.models), "--alias", "y")
    report = json.loads(out)
    assert status == 0
    assert [(one["id"], one["model"], one["reason"]) for one in report["models"]] == [("x", path, "")]
    assert report["warnings"][0].startswith("--alias has no effect")


def test_a_preset_that_stops_the_start(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.preset.write_text("[a\n")
    status, out, err = run(place, capsys, "--models-preset", str(place.preset))
    assert (status, out) == (1, "")
    assert (
        err
        == f"llamad: {place.preset}, line 1: '[a' is not a section; write [name], and nothing else but a comment\n"
    )
