"""Prompts that are not read again, on the real model: one beginning of many requests, and what comes back from host
memory after its slot was given away."""

import json
import threading

import pytest
from support.http_client import Client
from support.live_daemon import Live

# So certain that no rounding changes the text: logits depend on the shapes in which they were computed.
COUNTING = "one two three four five six seven eight nine ten " * 12 + "one two three"
LETTERS = "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3
N_CLIENTS = 8


def metric(client, name: str) -> float:
    lines = client.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


@pytest.fixture(scope="module")
def tiny_unified(tiny):
    with Live("-np", "4", "-c", "8192", "--kv-unified", "--metrics", model=tiny) as server:
        yield server


@pytest.mark.parametrize("kind", ["streams", "unified"])
def test_requests_that_arrive_together_read_their_common_beginning_once(kind, live, request):
    server = live if kind == "streams" else request.getfixturevalue("tiny_unified")
    common = f"This is about {kind}. " + "The quick brown fox jumps over the lazy dog again and again. " * 35
    n_common = len(server.client.post("/tokenize", {"content": common}).json["tokens"])
    assert n_common > 450
    answers = []

    def ask(i: int) -> None:
        body = {"prompt": common + f"Number {i} says:", "max_tokens": 2, "temperature": 0}
        answers.append(server.client.post("/v1/completions", body).json["usage"])

    n_before = metric(server.client, "llamacpp:prompt_tokens_total")
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.wait_idle()
    n_read = metric(server.client, "llamacpp:prompt_tokens_total") - n_before
    cached = sorted(one["prompt_tokens_details"]["cached_tokens"] for one in answers)
    assert cached[0] < 10
    assert all(n >= n_common - 2 for n in cached[1:])
    assert n_read == sum(one["prompt_tokens"] for one in answers) - sum(cached)
    assert n_read < n_common + N_CLIENTS * 10


@pytest.fixture(scope="module")
def one_slot():
    flags = ("-np", "1", "-c", "2048", "--metrics", "--api-key", "mine", "--api-key", "other")
    with Live(*flags) as server:
        yield server.client


def ask(client, key: str, prompt: str):
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0}
    answer = client.post("/completion", body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status == 200, answer.body
    return answer.json


def test_a_prompt_whose_slot_was_taken_comes_back_to_its_own_key_alone(one_slot):
    first = ask(one_slot, "mine", COUNTING)
    n_prompt = first["tokens_evaluated"]
    assert first["timings"]["prompt_n"] == n_prompt > 100
    assert ask(one_slot, "mine", LETTERS)["timings"]["cache_n"] == 0
    third = ask(one_slot, "mine", COUNTING)
    assert (third["timings"]["cache_n"], third["timings"]["prompt_n"]) == (n_prompt - 1, 1)
    assert third["tokens_cached"] == first["tokens_cached"]
    assert third["content"] == first["content"] == " four five six seven eight nine ten one"
    one_slot.headers = {"Authorization": "Bearer mine"}
    assert metric(one_slot, "llamad:prompt_cache_hits_total") == 1
    assert metric(one_slot, "llamad:prompt_cache_restored_tokens_total") == n_prompt - 1
    assert metric(one_slot, "llamad:prompt_cache_entries") == 2
    assert metric(one_slot, "llamad:prompt_cache_bytes") > 100_000
    # Both are kept for one key; another reads for itself.
    assert ask(one_slot, "other", LETTERS)["timings"]["cache_n"] == 0
    assert ask(one_slot, "mine", COUNTING)["content"] == first["content"]
    assert metric(one_slot, "llamad:prompt_cache_hits_total") == 2


def test_slots_keep_keys_apart(tiny):
    """What one key's request left in a slot or is doing there is neither reused by nor shown to another, nor moved."""
    flags = ("-np", "2", "-c", "4096", "--slots", "--api-key", "mine", "--api-key", "other")
    with Live(*flags, model=tiny) as server:
        client = server.client
        mine, other = ({"Authorization": f"Bearer {key}"} for key in ("mine", "other"))
        assert ask(client, "mine", COUNTING)["timings"]["cache_n"] == 0
        again, theirs = ask(client, "mine", COUNTING), ask(client, "other", COUNTING)
        assert again["timings"]["cache_n"] > 100
        assert theirs["timings"]["cache_n"] == 0
        slot = again["id_slot"]
        assert theirs["id_slot"] != slot
        for path in ("action=save-state", "action=tokens", "action=erase", "action=context-shift"):
            body = {"n_keep": 1, "n_discard": 1}
            assert client.post(f"/slots/{slot}?{path}", body, headers=other).status == 404
        assert client.get(f"/v1/slots/{slot}/info", headers=other).status == 404
        assert client.get(f"/v1/slots/{slot}/info", headers=mine).json["n_tokens"] > 100
        state = client.post(f"/slots/{slot}?action=save-state", {}, headers=mine).json["state"]
        assert (
            client.post(f"/slots/{slot}?action=restore-state", {"state": state}, headers=other).status == 404
        )
        body = {
            "prompt": LETTERS,
            "n_predict": 500,
            "ignore_eos": True,
            "stop": ["never seen"],
            "stream": True,
        }
        events = Client(client.host, client.port, mine).events("/completion", body)
        next(events)
        seen = [client.get("/slots", headers=one).json for one in (mine, other)]
        health = client.get("/health?include_slots", headers=mine).json["slots"]
        events.close()
        shown = [json.dumps(slots) for slots in (*seen, health)]
        assert ["never seen" in text for text in shown] == [True, False, False]
        assert [text.count("a b c d") > 0 for text in shown] == [True, False, False]
        assert all(sum(slot["is_processing"] for slot in slots) == 1 for slots in seen)
        server.wait_idle()
        ended = {"prompt": LETTERS, "grammar": 'root ::= "private"', "stop": ["vate"]}
        assert client.post("/completion", ended, headers=mine).json["stopping_word"] == "vate"
        seen = [client.get("/slots", headers=one).json for one in (mine, other)]
        words = [{slot["next_token"]["stopping_word"] for slot in slots} for slots in seen]
        assert ["vate" in found for found in words] == [True, False]


def test_prefixes_are_shared_where_that_is_asked_for(tiny):
    flags = ("-np", "1", "-c", "2048", "--api-key", "mine", "--api-key", "other", "--share-prefixes")
    with Live(*flags, model=tiny) as server:
        ask(server.client, "mine", COUNTING)
        assert ask(server.client, "other", COUNTING)["timings"]["cache_n"] > 100


def test_off_it_reads_again(tiny):
    with Live("-np", "1", "-c", "2048", "--metrics", "--cache-ram", "0", model=tiny) as server:
        for prompt in (COUNTING, LETTERS, COUNTING):
            assert server.client.complete(prompt, n_predict=2)["timings"]["cache_n"] <= 1
        assert b"prompt_cache" not in server.client.get("/metrics").body
