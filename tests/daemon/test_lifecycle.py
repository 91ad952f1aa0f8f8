"""Starting, loading, draining and exiting of the real program."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live, engines, model_path, until

from llamad import __version__
from llamad.engine.testing.fake import Fake
from llamad.systemd import exit_codes


def test_the_socket_listens_and_health_says_503_while_loading():
    with Faked(Fake(), load=False) as server:
        for path in ("/health", "/v1/health"):
            answer = server.client.get(path)
            assert answer.status == 503
            assert answer.json.pop("progress")["stage"] == "load"
            assert answer.json == {
                "status": "loading model",
                "error": {"code": 503, "message": "Loading model", "type": "unavailable_error"},
                "progress": {"stage": "load"},
            }
        for method, path in (("POST", "/completion"), ("POST", "/tokenize"), ("GET", "/props")):
            answer = server.client.request(method, path, {"prompt": "x"} if method == "POST" else None)
            assert (answer.status, answer.error["message"]) == (503, "Loading model")
        assert server.client.get("/v1/models").status == 200


def test_sigterm_while_loading_exits_cleanly():
    with Live("-c", "512", ready=False) as server:
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        assert not any("model ready" in line for line in server.lines)


def test_a_model_that_cannot_be_loaded_leaves_a_server_that_says_why(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + os.urandom(500))
    with Live("-c", "512", model=str(broken), ready=False) as server:
        server.wait_line("could not be loaded")
        answer = server.client.get("/health")
        assert (answer.status, answer.json["status"]) == (500, "error")
        assert "broken.gguf" in answer.error["message"]
        assert server.client.post("/completion", {"prompt": "x"}).status == 500
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0


def test_sigterm_lets_a_running_request_finish_and_refuses_new_ones():
    with Live("-c", "2048", "--drain-seconds", "60") as server:
        stream = server.client.open_stream({"prompt": "x", "n_predict": 60, "ignore_eos": True})
        seen = stream.recv(4096)
        server.signal(signal.SIGTERM)
        server.wait_line("draining")
        answer = server.client.get("/health")
        assert (answer.status, answer.json["status"]) == (503, "draining")
        assert answer.error["type"] == "unavailable_error"
        assert server.client.post("/completion", {"prompt": "late"}).status == 503
        while True:
            data = stream.recv(65536)
            if not data:
                break
            seen += data
        assert b'"stop":true' in seen
        assert seen.endswith(b"0\r\n\r\n")
        assert server.wait_exit() == 0


def read_all(stream: socket.socket) -> bytes:
    seen = b""
    while data := stream.recv(65536):
        seen += data
    return seen


@pytest.mark.parametrize("delay", ["0", "2"])
def test_sigterm_to_all_processes_lets_a_running_request_finish(delay):
    """As systemd sends it with KillMode=control-group, whether requests are refused at once or after a delay."""
    flags = ("-c", "2048", "--drain-seconds", "120", "--drain-delay-seconds", delay)
    with Live(*flags) as server:
        stream = server.client.open_stream({"prompt": "x", "n_predict": 250, "ignore_eos": True})
        seen = stream.recv(4096)
        for pid in (*engines(server.process.pid), server.process.pid):
            os.kill(pid, signal.SIGTERM)
        seen += read_all(stream)
        assert b'"stop":true' in seen
        assert b'"error"' not in seen
        assert server.wait_exit() == 0


def test_sigterm_to_an_engine_that_loads_starts_another(tiny):
    with Live("-c", "256", model=tiny, ready=False) as server:
        (engine,) = until(lambda: engines(server.process.pid))
        os.kill(engine, signal.SIGTERM)
        server.wait_line(r"it got a SIGTERM; starting it again")
        server.wait_ready()
        assert engines(server.process.pid) != [engine]


def test_health_is_a_503_before_requests_are_refused():
    ask = {"prompt": "x", "n_predict": 1}
    with Faked(Fake(), "--drain-delay-seconds", "0.1", "--drain-seconds", "0") as server:
        server.loop.call_soon_threadsafe(server.daemon.stop)
        server.until(lambda: server.client.get("/health").status == 503)
        answer = server.client.get("/health")
        assert (answer.json["status"], answer.headers["connection"]) == ("draining", "close")
        answer = server.client.post("/completion", ask)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        asyncio.run_coroutine_threadsafe(server.daemon.drain(), server.loop).result(30)
        answer = server.client.post("/completion", ask)
        assert (answer.status, answer.error["message"]) == (503, "The server is shutting down")


def test_what_does_not_finish_in_time_is_told_and_the_exit_is_clean(tiny):
    with Live("-c", "2048", "--drain-seconds", "0.3", model=tiny) as server:
        stream = server.client.open_stream({"prompt": "x", "n_predict": -1, "ignore_eos": True})
        seen = stream.recv(4096)
        server.signal(signal.SIGTERM)
        while data := stream.recv(65536):
            seen += data
        assert b'data: {"error":{"code":503' in seen
        assert server.wait_exit() == 0


def test_a_second_signal_exits_now(tiny):
    with Live("-c", "2048", "--drain-seconds", "600", model=tiny) as server:
        stream = server.client.open_stream({"prompt": "x", "n_predict": -1, "ignore_eos": True})
        stream.recv(4096)
        server.signal(signal.SIGINT)
        server.wait_line("draining")
        server.signal(signal.SIGINT)
        assert server.wait_exit() == 1
        stream.close()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llamad", *arguments], capture_output=True, text=True, timeout=60
    )


def test_version_and_help():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith(f"llamad {__version__} (llama.cpp b0-")
    done = run("--help")
    assert done.returncode == 0
    assert "--ctx-size" in done.stdout


def test_the_devices_are_listed():
    done = run("--list-devices", "-m", "no/such.gguf")
    assert done.returncode == 0
    first, *rest = done.stdout.splitlines()
    assert first == "Available devices:"
    assert all(re.fullmatch(r"  (\(none\)|\w+: .* \(\d+ MiB, \d+ MiB free\))", line) for line in rest)
    assert rest
    assert done.stderr == ""


def test_bash_completes_flags_choices_and_files(tmp_path):
    (tmp_path / "a.gguf").write_text("")
    (tmp_path / "a.txt").write_text("")
    script = run("--completion-bash").stdout
    for words, found in (
        (["--ctx-si"], ["--ctx-size"]),
        (["--cache-type-k", "q8"], ["q8_0"]),
        (["-m", "a"], ["a.gguf"]),
        (["--no-such"], []),
    ):
        line = f"COMP_WORDS=(llamad {' '.join(words)}); COMP_CWORD={len(words)}; _llamad; "
        ask = line + 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(
            ["bash", "-c", script + ask], capture_output=True, text=True, cwd=tmp_path, check=True
        )
        assert done.stdout.split() == found, words


def test_the_log_is_tested():
    done = run("--log-test", "--log-format", "text", "--verbosity", "2")
    assert done.returncode == 0
    assert [line.split(" test: ")[1] for line in done.stderr.splitlines()] == [
        "a line of level warning",
        "a line of level error",
        "a line of level critical",
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-m", "no/such.gguf", "--no-such-flag"], "--no-such-flag"),
        (["-m", "x.gguf", "--port", "99999"], "65535"),
        (["-m", "x.gguf", "--rpc", "a:1,b"], "'b' is not HOST:PORT"),
    ],
)
def test_wrong_flags_stop_with_one_line(flags, words):
    done = run(*flags)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_stops_with_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("-m", model_path(), "--port", str(port), "--log-disable")
        assert done.returncode == exit_codes.LISTEN_FAILED
        assert str(port) in done.stderr
        assert "Address already in use; choose another --host or --port" in done.stderr
        assert done.stderr.count("\n") == 1


def test_slots_and_context_that_cannot_fit_are_refused_with_the_estimate():
    with Live("-np", "64", "-c", str(64 * 131072), ready=False) as server:
        line = server.wait_line(r"takes \S+ GiB of this machine").string
        assert "a context of 8388608 tokens" in line
        assert "lower -c" in line
        assert server.client.get("/health").status == 500


def test_more_slots_than_a_batch_holds_are_refused(tiny):
    with Live("-np", "32", "-b", "16", "-c", "8192", model=tiny, ready=False) as server:
        server.wait_line("--batch-size 16 is smaller than --parallel 32")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-c", "8", "-np", "16"], "--ctx-size 8 over --parallel 16"),
        (["-c", "8", "-np", "16", "--kv-unified"], "--ctx-size 8 over --parallel 16"),
        (["--attention", "non-causal"], "--attention non-causal"),
    ],
)
def test_flags_that_would_abort_llama_cpp_are_refused(tiny, flags, words):
    with Live(*flags, model=tiny, ready=False) as server:
        server.wait_line(re.escape(words))


def test_a_trace_that_cannot_be_written_stops_the_start(tiny):
    done = run("-m", tiny, "--step-trace", "/no/such/folder/trace", "--log-disable")
    assert done.returncode == 1
    assert "--step-trace" in done.stderr
    assert done.stderr.count("\n") == 1


def test_sigterm_while_a_worker_is_inside_llama_cpp_is_clean(tiny):
    """Tokenizing tens of thousands of special tokens takes llama.cpp seconds; the model must not be freed under it."""
    with Live("-c", "512", "--drain-seconds", "0.2", model=tiny) as server:
        data = json.dumps({"content": "<|im_end|>" * 40_000}).encode()
        with socket.create_connection((server.client.host, server.client.port)) as connection:
            head = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
            connection.sendall(head.encode() + data)
            time.sleep(0.3)
            server.signal(signal.SIGTERM)
            assert server.wait_exit() == 0


def test_a_unix_socket_serves(tmp_path, tiny):
    path = tmp_path / "llamad.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "llamad", "-m", tiny, "-t", "1", "-c", "512", "--host", str(path)],
        stderr=subprocess.DEVNULL,
    )
    try:
        status = b""
        t_end = time.monotonic() + 60
        while b" 200 " not in status and time.monotonic() < t_end:
            time.sleep(0.05)
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(str(path))
                    connection.sendall(
                        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                    )
                    status = connection.recv(4096)
            except (FileNotFoundError, ConnectionRefusedError):
                pass
        assert b" 200 " in status
    finally:
        process.terminate()
        assert process.wait(30) == 0
    assert not path.exists()


def drain(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass


def test_no_step_of_a_long_prompt_lacks_the_running_streams_token(tmp_path, tiny):
    """One stream decodes while a prompt of 4,000 tokens arrives: no step lacks the stream's token, none is over
    its budget."""
    trace = tmp_path / "trace.jsonl"
    with Live("-np", "2", "-c", "9216", "--step-trace", str(trace), model=tiny) as server:
        stream = server.client.open_stream({"prompt": "x", "n_predict": -1, "ignore_eos": True, "id_slot": 0})
        stream.recv(4096)
        # Read all the while: an unread stream would be paused, which is right, but not what this shows.
        threading.Thread(target=drain, args=(stream,), daemon=True).start()
        result = server.client.complete("word " * 4000, n_predict=1, id_slot=1)
        assert result["tokens_evaluated"] >= 4000
        stream.shutdown(socket.SHUT_RDWR)
        server.wait_idle()
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
    steps = [json.loads(line) for line in trace.read_text().splitlines()]
    reading = [step for step in steps if any(slot == 1 and not writing for slot, _, writing in step["slots"])]
    assert sum(n for step in reading for slot, n, _ in step["slots"] if slot == 1) >= 4000
    for step in reading:
        assert [0, 1, True] in step["slots"]
        assert step["n_tokens"] <= step["budget"]
    assert len(reading) > 8


def test_logs_as_json_and_to_a_file(tmp_path, tiny):
    path = tmp_path / "llamad.log"
    with Live("-c", "512", "--log-format", "json", "--log-file", str(path), model=tiny) as server:
        server.client.get("/props")
        server.wait_line('"path":"/props"')
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {"time", "level", "name", "message"} <= set(rows[0])
    assert [row["status"] for row in rows if row.get("path") == "/props"] == [200]
    assert any("listening on" in row["message"] for row in rows)


def test_logs_are_json_but_on_a_terminal():
    rows = [json.loads(line) for line in run("--log-test").stderr.splitlines()]
    assert [row["level"] for row in rows] == ["info", "warning", "error", "critical"]
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-m", "llamad", "--log-test"], stderr=theirs, timeout=60, check=True)
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert re.search(r" I test: a line of level info\r?\n", shown)


def test_environment_variables_set_flags_and_the_flag_wins(tiny):
    env = {"LLAMA_ARG_CTX_SIZE": "512", "LLAMA_ARG_N_PARALLEL": "2", "LLAMA_ARG_ENDPOINT_METRICS": "1"}
    with Live("-np", "1", env=env, model=tiny) as server:
        assert server.client.get("/props").json["total_slots"] == 1
        assert server.client.get("/props").json["default_generation_settings"]["n_ctx"] == 512
        assert server.client.get("/metrics").status == 200
        assert any("LLAMA_ARG_N_PARALLEL" in line for line in server.lines)


def test_the_program_is_installed():
    program = Path(sys.executable).parent / "llamad"
    if not program.exists():
        pytest.fail("`make build` installs .venv/bin/llamad")
    assert subprocess.run([program, "--version"], capture_output=True, timeout=60).returncode == 0


def test_the_prompt_is_logged_only_where_asked(tiny, live):
    with Live("-c", "512", "--log-prompts", model=tiny) as asked:
        for server in (asked, live):
            n_before = len(server.lines)
            server.client.complete("xyzzy plugh", n_predict=1)
            t_end = time.monotonic() + 60
            while not any("POST /completion" in line for line in server.lines[n_before:]):
                assert time.monotonic() < t_end, "the request was not logged"
                time.sleep(0.005)
            assert any("xyzzy plugh" in line for line in server.lines) is (server is asked)


def test_llama_cpps_own_log_reaches_ours_where_asked(tiny, live):
    with Live("-c", "512", "-v", model=tiny) as server:
        server.wait_line(r"D llama\.cpp: .*llama_model_loader")
    assert not any("llama_model_loader" in line for line in live.lines)


def test_what_is_slow_to_import_and_seldom_needed_does_not_delay_the_start():
    """NumPy alone takes as long as all the rest; the model's file is opened before the other imports."""
    code = (
        "import sys, llamad.__main__; early = set(sys.modules); import llamad.daemon; "
        "print(sorted({'numpy'} & set(sys.modules)), sorted({'asyncio', 'jinja2', 'llamad.daemon'} & early))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "[] []"
