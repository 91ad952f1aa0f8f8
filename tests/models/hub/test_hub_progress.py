"""Percent, rate and time left, and their words."""

from __future__ import annotations

import logging

import pytest

from llamad.models.hub.progress import Display, Meter, size_text, time_text


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_seconds_and_of_what_really_came() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.total = 4000 << 20
    meter.begin_file("a.gguf")
    meter.set_file(1000 << 20)  # was there already
    assert (meter.rate, meter.seconds_left, meter.percent) == (0.0, None, 25)
    for _ in range(20):
        clock.now += 1
        meter.set_file(meter.done + (50 << 20))
    assert meter.rate == 50 << 20
    assert meter.text() == "50 %, 1.95 GiB of 3.91 GiB, 50.0 MiB/s, 40 s left"
    for _ in range(20):
        clock.now += 1
        meter.set_file(meter.done + (10 << 20))
    assert meter.rate == 10 << 20


def test_a_file_begins_where_the_last_one_ended() -> None:
    meter = Meter()
    meter.total = 300
    meter.begin_file("a")
    meter.set_file(100)
    meter.begin_file("b")
    meter.set_file(120)
    meter.set_file(50)  # begun anew
    assert (meter.done, meter.percent) == (150, 50)


def test_a_size_that_is_not_known() -> None:
    meter = Meter()
    meter.begin_file("a")
    meter.set_file(1500)
    assert (meter.percent, meter.seconds_left, meter.text()) == (None, None, "1.46 KiB")
    meter.set_file_total(3000)
    assert meter.percent == 50


def test_words() -> None:
    assert [size_text(n) for n in (0, 999, 1000, 100 << 10, 1 << 40)] == [
        "0 B",
        "999 B",
        "0.98 KiB",
        "100 KiB",
        "1.00 TiB",
    ]
    assert [time_text(n) for n in (0, 59, 60, 245, 3723)] == ["0 s", "59 s", "1:00", "4:05", "1:02:03"]


def test_a_log_gets_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    meter = Meter()
    meter.total = 200
    meter.begin_file("a.gguf")
    with caplog.at_level(logging.INFO):
        display = Display(meter)
        for n in range(100):
            meter.set_file(n)
            display.update()
        display.clear()
    assert [record.getMessage() for record in caplog.records] == ["downloading a.gguf: 0 %, 0 B of 200 B"]
