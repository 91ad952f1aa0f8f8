"""What tells of a request, beside llama-server's: timings, progress, counters, biases, prefills and slot files. Both
programs run over one model; skipped where `make peer` was not run."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.models import bert_reference, bert_weights
from support.peer import llama_server

FEW = {"n_predict": 3, "ignore_eos": True, "cache_prompt": False}
LONG = "one two three four five six seven eight nine ten " * 60
CHAT = [{"role": "user", "content": LONG}]
DIALECTS = {
    "/completion": {"prompt": LONG},
    "/v1/completions": {"prompt": LONG},
    "/v1/chat/completions": {"messages": CHAT},
    "/v1/responses": {"input": LONG, "max_output_tokens": 3},
}
# A seed with which the texts of the two programs need not be equal: only their shapes are compared.
DRAWN = {"seed": 7, "temperature": 0.8}


class Pair(NamedTuple):
    theirs: Client
    ours: Client
    folder: Path

    def both(self, method: str, path: str, body: Any = None) -> list[Any]:
        """The JSON of llama-server's response, then of ours; both must succeed."""
        replies = [
            one.get(path) if method == "GET" else one.post(path, body) for one in (self.theirs, self.ours)
        ]
        assert [one.status for one in replies] == [200, 200], [one.body for one in replies]
        return [one.json for one in replies]

    def streams(self, path: str, **body: Any) -> list[list[dict[str, Any]]]:
        """The events of llama-server's stream, then of ours."""
        few = {"ignore_eos": True, "cache_prompt": False} if path == "/v1/responses" else FEW
        return [events(one, path, {**DIALECTS[path], **few, **DRAWN, **body}) for one in self[:2]]


