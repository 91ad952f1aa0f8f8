"""The page at `/`: served to anybody, at once, and replaced or turned off by flags."""

import subprocess
import sys

import pytest
from support.fake_daemon import Faked
from support.live_daemon import model_path

from llamad.api.service.page import PAGE, POLICY
from llamad.engine.testing.fake import Fake


@pytest.fixture(scope="module")
def locked():
    """Keys are set, and the model never loads."""
    with Faked(Fake(), "--api-key", "k", load=False) as server:
        yield server


def test_the_page_needs_no_key_and_no_model(locked):
    assert locked.client.get("/health").status == 503
    for path in ("/", "/index.html", "/completion.js"):
        answer = locked.client.get(path)
        assert answer.status == 200
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.body == (PAGE / "completion.js").read_bytes()
    assert locked.client.post("/completion", {"prompt": "x"}).status == 401


def test_endpoints_come_first(locked):
    assert locked.client.get("/completion").status == 405
    assert locked.client.get("/slots/1").status == 405
    assert locked.client.post("/nope").status == 404
    assert locked.client.get("/nope").error["type"] == "not_found_error"
    assert locked.client.request("OPTIONS", "/").headers["allow"] == "GET, HEAD, OPTIONS"
    assert locked.client.get("/", headers={"Host": "evil.example"}).status == 421


def test_metrics_know_files_as_one_endpoint():
    with Faked(Fake(), "--metrics") as server:
        for path in ("/", "/completion.js", "/nope/1", "/nope/2"):
            server.client.get(path)
        text = server.client.get("/metrics").body.decode()
        assert 'endpoint="/"' in text
        assert "nope" not in text


def test_a_folder_replaces_the_page(tmp_path):
    (tmp_path / "index.html").write_text("<script>mine()</script>")
    with Faked(Fake(), "--path", str(tmp_path)) as server:
        answer = server.client.get("/")
        assert answer.body == b"<script>mine()</script>"
        assert "content-security-policy" not in answer.headers  # its own scripts may be inline
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert server.client.get("/completion.js").body == (PAGE / "completion.js").read_bytes()
        (tmp_path / "completion.js").write_text("mine")
        assert server.client.get("/completion.js").body == b"mine"
        (tmp_path / "index.html").unlink()
        assert server.client.get("/").status == 404
        (tmp_path / "health").write_text("no")
        assert server.client.get("/health").json["status"] == "ok"
        assert server.client.get("/props").json["ui"] is True


def test_no_page(tmp_path, caplog):
    with Faked(Fake(), "--no-ui", "--path", str(tmp_path), "--api-prefix", "/llm") as server:
        for path in ("/llm", "/llm/completion.js", "/llm/index.html"):
            assert server.client.get(path).error["type"] == "not_found_error"
        # Clients of Ollama look for these words.
        assert server.client.get("/llm/").body == b"Ollama is running"
        assert server.client.request("HEAD", "/llm/").status == 200
        assert server.client.get("/llm/health").status == 200
        assert server.client.get("/llm/props").json["ui"] is False
    assert "--path has no effect: --no-ui turns all files off" in caplog.text


@pytest.mark.parametrize("command", [[], ["check"]])
def test_a_folder_that_is_not_there_stops_the_start(tmp_path, command):
    flags = ["-m", model_path(), "--port", "0", "--path", str(tmp_path / "nope")]
    done = subprocess.run(
        [sys.executable, "-m", "llamad", *command, *flags], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"--path {tmp_path}/nope: No such file or directory; name a folder" in done.stderr
