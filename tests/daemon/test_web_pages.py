"""The whole daemon against web pages: what a browser sends for them, and what they get."""

import socket

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live

from llamad.engine.testing.fake import Fake

EVIL = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
POSTS = (
    "/completion",
    "/v1/chat/completions",
    "/v1/messages",
    "/tokenize",
    "/infill",
    "/props",
    "/slots/0?action=erase",
)


@pytest.fixture(scope="module")
def open_server():
    with Faked(Fake(), "-np", "1", "--slots", "--props") as server:
        yield server


def test_a_foreign_page_cannot_cost_tokens_or_change_anything(open_server):
    client = open_server.client
    for path in POSTS:
        answer = client.post(path, {"prompt": "x"}, headers=EVIL)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
        error = answer.json["error"]
        assert error["type"] == "permission_error"
    assert open_server.fake.n_decodes == 0
    assert client.get("/props", headers=EVIL).headers.get("access-control-allow-origin") is None
    answer = client.post(
        "/completion", {"prompt": "x", "n_predict": 1}, headers={"Origin": "http://localhost:5173"}
    )
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "http://localhost:5173")


def test_a_name_pointed_at_loopback_is_refused(open_server):
    for path in ("/health", "/props", "/v1/models"):
        answer = open_server.client.get(path, headers={"Host": "evil.example:8080"})
        assert answer.status == 421
        assert answer.error["type"] == "invalid_request_error"
    assert open_server.client.get("/health", headers={"Host": "localhost"}).status == 200


def test_with_keys_pages_need_a_key_like_anybody():
    with Faked(Fake(), "--api-key", "k") as server:
        assert server.client.post("/completion", {"prompt": "x"}, headers=EVIL).status == 401
        asked = {**EVIL, "Authorization": "Bearer k"}
        answer = server.client.post("/completion", {"prompt": "x", "n_predict": 1}, headers=asked)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://evil.example")
        asked = {"Origin": "https://a", "Access-Control-Request-Method": "POST"}
        answer = server.client.request("OPTIONS", "/completion", headers=asked)
        assert (answer.status, answer.headers["access-control-allow-methods"]) == (
            200,
            "GET, POST, DELETE, OPTIONS",
        )


def test_the_flags_of_a_proxied_server():
    flags = ("--allowed-hosts", "llm.example", "--cors-origins", "https://app.example")
    with Faked(Fake(), *flags, "--cors-credentials", "--cors-headers", "X-A") as server:
        headers = {"Host": "llm.example", "Origin": "https://app.example"}
        answer = server.client.post("/tokenize", {"content": "x"}, headers=headers)
        assert (answer.status, answer.headers["access-control-allow-credentials"]) == (200, "true")
        assert server.client.post("/tokenize", {}, headers={"Origin": "http://localhost"}).status == 403
        assert server.client.post("/tokenize", {}, headers={"Host": "other.example"}).status == 421


def test_a_container_without_keys_is_no_strangers_page(tiny):
    """It listens on all addresses of its own, whatever it is published on."""
    with Live("--host", "0.0.0.0", "-c", "256", model=tiny) as server:
        client = server.client
        for path in ("/health", "/props", "/v1/models", "/slots"):
            assert client.get(path, headers={"Host": "evil.example:8080"}).status == 421, path
        for host in ("localhost:8080", "10.0.0.7", "llamad", "host.docker.internal", socket.gethostname()):
            assert client.get("/props", headers={"Host": host}).status == 200, host
