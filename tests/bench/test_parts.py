"""The parts that compute: percentiles and ratios, prompts, and the reading of answers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from bench import prompts, report, scenarios, stats, wire
from bench.errors import BenchError
from bench.load import Run


def test_percentile_lies_between_the_nearest_ranks() -> None:
    assert stats.percentile([4, 1, 3, 2], 50) == 2.5
    assert stats.percentile([1, 2, 3], 0) == 1
    assert stats.percentile([1, 2, 3], 100) == 3
    assert stats.percentile([7], 99) == 7
    assert stats.percentile(range(101), 99) == 99
    assert math.isnan(stats.percentile([], 50))


def test_ratio_is_of_medians_and_shows_single_rounds() -> None:
    ours = [{"tokens_per_s": value} for value in (10.0, 30.0, 20.0)]
    theirs = [{"tokens_per_s": value} for value in (10.0, 10.0, 40.0)]
    assert stats.ratio(ours, theirs, "tokens_per_s") == stats.Ratio(2.0, 0.5, 3.0)


def test_a_ratio_to_nothing_is_unknown_and_no_number_in_json() -> None:
    ours, theirs = [{"gap_p50_ms": 1.0}, {"gap_p50_ms": 2.0}], [{"gap_p50_ms": 0.0}, {"gap_p50_ms": 0.0}]
    assert math.isnan(stats.ratio(ours, theirs, "gap_p50_ms").value)
    assert stats.ratio(ours, [{"gap_p50_ms": 0.0}, {"gap_p50_ms": 1.0}], "gap_p50_ms").low == 2
    section = scenarios.Section("x", {"llamad": ours, "llama-server": theirs})
    assert report.table(section).splitlines()[2].split()[5:] == ["-", "<1", "-", "-", "-"]
    written = report.as_json({}, [section], [])["sections"][0]
    assert written["ratios"]["gap_p50_ms"] == {"value": None, "low": None, "high": None}
    json.dumps(written, allow_nan=False)


def a_stream(t_sent: int, times: list[int], n_tokens: int) -> wire.Stream:
    return wire.Stream(t_sent, times[-1], times, "", n_tokens, 3)


def test_measures_of_streams() -> None:
    ms = 1_000_000
    run = Run(0, 100 * ms, 0.01, 1, [], [])
    streams = [a_stream(0, [10 * ms, 14 * ms, 20 * ms], 3), a_stream(5 * ms, [35 * ms, 40 * ms], 2)]
    measures = stats.of_streams(run, streams)
    assert measures["tokens_per_s"] == 50
    assert measures["first_p50_ms"] == 20
    assert measures["gap_p50_ms"] == 5
    assert measures["gap_p99_ms"] == pytest.approx(5.98)


def test_prompts_are_repeatable_and_begin_differently() -> None:
    texts = prompts.texts(len(prompts.WORDS), 32, seed=3)
    assert texts == prompts.texts(len(prompts.WORDS), 32, seed=3)
    assert texts != prompts.texts(len(prompts.WORDS), 32, seed=4)
    assert texts[5:7] == prompts.texts(2, 32, seed=3, start=5)
    assert len({text.split()[0].strip(".") for text in texts}) == len(texts)
    many = prompts.texts(3 * len(prompts.WORDS), 2, seed=3)
    assert len(set(many)) == len(many)


@pytest.mark.parametrize("n_tokens", [1, 2, 12, 13, 64, 600])
def test_prompts_have_the_wanted_number_of_words_and_stops(n_tokens: int) -> None:
    text = prompts.text(1, n_tokens, seed=1)
    assert len(text.replace(".", " .").split()) == n_tokens


def test_coined_words_differ_from_text_to_text() -> None:
    known = set(prompts.WORDS)
    texts = prompts.texts(200, 64, seed=1, coined=0.1)
    coined = [word for text in texts for word in text.replace(".", "").split() if word not in known]
    assert 0.05 < len(coined) / (200 * 64) < 0.15
    assert len(set(coined)) > 0.98 * len(coined)


def chunked(*payloads: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in payloads) + b"0\r\n\r\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


PIECES = (
    {"content": "a", "tokens": [1], "stop": False},
    {"content": "é\n\nb", "tokens": [2, 3], "stop": False},
    {"content": "", "tokens": [], "stop": True, "tokens_predicted": 3, "tokens_evaluated": 7},
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_an_answer_reads_the_same_however_it_was_cut(size: int) -> None:
    data = chunked(b": ping\n\n", event(PIECES[0]) + event(PIECES[1]), event(PIECES[2]))
    reads = [(i, data[i : i + size]) for i in range(0, len(data), size)]
    assert [value for _, value in wire.events(reads)] == list(PIECES)
    stream = wire.stream(wire.Exchange(-5, reads))
    assert (stream.content, stream.n_tokens, stream.n_prompt) == ("aé\n\nb", 3, 7)
    # An event counts from the read that brought its last byte.
    ends = [data.index(event(one)) + len(event(one)) - 1 for one in PIECES[:2]]
    assert stream.times == [end - end % size for end in ends]
    assert data.endswith(wire.LAST_CHUNK)
    assert data.count(wire.LAST_CHUNK) == 1


def test_a_stream_with_an_error_or_without_an_end_is_no_measurement() -> None:
    for payload in (event({"error": {"code": 500, "message": "broken"}}), event(PIECES[0])):
        with pytest.raises(BenchError):
            wire.stream(wire.Exchange(0, [(1, chunked(payload))]))


def test_answer_length() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 12\r\nX: y\r\n\r\n"
    assert wire.answer_length(head) == len(head) + 12
    assert wire.answer_length(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") == 43
    assert wire.answer_length(head[:-1]) == 0
    with pytest.raises(BenchError):
        wire.answer_length(b"HTTP/1.1 200 OK\r\n\r\n")


def test_first_difference() -> None:
    assert scenarios.first_difference("abc", "abd") == 2
    assert scenarios.first_difference("abc", "abcd") == 3
    assert scenarios.compare("x", "same", "same").is_same
    other = scenarios.compare("x", "one two", "one too")
    assert not other.is_same
    assert "character 5" in other.detail


def test_table_has_a_ratio_only_beside_a_peer() -> None:
    ours = {"tokens_per_s": 120.0, "gap_p50_ms": 8.0, "generator_cpu": 0.01}
    theirs = {"tokens_per_s": 100.0, "gap_p50_ms": 10.0, "generator_cpu": 0.02}
    both = report.table(scenarios.Section("both", {"llamad": [ours], "llama-server": [theirs]}, ["a note"]))
    lines = both.splitlines()
    assert lines[1].split() == ["llamad", "llama-server", "ratio", "want", "of", "single", "rounds"]
    assert lines[2].split() == ["tokens/s", "120", "100", "1.200", ">1", "1.200", "-", "1.200"]
    assert lines[3].split()[-5:] == ["0.800", "<1", "0.800", "-", "0.800"]
    assert lines[4].split() == ["generator", "CPU", "1.0", "%", "2.0", "%"]
    assert lines[-1].strip() == "a note"
    assert "ratio" not in report.table(scenarios.Section("alone", {"llamad": [ours]}))
