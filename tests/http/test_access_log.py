"""The access log's way to its outputs: what it writes is what Python's logging would, a batch at a time."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re

import pytest

from llamad.http.access_log import quoted
from llamad.logs import ACCESS, AccessLog, JsonFormatter, TextFormatter

LINES = ['1.2.3.4:5 id-1 "GET /a" 200 1 0.1ms -', '1.2.3.4:5 id-2 "GET /\\x0a" 404 1 0.1ms -']


class Counted(io.StringIO):
    n_writes = 0

    def write(self, text: str) -> int:
        self.n_writes += 1
        return super().write(text)


def write_all(access: AccessLog) -> None:
    async def turn() -> None:
        for line in LINES:
            access.write(line)

    asyncio.run(turn())


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("prefix", [False, True])
def test_text_is_what_logging_would_write(timestamps: bool, prefix: bool) -> None:
    formatter = TextFormatter(timestamps, prefix, colors=True)
    out = Counted()
    access = AccessLog()
    access.add(out, formatter)
    write_all(access)
    made = [formatter.format(ACCESS.makeRecord(ACCESS.name, logging.INFO, "", 0, x, (), None)) for x in LINES]
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ")
    found = out.getvalue().splitlines()
    assert [bool(stamp.match(line)) for line in found] == [timestamps] * 2
    assert [stamp.sub("", line) for line in found] == [stamp.sub("", line) for line in made]
    assert out.n_writes == 1


def test_json_is_a_line_for_each() -> None:
    out = io.StringIO()
    access = AccessLog()
    access.add(out, JsonFormatter())
    write_all(access)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [row.pop("message") for row in rows] == LINES
    assert all(row.pop("time") > 0 for row in rows)
    assert rows == [{"level": "info", "name": "llamad.access"}] * 2


def test_an_output_that_fails_costs_the_others_nothing() -> None:
    closed, out = io.StringIO(), io.StringIO()
    closed.close()
    access = AccessLog()
    access.add(closed, TextFormatter(False, False, False))
    access.add(out, TextFormatter(False, False, False))
    write_all(access)
    assert out.getvalue().splitlines() == LINES


def test_a_message_keeps_its_spaces_and_forges_nothing() -> None:
    assert quoted("The queue is full", 100) == '"The queue is full"'
    assert quoted('a "b"\n1.2.3.4 é\\', 100) == "\"a 'b'\\x0a1.2.3.4 \\xe9\\x5c\""
    assert quoted("long " * 100, 20) == '"long long long long "'
