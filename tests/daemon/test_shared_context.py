"""The server without -np, on the real model: four slots share one context, and requests that outgrow it wait for each
other. Their texts are those of requests that had it for themselves."""

import threading
import time

import pytest
from support.live_daemon import Live

# So certain that no rounding changes the text: logits depend on the shapes in which they were computed.
PROMPTS = (
    "one two three four five six seven eight nine ten " * 7 + "one two three",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3 + "a b c d e f g h i j k l m n o p q r",
)
N_PREDICT = 110


@pytest.fixture(scope="module")
def server():
    with Live("-c", "256", "--metrics", "--slots") as server:
        yield server


def metric(client, name: str) -> float:
    lines = client.get("/metrics").body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


def test_requests_that_outgrow_the_context_write_what_they_would_alone(server):
    client = server.client
    assert client.get("/props").json["total_slots"] == 4
    assert client.get("/props").json["default_generation_settings"]["n_ctx"] == 256
    asked = [
        {
            "prompt": prompt,
            "n_predict": N_PREDICT,
            "ignore_eos": True,
            "temperature": 0,
            "cache_prompt": False,
        }
        for prompt in PROMPTS
    ]
    alone = [client.post("/completion", one).json["content"] for one in asked]
    assert metric(client, "llamad:suspensions_total") == 0
    answers = {}

    def ask(i: int) -> None:
        answers[i] = client.post("/completion", asked[i]).json

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(asked))]
    for thread in threads:
        thread.start()
    while (
        metric(client, "llamad:requests_suspended") == 0 and threads[0].is_alive() and threads[1].is_alive()
    ):
        time.sleep(0.05)
    shown = client.get("/slots").json
    for thread in threads:
        thread.join()
    assert [answers[i]["content"] for i in range(len(asked))] == alone
    assert all(one["tokens_predicted"] == N_PREDICT and not one["truncated"] for one in answers.values())
    assert [slot["is_processing"] for slot in shown if slot["is_suspended"]] == [True]
    assert metric(client, "llamad:suspensions_total") == 1
    assert metric(client, "llamad:recomputed_tokens_total") == 0
    assert metric(client, "llamad:requests_suspended") == 0
