"""Routing, API keys and the endpoints that are off, on the real program."""

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live

from llamad.engine.testing.fake import Fake


def test_unknown_paths_and_methods(client):
    assert client.get("/nope").status == 404
    assert client.get("/nope").error["type"] == "not_found_error"
    answer = client.get("/completion")
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]
    assert client.request("HEAD", "/health").status == 200
    assert client.request("OPTIONS", "/completion").status == 200


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
    assert locked.client.request("OPTIONS", "/completion").status == 200
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
        ("GET", "/metrics", "This server does not support metrics endpoint. Start it with `--metrics`"),
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


def test_a_prefix_stands_before_every_path(caplog):
    caplog.set_level("INFO")
    with Faked(Fake(), "--api-prefix", "/llm/v2", "--slots", "--metrics") as server:
        client = server.client
        assert client.get("/llm/v2/health").status == 200
        assert client.get("/llm/v2/slots").status == 200
        assert client.post("/llm/v2/completion", {"prompt": "x", "n_predict": 1}).status == 200
        refused = client.post("/llm/v2/v1/messages", {"messages": 1})
        assert (refused.status, refused.json["type"]) == (400, "error")  # Anthropic's shape
        for path in ("/", "/health", "/llm", "/llm/v2x/health", "/props", "/llm/v2/llm/v2/health"):
            assert client.get(path).status == 404, path
        page = client.get("/llm/v2")
        assert (page.status, page.headers["location"]) == (301, "./v2/")
        assert client.get("/llm/v2/").headers["content-type"] == "text/html; charset=utf-8"
        assert 'endpoint="/completion"' in client.get("/llm/v2/metrics").body.decode()
        server.until(lambda: any('"POST /llm/v2/completion" 200' in line for line in caplog.messages))
