"""GET /v1/loads, what gateways balance by, and /health?live, beside it."""

import threading

from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

KEY = {"Authorization": "Bearer k"}
PROMPT = "0123456789" * 4


def load_of(server):
    answer = server.client.get("/v1/loads?include=core,queues", headers=KEY)
    assert answer.status == 200
    assert answer.json["dp_rank_count"] == len(answer.json["loads"]) == 1
    (load,) = answer.json["loads"]
    total = answer.json["aggregate"]
    assert (total["total_running_reqs"], total["total_waiting_reqs"], total["total_reqs"]) == (
        load["num_running_reqs"],
        load["num_waiting_reqs"],
        load["num_total_reqs"],
    )
    return load


def test_loads_count_running_waiting_free_and_cached():
    with Faked(Fake(), "-np", "2", "--api-key", "k", "--alias", "m") as server:
        assert server.client.get("/v1/loads").status == 401
        idle = load_of(server)
        assert (idle["model"], idle["num_free_slots"], idle["max_running_requests"]) == ("m", 2, 2)
        assert (idle["num_running_reqs"], idle["num_used_tokens"], idle["num_cached_tokens"]) == (0, 0, 0)
        ask = {"prompt": PROMPT, "n_predict": 1}
        assert server.client.post("/completion", ask, headers=KEY).status == 200
        after = load_of(server)
        assert (after["num_free_slots"], after["num_used_tokens"], after["token_usage"]) == (2, 0, 0)
        assert after["num_cached_tokens"] >= len(PROMPT)
        assert after["cache_hit_rate"] == 0

        server.fake.block(True)
        post = server.client.post
        threads = [
            threading.Thread(target=post, args=("/completion", ask), kwargs={"headers": KEY})
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        server.until(lambda: load_of(server)["num_total_reqs"] == 3)
        server.until(lambda: load_of(server)["num_running_reqs"] >= 1)
        busy = load_of(server)
        assert busy["num_waiting_reqs"] == 3 - busy["num_running_reqs"]
        assert busy["num_free_slots"] < 2
        assert busy["utilization"] == 1 - busy["num_free_slots"] / 2
        server.fake.block(False)
        for thread in threads:
            thread.join(30)
        done = load_of(server)
        assert (done["num_total_reqs"], done["num_free_slots"]) == (0, 2)
        assert 0 < done["cache_hit_rate"] < 1


def test_a_live_server_is_not_always_ready():
    with Faked(Fake(), "--api-key", "k", load=False) as server:
        assert server.client.get("/v1/loads", headers=KEY).status == 503
        assert server.client.get("/health").status == 503
        for path in ("/health?live", "/v1/health?live=1"):
            answer = server.client.get(path)
            assert (answer.status, answer.json) == (200, {"status": "live"})
        server.loop.call_soon_threadsafe(server.daemon.refuse)
        server.until(lambda: server.client.get("/health").json["status"] == "draining")
        assert server.client.get("/health").status == 503
        assert server.client.get("/health?live").status == 200
        assert server.client.get("/v1/loads", headers=KEY).status == 503
