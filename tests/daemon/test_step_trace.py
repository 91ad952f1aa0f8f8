"""Where a step's time goes: the lines of --step-trace and the sums of GET /metrics, on the real program."""

import json
import re
import signal

import pytest
from support.live_daemon import Live

ENGINE = ("plan", "decode", "wait", "sample", "emit")
LOOP = ("wake", "write")


def sums(client) -> dict[str, float]:
    text = client.get("/metrics").body.decode()
    parts = dict(re.findall(r"^llamad:step_(\w+)_seconds_total (\S+)$", text, re.MULTILINE))
    assert set(parts) == {*ENGINE, *LOOP}
    for name in ("steps", "wakes"):
        parts[name] = re.search(rf"^llamad:{name}_total (\S+)$", text, re.MULTILINE)[1]
    return {name: float(value) for name, value in parts.items()}


@pytest.fixture(scope="module")
def traced(tmp_path_factory, tiny):
    """The sums before and after a stream and a plain completion, and the trace's lines."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    with Live("-np", "2", "-c", "1024", "--metrics", "--step-trace", str(path), model=tiny) as server:
        before = sums(server.client)
        body = {"prompt": "x", "n_predict": 12, "ignore_eos": True}
        list(server.client.events("/completion", {**body, "stream": True}))
        between = sums(server.client)
        server.client.complete(**body)
        after = sums(server.client)
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
    return before, between, after, [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_tells_all_parts(traced):
    *_, lines = traced
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    for line in lines:
        assert all(line[f"{name}_us"] >= 0 for name in (*ENGINE, *LOOP))
    assert all(sum(line[f"{name}_us"] for line in lines) > 0 for name in ("decode", *LOOP))


def test_the_sums_grow_with_each_request(traced):
    before, between, after, _ = traced
    for name in ("decode", *LOOP, "steps", "wakes"):
        assert before[name] < between[name] < after[name]
    for name in before:
        assert before[name] <= between[name] <= after[name]


def test_the_lines_add_up_to_the_sums(traced):
    _, _, after, lines = traced
    assert len(lines) == after["steps"]
    assert sum(line["n_wakes"] for line in lines) == after["wakes"]
    for name in ("decode", "wait", "sample", "emit", *LOOP):
        told = sum(line[f"{name}_us"] for line in lines)
        assert told == pytest.approx(after[name] * 1e6, rel=1e-6, abs=2), name
    # Turns that found nothing to decode have planned too.
    assert sum(line["plan_us"] for line in lines) <= after["plan"] * 1e6 + 2
