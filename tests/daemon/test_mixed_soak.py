"""Fifty clients of several kinds at once, for five minutes: `make soak` (LLAMAD_SOAK_SECONDS, default 300 here)."""

import os
import random
import threading
import time

import pytest
from support.live_daemon import Live

SECONDS = float(os.environ.get("LLAMAD_SOAK_SECONDS", "300"))
N_CLIENTS = 50
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "parameters": {
                "type": "object",
                "properties": {"at": {"type": "string", "maxLength": 8}},
                "required": ["at"],
            },
        },
    }
]


def words(choose: random.Random, most: int) -> str:
    return " ".join(
        choose.choice(["alpha", "beta", "gamma", "délta"]) for _ in range(choose.randint(1, most))
    )


def chat_body(choose: random.Random) -> dict:
    body = {
        "messages": [{"role": "user", "content": words(choose, 80)}],
        "max_tokens": choose.randint(1, 24),
        "stream": choose.random() < 0.5,
    }
    extra = choose.choice(["nothing", "tools", "json", "logprobs", "several"])
    if extra == "tools":
        body |= {"tools": TOOLS, "tool_choice": choose.choice(["auto", "required"])}
    elif extra == "json":
        body["response_format"] = {"type": "json_object"}
    elif extra == "logprobs":
        body |= {"logprobs": True, "top_logprobs": 3}
    elif extra == "several":
        body["n"] = 2
    return body


def client_life(generating: Live, embedding: Live, seed: int, t_end: float, seen: dict, lock) -> None:
    choose = random.Random(seed)
    while time.monotonic() < t_end:
        kind = choose.choice(["chat", "chat", "tokenize", "embed", "messages"])
        if kind == "chat":
            answer = generating.client.post("/v1/chat/completions", chat_body(choose))
            whole = answer.status != 200 or answer.body.rstrip().endswith((b"[DONE]", b"}"))
        elif kind == "messages":
            message = {"role": "user", "content": words(choose, 40)}
            answer = generating.client.post("/v1/messages", {"messages": [message], "max_tokens": 8})
            whole = answer.status != 200 or b'"stop_reason"' in answer.body
        elif kind == "tokenize":
            answer = generating.client.post("/tokenize", {"content": words(choose, 200)})
            whole = b'"tokens"' in answer.body
        else:
            texts = [words(choose, 40) for _ in range(choose.randint(1, 8))]
            answer = embedding.client.post("/v1/embeddings", {"input": texts})
            whole = answer.status != 200 or len(answer.json["data"]) == len(texts)
        with lock:
            seen[(kind, answer.status, whole)] = seen.get((kind, answer.status, whole), 0) + 1


@pytest.mark.soak
def test_fifty_mixed_clients_get_whole_answers_or_a_full_queue(tiny):
    flags = ("-c", "16384", "--queue-max", "16")
    with (
        Live("-np", "8", *flags, model=tiny) as one,
        Live("--embedding", "--pooling", "mean", *flags, model=tiny) as two,
    ):
        seen: dict[tuple[str, int, bool], int] = {}
        lock = threading.Lock()
        t_end = time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=client_life, args=(one, two, seed, t_end, seen, lock))
            for seed in range(N_CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one.wait_idle()
        print(seen)
        assert {(status, whole) for _, status, whole in seen} <= {(200, True), (429, True)}, seen
        assert {kind for kind, status, _ in seen if status == 200} == {
            "chat",
            "messages",
            "tokenize",
            "embed",
        }
        for server in (one, two):
            assert server.client.get("/health").status == 200
            assert not any("Traceback" in line for line in server.lines)
