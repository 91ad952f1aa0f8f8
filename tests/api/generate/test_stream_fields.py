"""What llama-server's streams may have beside the text, in every dialect: progress of the prompt, timings, pings."""

import json
import time

import pytest
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

TEXT = "one two three four five six seven eight nine ten " * 40
CHAT = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 4}
DIALECTS = {
    "/completion": {"prompt": TEXT, "n_predict": 4},
    "/v1/completions": {"prompt": TEXT, "max_tokens": 4},
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"input": TEXT, "max_output_tokens": 4},
    "/v1/messages": CHAT,
}


def events(client, path, **more):
    answer = client.post(path, {**DIALECTS[path], "stream": True, "cache_prompt": False, **more})
    assert answer.status == 200, answer.body
    lines = [line.removeprefix("data: ") for line in answer.body.decode().split("\n") if "data: {" in line]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", DIALECTS)
def test_progress_of_the_prompt(tiny_client, path):
    told = [
        one["prompt_progress"]
        for one in events(tiny_client, path, return_progress=True)
        if "prompt_progress" in one
    ]
    total = told[0]["total"]
    assert total > 400
    assert {(one["total"], one["cache"]) for one in told} == {(total, 0)}
    processed = [one["processed"] for one in told]
    assert processed[0] == 0
    assert processed[-1] == total
    assert processed == sorted(processed)
    assert all(one["time_ms"] >= 0 for one in told)
    assert not any("prompt_progress" in one for one in events(tiny_client, path))


def test_progress_counts_what_was_cached(tiny_client):
    tiny_client.complete(TEXT, n_predict=0)
    streamed = events(tiny_client, "/completion", return_progress=True, cache_prompt=True)
    assert streamed[0]["prompt_progress"]["processed"] == streamed[0]["prompt_progress"]["cache"] >= 400


@pytest.mark.parametrize("path", DIALECTS)
def test_timings_of_progress(tiny_client, path):
    """The first ones come before any token of the prompt is computed."""
    told = [
        one["timings"]
        for one in events(tiny_client, path, return_progress=True, timings_per_token=True)
        if "prompt_progress" in one
    ]
    assert {name for name, value in told[0].items() if value != 0} == set()
    times = [one["prompt_ms"] for one in told]
    assert times == sorted(times)
    assert times[-1] > 0
    assert told[-1]["prompt_n"] > 400
    assert {one["predicted_n"] for one in told} == {0}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_timings_beside_the_usage(tiny_client, path):
    *_, last, usage = events(tiny_client, path, stream_options={"include_usage": True})
    assert usage["choices"] == []
    assert usage["timings"] == last["timings"]
    assert usage["timings"]["predicted_n"] == usage["usage"]["completion_tokens"]


def test_timings_of_a_streamed_response(tiny_client):
    *_, completed = events(tiny_client, "/v1/responses")
    assert completed["timings"]["predicted_n"] == completed["response"]["usage"]["output_tokens"]


def test_a_streamed_response_ends_with_its_last_event(tiny_client):
    body = DIALECTS["/v1/responses"] | {"stream": True}
    *_, last = tiny_client.post("/v1/responses", body).body.decode().strip().split("\n\n")
    assert last.startswith("event: response.")
    assert "DONE" not in last


def test_one_token_has_no_speed(tiny_client):
    """It comes from the last step of the prefill."""
    timings = tiny_client.post("/completion", {"prompt": "x", "n_predict": 1}).json["timings"]
    assert timings["predicted_n"] == 1
    assert (timings["predicted_per_second"], timings["predicted_per_token_ms"]) == (0, 0)


@pytest.mark.parametrize("path", DIALECTS)
def test_timings_per_token(tiny_client, path):
    counts = [
        one["timings"]["predicted_n"]
        for one in events(tiny_client, path, timings_per_token=True, ignore_eos=True)
        if "timings" in one
    ]
    assert len(counts) >= 2
    assert counts == sorted(counts)
    assert counts[-1] == 4


def test_a_request_has_its_own_pings():
    """The fake model takes a second for its prompt."""
    with Faked(Fake(script=b"x", decode_us=1_600_000), "--sse-ping-interval", "30") as server:
        body = {"prompt": "x", "n_predict": 1, "stream": True}
        assert b": ping" in server.client.post("/completion", {**body, "sse_ping_interval": 1}).body
        assert b": ping" not in server.client.post("/completion", body).body


def test_texts_that_are_read_together_are_written_together():
    """The event loop is late, so it finds many tokens of the stream at once."""
    script = b"abcdefghijklmnopqrstuvwxyz"
    with Faked(Fake(script=script, decode_us=5000)) as server:
        stream = server.client.open_stream({"prompt": "x", "n_predict": len(script)})
        head, data = b"", b""
        while b"data: " not in head:
            head += stream.recv(65536)
        server.loop.call_soon_threadsafe(time.sleep, 0.1)
        data = head.partition(b"\r\n\r\n")[2]
        while not data.endswith(b"0\r\n\r\n"):
            data += stream.recv(65536)
        stream.close()
    chunks = []
    while data:
        size, _, data = data.partition(b"\r\n")
        chunks.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    assert max(chunk.count(b"data: ") for chunk in chunks) > 5
    lines = [line for line in b"".join(chunks).decode().split("\n\n") if line.startswith("data: {")]
    texts = [json.loads(line.removeprefix("data: "))["content"] for line in lines]
    assert texts[: len(script)] == [chr(c) for c in script]
