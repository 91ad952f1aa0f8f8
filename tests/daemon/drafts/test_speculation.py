"""Drafts from text over a real socket: they change the number of steps and what is counted, not the answer."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.live_daemon import Live
from support.models.tiny_kv_models import write_model

LINES = "\n".join(
    f"{i}. The {wall} house on the street has a {door} door."
    for i, (wall, door) in enumerate([("red", "blue"), ("green", "white"), ("yellow", "black")], 1)
)
COPY = f"<|im_start|>user\nCopy this list:\n{LINES}<|im_end|>\n<|im_start|>assistant\n{LINES}\n\nAgain:\n1."
GREEDY = {"temperature": 0, "n_predict": 40, "cache_prompt": False}
# A step of at most three rows has the logits of single ones on a CPU.
FIXED = ("--spec-fixed", "2")
PREFIX = "llamacpp:spec_decode_num_"


@pytest.fixture(scope="module")
def drafting():
    with Live("--spec", "auto", *FIXED, "-np", "2", "-c", "2048", "--slots", "--metrics") as server:
        yield server.client


def metrics(client):
    lines = client.get("/metrics").body.decode().splitlines()
    return {
        name.removeprefix(PREFIX): float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith(PREFIX))
    }


@pytest.mark.real_model
def test_the_answer_is_that_without_drafts(client, drafting):
    options = GREEDY | {"n_probs": 3, "return_tokens": True}
    plain, drafted = (one.complete(COPY, **options) for one in (client, drafting))
    for name in ("content", "tokens", "completion_probabilities", "stop_type"):
        assert drafted[name] == plain[name], name
    timings = drafted["timings"]
    assert timings["draft_n"] >= timings["draft_n_accepted"] > 10
    assert timings["predicted_n"] == 40
    assert "draft_n" not in plain["timings"]
    assert (plain["generation_settings"]["speculative.types"], plain["generation_settings"]["n_predict"]) == (
        "none",
        40,
    )


@pytest.mark.real_model
@pytest.mark.parametrize(
    "flags",
    [
        ("--spec", "auto"),
        ("--spec-default",),
        ("--spec-type", "ngram-simple", "--spec-ngram-size-n", "3", *FIXED),
    ],
    ids=lambda flags: flags[-1],
)
def test_other_ways_to_draft(client, flags):
    with Live(*flags, "-np", "1", "-c", "1024") as server:
        options = GREEDY | {"speculative.n_max": 2}
        assert (
            server.client.complete(COPY, **options)["content"] == client.complete(COPY, **GREEDY)["content"]
        )


@pytest.mark.real_model
def test_keys_that_a_schema_forces_are_drafted(client, drafting):
    keys = ("temperature_in_the_afternoon", "direction_of_the_wind", "probability_of_rain")
    schema = {"type": "object", "properties": {key: {"type": "boolean"} for key in keys}, "required": [*keys]}
    body = GREEDY | {"n_predict": 90, "json_schema": schema}
    plain, drafted = (one.complete("The weather as JSON:", **body) for one in (client, drafting))
    assert list(json.loads(plain["content"])) == [*keys]
    assert drafted["content"] == plain["content"]
    assert drafted["timings"]["draft_n_accepted"] > drafted["timings"]["predicted_n"] / 3


def test_wide_drafts_of_streams_that_decode_together(tmp_path):
    """In float32, logits hardly depend on the rows of a step."""
    model = write_model(tmp_path / "model.gguf", "llama", np.float32)
    body = {"n_predict": 64, "temperature": 0.7, "return_tokens": True, "ignore_eos": True}

    def answers(*flags):
        with Live(*flags, "-np", "4", "-c", "2048", model=model) as server, ThreadPoolExecutor(4) as threads:
            prompts = [f"{'abcdefgh' * n} {n}" for n in range(1, 9)]
            return list(threads.map(lambda one: server.client.complete(one, **body, seed=len(one)), prompts))

    plain, drafted = answers(), answers("--spec", "auto", "--spec-fixed", "31")
    assert [one["tokens"] for one in drafted] == [one["tokens"] for one in plain]
    assert sum(one["timings"].get("draft_n", 0) for one in drafted) > 100


@pytest.mark.parametrize("kind", ["lfm2", "qwen35"])
@pytest.mark.parametrize(
    ("flags", "can_draft"),
    [
        (("--spec-fixed", "2"), True),
        (("--spec-fixed", "63", "-b", "16", "-ub", "16"), True),
        (("--spec-fixed", "63", "-ub", "2"), False),
    ],
    ids=str,
)
def test_hybrid_models_whose_states_llama_cpp_can_take_back(tmp_path, kind, flags, can_draft):
    """llama.cpp would abort if the tokens that it can take back were not fewer than those of a ubatch."""
    model = write_model(tmp_path / "model.gguf", kind, np.float32)
    options = GREEDY | {"n_predict": 64, "return_tokens": True, "ignore_eos": True}
    plain, drafted = ("-np", "1", "-c", "512"), ("--spec", "auto", *flags)
    answers = []
    for more in ((), drafted):
        with Live(*plain, *more, model=model) as server:
            answers.append(server.client.complete("abcabcabcabcabc", **options))
    assert answers[0]["tokens"] == answers[1]["tokens"]
    assert ("draft_n" in answers[1]["timings"]) is can_draft


def test_a_request_limits_its_drafts(drafting):
    free = drafting.complete(COPY, **GREEDY)
    for limit in ({"speculative.n_max": 1}, {"speculative.n_min": 20}):
        drafted = drafting.complete(COPY, **GREEDY, **limit)
        assert drafted["content"] == free["content"]
        assert 0 < drafted["timings"]["draft_n"] < free["timings"]["draft_n"]
        assert drafted["generation_settings"].items() >= limit.items()
    off = drafting.complete(COPY, **GREEDY, **{"speculative.n_max": 0})
    assert off["content"] == free["content"]
    assert "draft_n" not in off["timings"]
    shown = off["generation_settings"]
    assert [shown[f"speculative.{name}"] for name in ("types", "n_max", "n_min", "p_min")] == [
        "auto",
        0,
        5,
        0.9,
    ]


def test_a_stream_has_an_event_for_each_token(drafting):
    body = GREEDY | {"prompt": COPY, "stream": True, "timings_per_token": True}
    *events, last = drafting.events("/completion", body)
    plain = list(drafting.events("/completion", body | {"speculative.n_max": 0}))
    for name in ("content", "tokens"):
        assert [event[name] for event in (*events, last)] == [event[name] for event in plain], name
    assert all(len(event["tokens"]) == 1 for event in events)
    assert "draft_n" not in events[0]["timings"]
    counts = [event["timings"].get("draft_n", 0) for event in events]
    assert counts == sorted(counts)
    assert last["timings"]["draft_n"] >= counts[-1] > 10


def test_usage_says_how_many_were_right(drafting):
    chat = {"messages": [{"role": "user", "content": f"Copy this:\n{LINES}\n{LINES}"}], "max_tokens": 60}
    answer = drafting.post("/v1/chat/completions", chat | {"temperature": 0}).json
    details, timings = answer["usage"]["completion_tokens_details"], answer["timings"]
    assert details == {
        "accepted_prediction_tokens": timings["draft_n_accepted"],
        "rejected_prediction_tokens": timings["draft_n"] - timings["draft_n_accepted"],
    }
    answer = drafting.post("/v1/chat/completions", chat | {"speculative.n_max": 0}).json
    assert "completion_tokens_details" not in answer["usage"]


@pytest.mark.parametrize("shares", [False, True])
def test_answers_are_drafts_for_their_key_only(shares):
    keys = ("--api-key", "mine", "--api-key", "other")
    with Live(
        "--spec", "auto", *FIXED, *keys, *(["--share-prefixes"] if shares else []), "-np", "2"
    ) as server:

        def draft_n(key):
            body = GREEDY | {"prompt": "Once upon a time"}
            answer = server.client.post("/completion", body, headers={"Authorization": f"Bearer {key}"})
            return answer.json["timings"].get("draft_n", 0)

        first, again, other = draft_n("mine"), draft_n("mine"), draft_n("other")
        assert again > first
        assert other == (again if shares else first)


def test_metrics_and_slots_count(drafting):
    before = metrics(drafting)
    timings = drafting.complete(COPY, **GREEDY, id_slot=0)["timings"]
    after = metrics(drafting)
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    assert grown["draft_tokens_total"] == timings["draft_n"]
    assert grown["accepted_tokens_total"] == timings["draft_n_accepted"]
    assert timings["draft_n"] / 2 <= grown["drafts_total"] < timings["draft_n"]
    places = [
        n
        for name, n in grown.items()
        if re.fullmatch(r'accepted_tokens_per_pos_total\{position="[01]"\}', name)
    ]
    assert len(places) == 2
    assert sum(places) == timings["draft_n_accepted"]
    slot = drafting.get("/slots").json[0]
    assert (slot["speculative"], slot["speculative.types"]) == (True, "auto")
    assert (slot["draft_n"], slot["draft_n_accepted"]) == (timings["draft_n"], timings["draft_n_accepted"])
    defaults = drafting.get("/props").json["default_generation_settings"]
    assert [defaults[f"speculative.{name}"] for name in ("n_max", "n_min", "p_min")] == [16, 5, 0.9]
    assert defaults["speculative"] is True  # the page reads it


def test_a_server_without_drafts_shows_none(client):
    slot = client.get("/slots").json[0]
    assert (slot["speculative"], slot["speculative.types"], slot["draft_n"]) == (False, "none", 0)
    assert metrics(client) == {"draft_tokens_total": 0, "accepted_tokens_total": 0, "drafts_total": 0}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("n_max", -1, '"speculative.n_max" must be at least 0, not -1'),
        ("n_max", "all", '"speculative.n_max" must be an integer'),
        ("n_min", 2**31, '"speculative.n_min" must be at most 2147483647, not 2147483648'),
        ("p_min", 1.5, '"speculative.p_min" must be between 0 and 1, not 1.5'),
    ],
)
def test_bad_values_are_refused(client, field, value, message):
    answer = client.post("/completion", {"prompt": "x", "n_predict": 1, f"speculative.{field}": value})
    assert (answer.status, answer.error["message"]) == (400, message)


@pytest.mark.parametrize(("value", "ignored"), [(0.5, "speculative.p_min"), (0, None), (None, None)])
def test_the_probability_of_a_draft_model_is_named_as_ignored(client, value, ignored):
    answer = client.post("/completion", {"prompt": "x", "n_predict": 1, "speculative.p_min": value})
    assert (answer.status, answer.headers.get("x-llamad-ignored")) == (200, ignored)


@pytest.mark.parametrize(
    ("kind", "flags", "reason"),
    [
        ("mamba", (), "this model's memory cannot remove tokens that were drafted wrongly"),
        (
            "llama",
            ("-gan", "2", "-gaw", "64"),
            "this model's memory cannot remove tokens that were drafted wrongly",
        ),
        ("llama", ("--llama-api-only",), "--llama-api-only is given"),
    ],
)
def test_a_server_that_cannot_draft_says_so_and_serves(tmp_path, kind, flags, reason):
    model = write_model(tmp_path / "model.gguf", kind, np.float32)
    with Live("--spec", "auto", *flags, "-np", "1", "--slots", model=model) as server:
        assert sum(f"nothing is drafted: {reason}" in line for line in server.lines) == 1
        assert "draft_n" not in server.client.complete("abcabcabcabcabc", **GREEDY)["timings"]
        assert server.client.get("/slots").json[0]["speculative"] is False
