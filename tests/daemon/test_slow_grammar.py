"""A grammar that takes long, beside streams that have none: they get what they would get without it."""

import threading

AMBIGUOUS = "root ::= s\ns ::= [a-z ] s s s | [a-z ] s s | [a-z ] s | [a-z ]"
PLAIN = {"prompt": "Once upon a time", "n_predict": 60, "ignore_eos": True, "seed": 1, "temperature": 0}


def metric(client, name: str) -> float:
    text = client.get("/metrics").body.decode()
    return float(text.split(f"\n{name} ")[1].split()[0])


def test_an_ambiguous_grammar_beside_a_plain_stream(client):
    n_before = metric(client, "llamad:deferred_picks_total")
    answers, results = [], []

    def hostile(i: int) -> None:
        body = {"prompt": f"Letters {i}:", "n_predict": 100, "grammar": f"{AMBIGUOUS} # {i}", "seed": i}
        answers.append(client.post("/completion", body))

    threads = [threading.Thread(target=hostile, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        results.append([event for event in client.events("/completion", {**PLAIN, "stream": True})])
    for thread in threads:
        thread.join()
    for events in results:
        assert events[-1]["stop_type"] == "limit"
        assert events[-1]["tokens_predicted"] == 60
    for answer in answers:
        if answer.status == 200:
            assert set(answer.json["content"]) <= set("abcdefghijklmnopqrstuvwxyz ")
        else:
            assert answer.status == 400
            assert "too ambiguous" in answer.error["message"]
    assert metric(client, "llamad:deferred_picks_total") > n_before
    assert metric(client, "llamad:deferred_pick_seconds_total") > 0


def test_a_client_that_leaves_while_its_grammar_works(client):
    body = {"prompt": "Letters:", "n_predict": 100, "grammar": f"{AMBIGUOUS} # gone", "stream": True}
    for _ in range(3):
        client.open_stream(body).close()
    assert client.complete("Hello", n_predict=8, ignore_eos=True)["tokens_predicted"] == 8


def test_several_streams_of_one_schema(client):
    """Their grammar is one object: each waits for its own mask only, and each comes out whole."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answers = []

    def ask(i: int) -> None:
        body = {"prompt": f"A number, {i}, as JSON:", "n_predict": 64, "json_schema": schema, "seed": i}
        answers.append(client.post("/completion", body).json)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(answer["content"].lstrip().startswith("{") for answer in answers)
