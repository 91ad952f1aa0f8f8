"""Minutes of mixed traffic on the real program: `make soak` (LLAMAD_SOAK_SECONDS, default 180)."""

import os
import random
import threading
import time

import pytest
from support.live_daemon import Live

SECONDS = float(os.environ.get("LLAMAD_SOAK_SECONDS", "180"))
N_CLIENTS = 20


def client_life(server: Live, seed: int, t_end: float, seen: dict[int, int], lock: threading.Lock) -> None:
    """Whole answers, streams read to the end, streams left in the middle, short questions."""
    choose = random.Random(seed)
    while time.monotonic() < t_end:
        kind = choose.choice(["whole", "stream", "leave", "tokenize", "health", "wrong"])
        prompt = " ".join(
            choose.choice(["alpha", "beta", "gamma", "delta"]) for _ in range(choose.randint(1, 200))
        )
        status = 200
        if kind == "whole":
            status = server.client.post(
                "/completion", {"prompt": prompt, "n_predict": choose.randint(0, 40)}
            ).status
        elif kind == "stream":
            body = {"prompt": prompt, "n_predict": choose.randint(1, 40), "stream": True}
            answer = server.client.post("/completion", body)
            status = answer.status
            assert status != 200 or b'"stop":true' in answer.body
        elif kind == "leave":
            stream = server.client.open_stream({"prompt": prompt, "n_predict": 500, "ignore_eos": True})
            stream.recv(1)
            stream.close()
        elif kind == "tokenize":
            status = server.client.post("/tokenize", {"content": prompt}).status
        elif kind == "health":
            status = server.client.get("/health").status
        else:
            status = server.client.post("/completion", {"prompt": 5}).status
        with lock:
            seen[status] = seen.get(status, 0) + 1


@pytest.mark.soak
def test_mixed_traffic_leaves_nothing_behind(tiny):
    with Live("-np", "4", "-c", "8192", "--queue-max", "8", "--metrics", model=tiny) as server:
        seen: dict[int, int] = {}
        memory = []
        for part in range(2):
            lock = threading.Lock()
            t_end = time.monotonic() + SECONDS / 2
            threads = [
                threading.Thread(target=client_life, args=(server, part * 100 + i, t_end, seen, lock))
                for i in range(N_CLIENTS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            server.wait_idle()
            memory.append(server.rss_bytes())
        assert set(seen) <= {200, 400, 429}, seen
        assert seen[200] > 100
        assert memory[1] - memory[0] < 20 << 20
        assert server.client.complete("still there", n_predict=2)["tokens_predicted"] == 2
        assert not any("Traceback" in line for line in server.lines)
