"""The one progress line of a build: what it counts, what it expects, and how it looks on a terminal and in a log."""

import io
import json
from pathlib import Path

import pytest

from build import display, estimate

LIBRARIES, MODULES = "llama.cpp libraries", "modules"


def test_what_steps_took_last_time_decides() -> None:
    """One long step among short ones is not a quarter of the work."""
    known = {MODULES: {"a.o": 30.0, "b.o": 1.0, "c.o": 1.0, "d.o": 1.0}}
    ahead = estimate.Estimate(1, known)
    ahead.expect(MODULES, ["a.o", "b.o", "c.o", "d.o"])
    assert ahead.seconds_left(0) == 33.0

    ahead.finish_step(MODULES, "b.o", 0)
    assert ahead.fraction() == pytest.approx(1 / 33)

    ahead.finish_step(MODULES, "a.o", 0)
    assert ahead.fraction() == pytest.approx(31 / 33)


def test_without_a_history_steps_are_counted() -> None:
    ahead = estimate.Estimate(2, {})
    ahead.expect(LIBRARIES, [f"{n}.o" for n in range(100)])
    for n in range(50):
        ahead.finish_step(LIBRARIES, f"{n}.o", 0)

    assert ahead.fraction() == pytest.approx(0.5)
    assert ahead.seconds_left(0) > 0


def test_two_jobs_take_half_the_time() -> None:
    left = []
    for n_jobs in (1, 2):
        ahead = estimate.Estimate(n_jobs, {})
        ahead.plan(LIBRARIES)
        left.append(ahead.seconds_left(0))

    assert left[0] == 2 * left[1]


def test_a_slow_day_is_noticed() -> None:
    known = {LIBRARIES: {f"{n}.o": 10.0 for n in range(100)}}
    ahead = estimate.Estimate(1, known)
    ahead.expect(LIBRARIES, list(known[LIBRARIES]))
    now = 0.0
    ahead.finish_step(LIBRARIES, "0.o", now)
    for n in range(1, 50):
        now += 30.0
        ahead.finish_step(LIBRARIES, f"{n}.o", now)

    assert 1200 < ahead.seconds_left(now) < 1600  # 50 steps, at 30 seconds each rather than 10


def test_a_step_that_turned_out_to_be_needless_is_not_waited_for() -> None:
    """Ninja skips what follows a file that came out as it was."""
    ahead = estimate.Estimate(1, {})
    ahead.expect(MODULES, ["a.c", "a.o"])
    ahead.finish_step(MODULES, "a.c", 0)
    ahead.close(MODULES)

    assert ahead.fraction() == 1.0
    assert ahead.seconds_left(0) == 0


@pytest.mark.parametrize("content", ["", "[]", "{", '{"modules": 3}', '{"modules": {"a": "b"}}'])
def test_a_damaged_history_is_no_history(tmp_path: Path, content: str) -> None:
    (tmp_path / estimate.HISTORY).write_text(content)

    history = estimate.History.load(tmp_path)
    assert history.durations == {}

    history.learn(MODULES, {"a.o": 1.5})
    history.save()
    assert estimate.History.load(tmp_path).durations == {MODULES: {"a.o": 1.5}}


def test_a_history_that_cannot_be_written_is_left(tmp_path: Path) -> None:
    estimate.History(tmp_path / "no such folder" / "x", {}).save()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "a few seconds"), (44, "40 s"), (89, "90 s"), (95, "2 min"), (490, "8 min")]
)
def test_time_in_words(seconds: float, words: str) -> None:
    assert estimate.in_words(seconds) == words


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on(stream: io.StringIO, folder: Path) -> display.BuildDisplay:
    return display.BuildDisplay(estimate.History.load(folder), 2, stream)


def test_the_line_names_all_that_runs(tmp_path: Path) -> None:
    shown = shown_on(io.StringIO(), tmp_path)
    shown.plan(LIBRARIES, MODULES)
    shown.part(LIBRARIES, "[3/142]", 3, 142, "a.o")
    shown.part(MODULES, "[1/171]", 1, 171, "b.o")

    assert shown.line().startswith("llamad: building, ")
    assert " left (llama.cpp [3/142], modules [1/171])" in shown.line()


def test_a_terminal_has_one_line_that_ends_with_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "REDRAW_SECONDS", 0.001)
    out = Terminal()
    shown = shown_on(out, tmp_path)
    shown.start()
    shown.expect(MODULES, ["a.o", "b.o"])
    shown.part(MODULES, "[1/2]", 1, 2, "a.o")
    while out.getvalue().count("\r") < 3:
        pass
    shown.finish(succeeded=True)

    assert out.getvalue().count("\n") == 1
    assert out.getvalue().splitlines()[-1].split("\r")[-1].startswith("llamad: built in ")


def test_a_log_gets_a_line_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "REDRAW_SECONDS", 0.001)
    monkeypatch.setattr(display, "QUIET_SECONDS", 0.0)
    out = io.StringIO()
    shown = shown_on(out, tmp_path)
    shown.start()
    for n in range(500):
        shown.part(LIBRARIES, f"[{n}/500]", n, 500, f"{n}.o")
    while not out.getvalue():
        pass
    shown.finish(succeeded=True)

    first, last = out.getvalue().splitlines()
    assert first.startswith("llamad: building, ")
    assert last.startswith("llamad: built in ")


def test_a_build_with_nothing_to_do_says_nothing(tmp_path: Path) -> None:
    out = Terminal()
    shown = shown_on(out, tmp_path)
    shown.start()
    shown.finish(succeeded=True)

    assert out.getvalue() == ""
    assert list(tmp_path.iterdir()) == []


def test_what_parts_and_steps_took_is_kept(tmp_path: Path) -> None:
    shown = shown_on(io.StringIO(), tmp_path)
    shown.part("Python packages", "installing")
    shown.close("Python packages")
    shown.expect(MODULES, ["a.o"])
    shown.part(MODULES, "[1/1]", 1, 1, "a.o")
    shown.learn(MODULES, {"a.o": 2.5})
    shown.close(MODULES)
    shown.finish(succeeded=True)

    kept = json.loads((tmp_path / estimate.HISTORY).read_text())
    assert kept[MODULES] == {"a.o": 2.5}
    assert kept["Python packages"][""] >= 0


def test_a_line_for_the_reader_does_not_begin_in_the_middle_of_another(tmp_path: Path) -> None:
    out = Terminal()
    shown = shown_on(out, tmp_path)
    shown.part(MODULES, "[1/2]")
    shown._draw()
    shown.say("an error")

    assert out.getvalue().splitlines()[-1].split("\r")[-1] == "an error"
