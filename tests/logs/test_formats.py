"""What a log line looks like, and that nothing a record quotes passes for a line of its own."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from llamad.logs.format import JsonFormatter, TextFormatter


def record(message: str, level: int = logging.INFO, failed: bool = False) -> logging.LogRecord:
    try:
        raise ValueError("of the test")
    except ValueError:
        info = sys.exc_info() if failed else None
    return logging.LogRecord("llamad.x", level, "", 0, message, (), info)


@pytest.mark.parametrize(
    ("level", "number"),
    [
        (logging.CRITICAL, 2),
        (logging.ERROR, 3),
        (logging.WARNING, 4),
        (logging.INFO, 6),
        (logging.DEBUG, 7),
    ],
)
def test_every_line_in_the_journal_has_its_priority(level, number):
    text = TextFormatter(False, True, False, in_journal=True).format(record("one\ntwo", level, failed=True))
    lines = text.split("\n")
    assert lines[0] == f"<{number}>{logging.getLevelName(level)[0]} x: one"
    assert lines[1] == f"<{number}>    two"
    assert len(lines) > 4
    assert all(line.startswith(f"<{number}>    ") for line in lines[1:])
    priority, _, row = JsonFormatter(in_journal=True).format(record("one\ntwo", level)).partition(">")
    assert (priority, json.loads(row)["message"]) == (f"<{number}", "one\ntwo")


def test_access_lines_in_the_journal_have_theirs():
    assert TextFormatter(False, False, False, True).access(1.0, ["a", "b"]) == "<6>a\n<6>b\n"
    line = '<6>{"time":1.500,"level":"info","name":"llamad.access","a":1}\n'
    assert JsonFormatter(True).access(1.5, ['"a":1']) == line


def test_there_is_no_priority_elsewhere():
    for formatter in (TextFormatter(True, True, False), JsonFormatter()):
        assert not formatter.format(record("a line", logging.ERROR)).startswith("<")
        assert not formatter.access(1.0, ['"a":1']).startswith("<")


def test_a_record_forges_no_line_and_commands_no_terminal():
    forged = "general.name = x\n2026-01-01 00:00:00.000 E engine: \x1b[2Jboo\r\x9b1m\x7f"
    text = TextFormatter(False, False, False).format(record(forged))
    assert text == ("general.name = x\n    2026-01-01 00:00:00.000 E engine: \\x1b[2Jboo\\x0d\\x9b1m\\x7f")
    row = JsonFormatter().format(record(forged))
    assert "\n" not in row
    assert json.loads(row)["message"] == forged


def test_colours_are_of_the_level():
    text = TextFormatter(False, False, colors=True)
    assert text.format(record("bad", logging.ERROR)) == "\033[31mbad\033[0m"
    assert text.format(record("so so", logging.WARNING)) == "\033[33mso so\033[0m"
    assert text.format(record("fine")) == "fine"
