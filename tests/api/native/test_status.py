"""The endpoints that tell how the server is, on the real program."""

import re
from urllib.parse import quote

import pytest
from support.live_daemon import Live, model_path


def test_health(client):
    for path in ("/health", "/v1/health"):
        answer = client.get(path)
        assert (answer.status, answer.json) == (200, {"status": "ok", "slots_idle": 4, "slots_processing": 0})


def test_health_includes_slots_where_asked(client):
    assert [slot["id"] for slot in client.get("/health?include_slots").json["slots"]] == [0, 1, 2, 3]


def test_props(client):
    props = client.get("/props").json
    assert props["total_slots"] == 4
    assert props["model_path"] == model_path()
    assert props["assistant_name"] == props["user_name"] == ""
    assert "<|im_start|>" in props["chat_template"]
    assert re.fullmatch(r"b\d+-[0-9a-f]{7,}", props["build_info"])
    default = props["default_generation_settings"]
    assert default["n_ctx"] == 2048
    assert default["params"]["temperature"] == default["temperature"] == 0.8
    assert (default["top_k"], default["top_p"], default["min_p"]) == (40, 0.95, 0.05)
    assert default["next_token"]["n_decoded"] == 0


def test_post_props_is_behind_its_flag(client):
    assert client.post("/props", {}).json == {"success": True}


def test_models(client):
    for path in ("/v1/models", "/models"):
        listed = client.get(path).json
        (model,) = listed["data"]
        assert listed["object"] == "list"
        assert (model["id"], model["object"], model["owned_by"]) == ("smol", "model", "llamacpp")
        assert model["meta"]["n_vocab"] == 49152
        assert model["meta"]["n_ctx_train"] == 8192
        assert model["meta"]["n_params"] > 10**8


def test_one_model(client):
    for path in ("/v1/models", "/models"):
        (listed,) = client.get(path).json["data"]
        assert client.get(path + "/smol").json == listed
        refused = client.get(path + "/another/one")
        assert refused.status == 404
        assert refused.json["error"]["type"] == "not_found_error"
        assert '"another/one"' in refused.json["error"]["message"]
        assert '"smol"' in refused.json["error"]["message"]
    assert client.get("/v1/models/").status == 404


def test_a_model_whose_name_is_its_path():
    with Live("-c", "256") as live:
        (listed,) = live.client.get("/v1/models").json["data"]
        assert listed["id"].endswith(".gguf")
        for name in (listed["id"], quote(listed["id"], safe="")):
            assert live.client.get("/v1/models/" + name).json == listed


def test_slots_show_the_running_request(live, client):
    stream = client.open_stream(
        {"prompt": "Tell me a story", "n_predict": 400, "ignore_eos": True, "seed": 5}
    )
    stream.recv(4096)
    busy = [slot for slot in client.get("/slots").json if slot["is_processing"]]
    stream.close()
    (slot,) = busy
    assert slot["prompt"] == "Tell me a story"
    assert slot["state"] == 1
    assert slot["params"]["seed"] == slot["seed"] == 5
    assert slot["next_token"]["n_decoded"] > 0
    assert slot["next_token"]["n_remain"] == 400 - slot["next_token"]["n_decoded"]
    assert slot["id_task"] == slot["task_id"] > 0
    live.wait_idle()
    assert all(not slot["is_processing"] and slot["id_task"] == -1 for slot in client.get("/slots").json)


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
    client.get("/no/such/path")
    answer = client.get("/metrics")
    after = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/plain")
    for name, n in (("llamacpp:tokens_predicted_total", 12), ("llamacpp:prompt_tokens_total", 3)):
        assert metric(after, name) - metric(before, name) == n
    for name in (
        "llamacpp:prompt_tokens_seconds",
        "llamacpp:predicted_tokens_seconds",
        "llamacpp:kv_cache_usage_ratio",
        "llamacpp:kv_cache_tokens",
        "llamacpp:requests_processing",
        "llamacpp:requests_deferred",
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
    assert "/no/such/path" not in after


def test_unknown_paths_and_methods(client):
    assert client.get("/nope").status == 404
    assert client.get("/nope").error["type"] == "not_found_error"
    answer = client.get("/completion")
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]
    assert client.request("HEAD", "/health").status == 200
    assert client.request("OPTIONS", "/completion").status == 204


def test_request_ids_come_back(client):
    assert client.get("/health", headers={"X-Request-Id": "mine-17"}).headers["x-request-id"] == "mine-17"
    assert client.get("/health").headers["x-request-id"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("# a comment\n\nfrom-file\n")
    with Live("--api-key", "sk-one,sk-two", "--api-key-file", str(keys), "-c", "512") as server:
        yield server


def test_keys_open_the_endpoints(locked):
    body = {"prompt": "x", "n_predict": 1}
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"X-Api-Key": "Bearer sk-one"},
        {"Authorization": "sk-one"},
    ):
        answer = locked.client.post("/completion", body, headers=headers)
        assert answer.status == 401
        assert answer.error["message"] == "Invalid API Key"
        assert answer.error["type"] == "authentication_error"
    for headers in (
        {"Authorization": "Bearer sk-one"},
        {"authorization": "bearer sk-two"},
        {"X-Api-Key": "from-file"},
    ):
        assert locked.client.post("/completion", body, headers=headers).status == 200


def test_public_endpoints_need_no_key(locked):
    for path in ("/health", "/v1/health", "/models", "/v1/models", "/props"):
        assert locked.client.get(path).status == 200
    assert locked.client.request("OPTIONS", "/completion").status == 204
    for path in ("/slots", "/metrics"):
        assert locked.client.get(path).status == 401


def test_no_key_is_in_the_log_or_in_props(locked):
    locked.client.post("/completion", {"prompt": "x"}, headers={"Authorization": "Bearer wrong-secret"})
    text = "\n".join(locked.lines) + locked.client.get("/props").body.decode()
    for secret in ("sk-one", "sk-two", "from-file", "wrong-secret"):
        assert secret not in text


def test_what_is_off_says_so(locked):
    headers = {"X-Api-Key": "sk-one"}
    for method, path, words in (
        ("GET", "/slots", "--slots"),
        ("GET", "/metrics", "This server does not support metrics endpoint."),
        ("POST", "/props", "--props"),
    ):
        answer = locked.client.request(method, path, headers=headers)
        assert answer.status == 501
        assert answer.error["type"] == "not_supported_error"
        assert words in answer.error["message"]


def test_the_access_log_has_no_prompt_text(locked):
    secret = "xyzzy-prompt-text"
    locked.client.post(
        f"/completion?{secret}=1", {"prompt": secret, "n_predict": 1}, headers={"X-Api-Key": "sk-one"}
    )
    line = locked.wait_line(r'"POST /completion" 200').string
    assert "key-" in line
    assert not any(secret in one for one in locked.lines)
