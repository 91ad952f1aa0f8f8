"""GET /metrics, on the real program."""

import re
import time


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is missing"
    return float(found[1])


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
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
        "llamacpp:prompt_tokens_cached_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
        "llamacpp:spec_decode_num_drafts_total",
        "llamad:evicted_tokens_total",
        "llamad:reused_tokens_total",
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
