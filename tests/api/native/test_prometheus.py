"""GET /metrics, on the real program."""

import re
import threading
import time

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live, until
from support.models.tiny_adapters import write_lora

from llamad.engine.testing.fake import Fake
from llamad.flags.parse import FlagError, parse

LORA_INFO = re.compile(
    r'^llamad:lora_requests_info\{max_lora="(\d+)",running_lora_adapters="([^"]*)",waiting_lora_adapters="([^"]*)"\}'
    r" ([\d.]+)$",
    re.MULTILINE,
)


def metric(text: str, name: str) -> float:
    sample = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert sample, f"{name} is missing"
    return float(sample[1])


def test_metrics_count_what_happened(client):
    before = client.get("/metrics").body.decode()
    list(
        client.events(
            "/completion",
            {
                "prompt": "Count to ten",
                "n_predict": 12,
                "stream": True,
                "cache_prompt": False,
                "ignore_eos": True,
            },
        )
    )
    client.post("/no/such/path")
    client.get("/no/such/file")
    answer = client.get("/metrics")
    after = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/plain")
    for name, n in (("llamacpp:tokens_predicted_total", 12), ("llamacpp:prompt_tokens_total", 3)):
        assert metric(after, name) - metric(before, name) == n
    assert metric(after, "llamacpp:n_decode_total") - metric(before, "llamacpp:n_decode_total") >= 12
    assert metric(after, "llamacpp:n_tokens_max") >= 14
    assert 1 <= metric(after, "llamacpp:n_busy_slots_per_decode") <= 4
    assert 0 < int(answer.headers["process-start-time-unix"]) <= time.time()
    for name in (
        "llamacpp:prompt_tokens_seconds",
        "llamacpp:predicted_tokens_seconds",
        "llamacpp:kv_cache_usage_ratio",
        "llamacpp:kv_cache_tokens",
        "llamad:kv_cache_running_ratio",
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
        "llamacpp:prompt_tokens_cached_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
        "llamacpp:spec_decode_num_drafts_total",
        "llamad:evicted_tokens_total",
        "llamad:aborted_total",
        "llamad:last_step_age_seconds",
    ):
        assert metric(after, name) >= 0
    for name in ("time_to_first_token", "token_gap", "queue", "request"):
        count = f"llamad:{name}_seconds_count"
        assert metric(after, count) > metric(before, count)
        buckets = [float(n) for n in re.findall(rf"llamad:{name}_seconds_bucket\S+ (\d+)", after)]
        assert buckets == sorted(buckets)
        assert buckets[-1] == metric(after, count)
    assert metric(after, 'llamad:requests_total{endpoint="/completion",status="200"}') >= 1
    assert metric(after, 'llamad:requests_total{endpoint="other",status="404"}') >= 1
    assert metric(after, 'llamad:requests_total{endpoint="/",status="404"}') >= 1
    assert "/no/such/path" not in after


def test_only_running_requests_use_the_kv_cache_of_the_running_ratio():
    """A picker takes requests to where there is room; what idle slots keep is room, and worth going to."""
    with Faked(Fake(), "-np", "2", "--metrics") as server:

        def read(name):
            return metric(server.client.get("/metrics").body.decode(), name)

        prompt = {"prompt": "0123456789" * 4, "n_predict": 1}
        assert server.client.post("/completion", prompt).status == 200
        assert read("llamacpp:kv_cache_usage_ratio") >= 40 / 1024
        assert read("llamad:kv_cache_running_ratio") == 0
        server.fake.block(True)
        thread = threading.Thread(target=server.client.post, args=("/completion", prompt))
        thread.start()
        server.until(lambda: read("llamacpp:requests_processing") == 1)
        server.until(lambda: read("llamad:kv_cache_running_ratio") > 0)
        server.fake.block(False)
        thread.join(60)
        server.until(lambda: read("llamad:kv_cache_running_ratio") == 0)


def test_adapters_of_running_and_waiting_requests(tiny, tmp_path):
    files = [write_lora(tmp_path / f"{name}.gguf", tiny, seed) for name, seed in (("one", 1), ("two", 2))]
    named = ("--lora", f"one={files[0]}", "--lora", f"two={files[1]}", "--lora-scaled", f"{files[1]}:0.0")
    flags = ("-np", "1", "-c", "4096", "--metrics", "--no-warmup", "--alias", "base")
    with Live(*flags, *named, model=tiny) as live:

        def info():
            (found,) = LORA_INFO.findall(live.client.get("/metrics").body.decode())
            return found

        n_max, running, waiting, t = info()
        assert (n_max, running, waiting) == ("1", "", "")
        assert abs(float(t) - time.time()) < 600
        body = {"prompt": "Once upon", "n_predict": 1_000_000, "ignore_eos": True, "stream": True}
        first = live.client.events("/completion", {**body, "model": "base:one"})
        next(first)
        assert info()[1:3] == ("one", "")
        second = threading.Thread(
            target=live.client.post,
            args=("/completion", {"prompt": "Once", "n_predict": 2, "model": "two"}),
        )
        second.start()
        until(lambda: info()[2] == "two", "the second request")
        assert info()[1] == "one"
        first.close()  # the client leaves
        second.join(60)
        until(lambda: info()[1:3] == ("", ""), "their end")


def test_metrics_may_be_public():
    with Faked(Fake(), "--metrics", "--metrics-public", "--api-key", "k") as server:
        assert metric(server.client.get("/metrics").body.decode(), "llamad:engine_up") == 1
        assert server.client.get("/v1/loads").status == 401
    with Faked(Fake(), "--metrics", "--api-key", "k") as server:
        assert server.client.get("/metrics").status == 401
    with pytest.raises(FlagError, match="needs --metrics"):
        parse(["-m", "x.gguf", "--metrics-public"], {})