@pytest.fixture(scope="module")
def pair(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("slots")
    flags = ("-np", "1", "-c", "2048", "-b", "256", "-ub", "256", "--slots", "--slot-save-path", str(folder))
    with llama_server(tiny, *flags) as theirs, Live(*flags, "--no-warmup", model=tiny) as live:
        yield Pair(theirs, live.client, folder)


@pytest.fixture(scope="module")
def embedders() -> Iterator[Pair]:
    model = bert_reference.cached_gguf(bert_weights.minilm())
    flags = ("--embedding", "--metrics", "-c", "512", "-np", "1")
    with llama_server(model, *flags) as theirs, Live(*flags, model=model) as live:
        yield Pair(theirs, live.client, Path())


def events(client: Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    reply = client.post(path, {**body, "stream": True})
    assert reply.status == 200, reply.body
    lines = reply.body.decode().split("\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def kinds(stream: list[dict[str, Any]], field: str) -> set[str]:
    """The types of the events that have a field."""
    return {str(one.get("type", "")) for one in stream if field in one}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_the_last_chunk_has_usage_and_timings(pair: Pair, path: str) -> None:
    theirs, ours = (one[-1] for one in pair.streams(path, stream_options={"include_usage": True}))
    assert theirs["usage"].keys() <= ours["usage"].keys()
    assert theirs["timings"].keys() <= ours["timings"].keys()
    for one in (theirs, ours):
        assert one["timings"]["predicted_n"] == one["usage"]["completion_tokens"] == 3
        assert one["timings"]["prompt_n"] == one["usage"]["prompt_tokens"]
    assert theirs["usage"]["prompt_tokens"] == ours["usage"]["prompt_tokens"]


@pytest.mark.parametrize("path", DIALECTS)
def test_progress_has_timings_before_the_first_token_of_the_prompt(pair: Pair, path: str) -> None:
    told = [
        [one for one in stream if "prompt_progress" in one]
        for stream in pair.streams(path, return_progress=True, timings_per_token=True)
    ]
    theirs, ours = told
    assert theirs[0]["timings"] == ours[0]["timings"]
    assert set(ours[0]["timings"].values()) == {0}
    for field in ("total", "cache", "processed"):
        assert theirs[0]["prompt_progress"][field] == ours[0]["prompt_progress"][field]
        assert theirs[-1]["prompt_progress"][field] == ours[-1]["prompt_progress"][field]
    for one in told:
        assert one[-1]["timings"]["prompt_n"] == one[-1]["prompt_progress"]["total"]
        assert one[-1]["timings"]["predicted_n"] == 0


@pytest.mark.parametrize("n", [1, 2, 9])
def test_speed_is_that_of_the_steps_after_the_first_token(pair: Pair, n: int) -> None:
    for one in pair.both("POST", "/completion", {"prompt": "x", **FEW, "n_predict": n}):
        timings = one["timings"]
        assert timings["predicted_n"] == n
        steps = (n - 1) / timings["predicted_ms"] * 1000
        assert timings["predicted_per_second"] == pytest.approx(steps)
        assert timings["predicted_per_token_ms"] == pytest.approx(
            timings["predicted_ms"] / (n - 1) if n > 1 else 0
        )


def test_telemetry_in_streams_of_responses(pair: Pair) -> None:
    """They are ended by a grammar, because a limit ends only llama-server's with `response.completed`."""
    short = {"grammar": 'root ::= "a" "b"', "max_output_tokens": 30, "ignore_eos": False}
    theirs, ours = pair.streams("/v1/responses", **short, return_progress=True, timings_per_token=True)
    for field in ("timings", "prompt_progress"):
        assert kinds(theirs, field) <= kinds(ours, field)
        assert kinds(ours, field)
    assert "response.output_text.delta" in kinds(ours, "timings")
    assert theirs[-1]["timings"].keys() <= ours[-1]["timings"].keys()
    assert theirs[-1]["type"] == ours[-1]["type"] == "response.completed"
    assert ours[-1]["timings"]["predicted_n"] == ours[-1]["response"]["usage"]["output_tokens"]
    plain = pair.streams("/v1/responses", **short)
    for field in ("timings", "prompt_progress"):
        assert kinds(plain[0], field) == kinds(plain[1], field)


def test_streams_of_responses_end_with_their_last_event(pair: Pair) -> None:
    body = DIALECTS["/v1/responses"] | {"stream": True}
    for one in (pair.theirs, pair.ours):
        last = one.post("/v1/responses", body).body.decode().strip().rpartition("\n\n")[2]
        assert re.match(r"event: response\.(completed|incomplete)\n", last)
        assert "[DONE]" not in last


@pytest.mark.parametrize("bias", [None, [[5, 1.5], [0, 2]], {"7": -1}, [[9, False]]])
def test_tokens_that_end_a_text_are_biased_away(pair: Pair, bias: Any) -> None:
    for ignores in (True, False):
        body = {"prompt": "x", "n_predict": 1, "ignore_eos": ignores}
        theirs, ours = pair.both("POST", "/completion", body if bias is None else body | {"logit_bias": bias})
        settings = ours["generation_settings"]
        assert settings["logit_bias"] == theirs["generation_settings"]["logit_bias"]
        assert settings["ignore_eos"] is ignores
        assert any(one["bias"] is None for one in settings["logit_bias"]) is (ignores or bias == [[9, False]])


@pytest.mark.parametrize(
    "prefill", ["Whill", [{"type": "text", "text": "Wh"}, {"type": "text", "text": "ill"}]]
)
def test_a_prefill_of_the_assistant(pair: Pair, prefill: Any) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": prefill}]
    theirs, ours = pair.both("POST", "/apply-template", {"messages": messages})
    assert ours["prompt"] == theirs["prompt"]
    body = {"messages": messages, "max_tokens": 2, "verbose": True}
    prompts = [one["__verbose"]["prompt"] for one in pair.both("POST", "/v1/chat/completions", body)]
    assert prompts[0] == prompts[1] == ours["prompt"]
    assert ours["prompt"].endswith("Whill" if isinstance(prefill, str) else "Wh\n\nill")


def test_an_idle_slot(pair: Pair) -> None:
    pair.both("POST", "/completion", {"prompt": "One two", **FEW})
    theirs, ours = (one[0] for one in pair.both("GET", "/slots"))
    (last,) = theirs["next_token"]
    for field in ("has_next_token", "n_remain", "n_decoded"):
        assert ours["next_token"][field] == last[field], field
    assert (last["n_remain"], last["n_decoded"]) == (-1, 0)
    assert ours["n_prompt_tokens"] == theirs["n_prompt_tokens"]
    assert ours["is_processing"] is theirs["is_processing"] is False


def test_each_program_reads_the_slot_files_of_the_other(pair: Pair) -> None:
    """llama-server packs its tokens; we write the plain list of its older versions, which it still reads."""
    body = {"prompt": "One two three four five", **FEW, "temperature": 0, "cache_prompt": True}
    texts = [one["content"] for one in pair.both("POST", "/completion", body)]
    assert texts[0] == texts[1]
    pair.theirs.post("/slots/0?action=save", {"filename": "theirs"})
    pair.ours.post("/slots/0?action=save", {"filename": "ours"})
    firsts = [struct.unpack_from("<4I", (pair.folder / name).read_bytes())[3] for name in ("theirs", "ours")]
    assert firsts[0] == 0xFFFFFFFF
    assert firsts[1] == pair.ours.post("/tokenize", {"content": "One"}).json["tokens"][0]
    for name in ("theirs", "ours"):
        for one in (pair.theirs, pair.ours):
            one.post("/slots/0?action=erase", {})
            restored = one.post("/slots/0?action=restore", {"filename": name})
            assert restored.status == 200, (name, restored.body)
            again = one.post("/completion", body).json
            assert again["timings"]["prompt_n"] == 1
            assert again["content"] == texts[0]


@pytest.mark.parametrize("limit", [6, 9])
def test_an_address_has_at_most_as_many_characters_as_the_schema_says(pair: Pair, limit: int) -> None:
    """llama-server keeps the length and drops the format; we keep both."""
    schema = {"type": "string", "format": "email", "maxLength": limit}
    body = {"prompt": "x", "n_predict": 60, "temperature": 1.5, "seed": 4, "json_schema": schema}
    theirs, ours = (json.loads(one["content"]) for one in pair.both("POST", "/completion", body))
    assert len(theirs) <= limit
    assert len(ours) <= limit
    assert re.fullmatch(r"[^@]+@[^@]+\.[^@]+", ours)


def test_an_empty_text_is_embedded(embedders: Pair) -> None:
    theirs, ours = embedders.both("POST", "/v1/embeddings", {"input": ""})
    (one,), (other,) = theirs["data"], ours["data"]
    assert one["embedding"] == pytest.approx(other["embedding"], abs=1e-3)
    assert theirs["usage"] == ours["usage"]


def test_counters_of_an_embedding_server(embedders: Pair) -> None:
    names = ("prompt_tokens_total", "tokens_predicted_total", "n_decode_total")

    def counters(client: Client) -> dict[str, float]:
        text = client.get("/metrics").body.decode()
        lines = re.findall(r"^llamacpp:(\w+) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in lines if name in names}

    before = [counters(one) for one in embedders[:2]]
    embedders.both("POST", "/v1/embeddings", {"input": ["hello world", "goodbye world"]})
    after = [counters(one) for one in embedders[:2]]
    theirs, ours = (
        {name: new[name] - old[name] for name in names} for old, new in zip(before, after, strict=True)
    )
    assert ours["prompt_tokens_total"] == theirs["prompt_tokens_total"] > 0
    assert ours["tokens_predicted_total"] == theirs["tokens_predicted_total"] == 0
    assert min(ours["n_decode_total"], theirs["n_decode_total"]) > 0
