"""What a client may make the daemon hold before it has shown a key, and on paths that take no body."""

import socket

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live, model_path
from support.models.tiny_model import write_tiny

from llamad.engine.testing.fake import Fake
from llamad.http.router import SMALL_BODY

BODYLESS = (
    "/health",
    "/v1/health",
    "/props",
    "/v1/models",
    "/models/fake.gguf",
    "/slots",
    "/metrics",
    "/sessions",
)
SMALL = (
    "/lora-adapters",
    "/slots/0?action=erase",
    "/slots/0?action=context-shift",
    "/sessions/1?action=remove",
)


def send_head(server, method, path, *lines):
    sock = socket.create_connection((server.client.host, server.client.port), timeout=20)
    head = "".join(f"{line}\r\n" for line in lines)
    sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
    return sock


def status_of(sock):
    return int(sock.recv(65536).split(b" ")[1])


@pytest.fixture(scope="module")
def server():
    with Faked(Fake(), "--slots", "--metrics", "--props", "--body-max-bytes", "1M") as server:
        yield server


def test_a_path_without_a_body_refuses_one_by_its_head(server):
    for method, paths in (("GET", BODYLESS), ("POST", SMALL)):
        for path in paths:
            with send_head(server, method, path, f"Content-Length: {SMALL_BODY + 1}") as sock:
                assert status_of(sock) == 413, path
            with send_head(server, method, path, "Transfer-Encoding: chunked") as sock:
                sock.sendall(b"%x\r\n" % (SMALL_BODY + 1))
                assert status_of(sock) == 413, path
    # What clients send with everything is no harm.
    assert server.client.request("GET", "/health", {}).status == 200
    assert server.client.post("/props", {}).status == 200


def test_without_a_key_no_body_is_read():
    with Faked(Fake(), "--api-key", "k") as server:
        for path in (
            "/completion",
            "/v1/chat/completions",
            "/v1/messages",
            "/v1/embeddings",
            "/slots/0?action=x",
        ):
            with send_head(server, "POST", path, "Content-Length: 60000000") as sock:
                assert status_of(sock) == 401, path  # before one byte of it was sent
        assert server.daemon.http.budget.n_bytes == 0


@pytest.mark.parametrize("path", ["/completion", "/health"])
def test_many_large_bodies_without_a_key_cost_no_memory(path, tmp_path):
    model = write_tiny(tmp_path / "tiny.gguf", model_path())
    with Live("--api-key", "k", "-c", "256", model=model) as live:
        before = live.rss_bytes()
        socks = [
            send_head(live, "POST" if path != "/health" else "GET", path, "Content-Length: 60000000")
            for _ in range(20)
        ]
        for sock in socks:
            try:
                sock.sendall(b"x" * 10_000_000)
            except OSError:
                pass  # refused, and closed
        assert live.client.get("/health").status == 200
        assert live.rss_bytes() - before < 40 * 2**20
        for sock in socks:
            sock.close()
