"""What the access log says of a request, on the real program: why it failed, and nothing of probes that succeed."""

from support.fake_daemon import Faked
from support.live_daemon import Live

from llamad.engine.testing.fake import Fake


def test_an_errors_message_is_in_its_line(tiny):
    with Live("-c", "512", "--api-key", "k", model=tiny) as server:
        key = {"Authorization": "Bearer k"}
        server.client.post("/completion", {"prompt": "x"})
        server.wait_line(r'"POST /completion.?" 401 .* - error=.?"Invalid API Key.?"$')
        server.client.request("GET", "/nowhere", headers=key)
        server.wait_line(r'"GET /nowhere.?" 404 .*File Not Found')
        server.client.request("PATCH", "/props", headers=key)
        server.wait_line(r'"PATCH /props.?" 405 .*PATCH is not allowed here; use GET or')
        server.client.request("POST", "/completion", {"prompt": "x", "top_k": "many"}, headers=key)
        server.wait_line(r'"POST /completion.?" 400 .*top_k')
        server.client.request("POST", "/v1/messages", {"messages": 1}, headers=key)
        server.wait_line(r'"POST /v1/messages.?" 400 .*messages')
        server.client.request("POST", "/completion", {"prompt": "x", "n_predict": 1}, headers=key)
        server.wait_line(
            r'"POST /completion.?" 200 \d+ [\d.]+ms key-\w+ model=tiny.gguf tokens_in=\d+ .* finish=length$'
        )


def test_probes_that_succeed_are_logged_for_debugging_only(tiny):
    for flags, is_logged in (((), False), (("-v",), True)):
        with Live("-c", "512", "--metrics", *flags, model=tiny) as server:
            for path in ("/health", "/v1/health", "/metrics", "/props"):
                assert server.client.get(path).status == 200
            server.wait_line("GET /props")
            for path in ("/health", "/v1/health", "/metrics"):
                assert any(f'GET {path}" 200' in line for line in server.lines) is is_logged, path


def test_a_probe_that_fails_is_logged(caplog):
    caplog.set_level("INFO")
    with Faked(Fake(), load=False) as server:
        assert server.client.get("/health").status == 503
        server.until(lambda: any('"GET /health" 503' in line for line in caplog.messages))
    (line,) = [line for line in caplog.messages if "GET /health" in line]
    assert line.endswith(' - error="Loading model"')


def test_a_stream_that_ends_with_an_error_says_why(caplog):
    caplog.set_level("INFO")
    with Faked(Fake()) as server:
        stream = server.client.open_stream({"prompt": "x", "n_predict": -1, "ignore_eos": True})
        assert stream.recv(4096)
    lines = [line for line in caplog.messages if '"POST /completion" 200' in line]
    assert [line.split(" finish=")[1] for line in lines] == ['drain error="The server is shutting down"']
