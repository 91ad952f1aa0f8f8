"""A model that nobody uses sleeps (--sleep-idle-seconds), and wakes for the next request that needs its engine."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.http_client import Answer, Client
from support.live_daemon import Live, engines, model_path, until
from support.media_files import image
from support.models.tiny_projectors import write_projector
from support.peer import llama_server

FLAGS = ("-np", "2", "-c", "1024", "--no-warmup", "--slots", "--metrics", "--props")
SLEEPY = (*FLAGS, "--sleep-idle-seconds", "1")
N_EMBD = 64  # of the tiny model
ASK = {"prompt": "The capital of France is", "n_predict": 4, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
# None of these needs an engine: a path, and the body of a POST.
NOT_WAKING: list[tuple[str, Any]] = [
    ("/health", None),
    ("/v1/health?include_slots", None),
    ("/props", None),
    ("/props", {"system_prompt": None}),
    ("/models", None),
    ("/v1/models", None),
    ("/metrics", None),
    ("/v1/loads", None),
    ("/api/tags", None),
    ("/api/ps", None),
    ("/api/show", {"model": "any"}),
    ("/lora-adapters", None),
    ("/sessions", None),
    ("/slots", None),
    ("/tokenize", {"content": "some text"}),
    ("/tokenize", {"content": "some text " * 5000}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/apply-template", CHAT),
    ("/v1/chat/completions/input_tokens", CHAT),
    ("/v1/responses/input_tokens", {"input": "Hello"}),
    ("/v1/messages/count_tokens", CHAT),
]
WAKING: list[tuple[str, Any]] = [
    ("/completion", ASK),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 2}),
    ("/v1/messages", {**CHAT, "max_tokens": 2}),
    ("/api/chat", {**CHAT, "options": {"num_predict": 2}}),
    ("/v1/slots/0/info", None),
]


def is_sleeping(client: Client) -> bool:
    return bool(client.get("/props").json["is_sleeping"])


def fall_asleep(server: Live) -> None:
    until(lambda: is_sleeping(server.client), "it does not sleep")
    until(lambda: not engines(server.process.pid), "its engine does not end")


def ask(client: Client, path: str, body: Any) -> Answer:
    return client.get(path) if body is None else client.post(path, body)


def counters(client: Client) -> dict[str, str]:
    """The counters of the model in /metrics."""
    lines = client.get("/metrics").body.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if re.match(r"llamacpp:\w+_total ", line))


@pytest.fixture(scope="module")
def sleepy() -> Iterator[Live]:
    with Live(*SLEEPY) as server:
        yield server


def test_what_needs_no_engine_neither_wakes_nor_keeps_awake(sleepy: Live) -> None:
    before = sleepy.client.complete(**ASK)
    counted = counters(sleepy.client)
    t_end = time.monotonic() + 10
    while not is_sleeping(sleepy.client):  # these requests do not keep it awake
        for path, body in NOT_WAKING:
            assert ask(sleepy.client, path, body).status == 200, path
        assert time.monotonic() < t_end
    until(lambda: not engines(sleepy.process.pid))
    for path, body in NOT_WAKING:
        answer = ask(sleepy.client, path, body)
        assert answer.status == 200, (path, answer.body)
    assert is_sleeping(sleepy.client)
    assert engines(sleepy.process.pid) == []
    assert sleepy.client.get("/models").json["data"][0]["status"] == {"value": "sleeping"}
    health = {"status": "ok", "slots_idle": 2, "slots_processing": 0}
    assert sleepy.client.get("/health").json == health
    (load,) = sleepy.client.get("/v1/loads").json["loads"]
    assert (load["num_free_slots"], load["utilization"]) == (2, 0)
    assert counters(sleepy.client) == counted
    assert sleepy.client.complete(**ASK)["content"] == before["content"]
    assert not is_sleeping(sleepy.client)
    assert sleepy.client.get("/models").json["data"][0]["status"] == {"value": "loaded"}


def test_answers_without_an_engine_are_those_of_an_awake_model(sleepy: Live) -> None:
    paths = [(path, body) for path, body in NOT_WAKING if "/health" not in path and "metrics" not in path]
    sleepy.client.complete(**ASK)
    awake = [ask(sleepy.client, path, body).json for path, body in paths]
    fall_asleep(sleepy)
    asleep = [ask(sleepy.client, path, body).json for path, body in paths]
    for (path, _), one, other in zip(paths, awake, asleep, strict=True):
        if path in ("/v1/loads", "/slots", "/api/ps"):  # the slots hold nothing any more, and no model runs
            continue
        for answer in (one, other):
            if path == "/props" and "is_sleeping" in answer:
                del answer["is_sleeping"]
            if path.endswith("/models"):
                del answer["data"][0]["status"]
        assert one == other, path


@pytest.mark.parametrize(("path", "body"), WAKING)
def test_what_needs_the_engine_wakes_it_and_waits(sleepy: Live, path: str, body: Any) -> None:
    fall_asleep(sleepy)
    answer = ask(sleepy.client, path, body)
    assert answer.status == 200, answer.body
    assert not is_sleeping(sleepy.client)


def test_eight_clients_at_once_wake_it_once(sleepy: Live) -> None:
    fall_asleep(sleepy)
    n_lines = len(sleepy.lines)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: sleepy.client.post("/completion", ASK), range(8)))
    assert [answer.status for answer in answers] == [200] * 8
    assert len({answer.json["content"] for answer in answers}) == 1
    lines = sleepy.lines[n_lines:]
    assert sum("waking the model" in line for line in lines) == 1
    assert sum("model ready" in line for line in lines) == 1


def test_a_client_that_leaves_while_it_wakes_costs_nothing(sleepy: Live) -> None:
    n_before = counters(sleepy.client)["llamacpp:prompt_tokens_total"]
    fall_asleep(sleepy)
    n_descriptors = sleepy.n_descriptors()
    streams = [sleepy.client.open_stream(ASK) for _ in range(4)]
    until(lambda: engines(sleepy.process.pid))
    for stream in streams:
        stream.close()
    until(lambda: sleepy.client.get("/models").json["data"][0]["status"] == {"value": "loaded"})
    assert counters(sleepy.client)["llamacpp:prompt_tokens_total"] == n_before
    fall_asleep(sleepy)  # nothing keeps it awake
    until(lambda: sleepy.n_descriptors() <= n_descriptors)


def test_requests_at_about_the_time_of_sleep_all_succeed(tiny: str) -> None:
    """Each comes a little before, at or after the moment when the model would sleep."""
    with Live(*SLEEPY, model=tiny) as server:
        n_woken = 0
        for i in range(24):
            time.sleep(0.97 + 0.005 * i)
            answer = server.client.post("/completion", ASK)
            assert answer.status == 200, answer.body
        n_woken = sum("waking the model" in line for line in server.lines)
        assert n_woken > 0
        assert not any("the model's engine ended" in line for line in server.lines)


def test_a_running_request_and_a_kept_stream_keep_it_awake() -> None:
    with Live(*SLEEPY) as server:
        long = {"prompt": "x", "n_predict": 500, "ignore_eos": True, "stream": True}
        connection = socket.create_connection((server.client.host, server.client.port))
        data = json.dumps(long).encode()
        head = "POST /completion HTTP/1.1\r\nHost: localhost\r\nX-Conversation-Id: one\r\n"
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        assert connection.recv(100)
        connection.close()  # the generation goes on
        while server.client.get("/health").json["slots_processing"]:
            assert not is_sleeping(server.client)
            time.sleep(0.05)
        assert server.client.get("/v1/stream?conv_id=one").status == 200
        fall_asleep(server)


def test_its_memory_comes_back() -> None:
    def rss(server: Live) -> int:
        """The resident bytes of the daemon and its children."""
        total = 0
        for pid in (server.process.pid, *engines(server.process.pid)):
            resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            assert resident is not None
            total += int(resident[1]) * 1024
        return total

    with Live(*SLEEPY) as server:
        server.client.complete(**ASK)
        awake = rss(server)
        fall_asleep(server)
        asleep = rss(server)
        n_weights = os.path.getsize(model_path())
        assert awake - asleep > n_weights
        for _ in range(3):
            server.client.complete(**ASK)
            fall_asleep(server)
        assert rss(server) < asleep + (8 << 20)


def test_a_session_that_was_saved_before_is_there_after() -> None:
    with Live(*SLEEPY) as server:
        first = server.client.complete(**ASK, id_slot=0)
        saved = server.client.post("/sessions/7?action=save&slot=0")
        assert saved.status == 200, saved.body
        fall_asleep(server)
        assert [one["id"] for one in server.client.get("/sessions").json] == [7]
        restored = server.client.post("/sessions/7?action=restore&slot=0")
        assert restored.status == 200, restored.body
        again = server.client.complete(**ASK, id_slot=0)
        assert again["content"] == first["content"]
        assert again["timings"]["cache_n"] > 0
        fall_asleep(server)
        state = server.client.post(
            "/slots/0?action=save-state"
        )  # a state of an engine that has just been started
        assert state.status in (200, 400), state.body


def test_a_wake_that_fails_says_why(tmp_path: Path, tiny: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(Path(tiny).read_bytes())
    with Live(*SLEEPY, model=str(path)) as server:
        fall_asleep(server)
        path.write_bytes(b"GGUF" + os.urandom(500))
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda _: server.client.post("/completion", ASK), range(3)))
        for answer in answers:
            assert answer.status == 500
            assert "The model cannot be served" in answer.error["message"]
        assert server.client.get("/health").status == 500
        assert server.client.post("/tokenize", {"content": "x"}).status == 500
        assert server.client.get("/models").json["data"][0]["status"] == {"value": "failed"}


def stopped_wake(server: Live) -> threading.Thread:
    """A request that waits for a wake that takes for ever."""
    fall_asleep(server)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(server.client.post("/completion", ASK)))
    thread.answers = answers  # type: ignore[attr-defined]
    thread.start()
    (engine,) = until(lambda: engines(server.process.pid))
    os.kill(engine, signal.SIGSTOP)
    return thread


def test_waiting_has_limits(tiny: str) -> None:
    with Live(*SLEEPY, "--queue-max", "2", "--request-timeout", "2", model=tiny) as server:
        thread = stopped_wake(server)
        t_start = time.monotonic()
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda _: server.client.post("/completion", ASK), range(5)))
        assert time.monotonic() - t_start < 10
        statuses = sorted(answer.status for answer in answers)
        assert set(statuses) == {408, 429}
        late = next(answer for answer in answers if answer.status == 408)
        assert "--request-timeout" in late.error["message"]
        thread.join()
        (engine,) = engines(server.process.pid)
        os.kill(engine, signal.SIGCONT)
        until(lambda: server.client.post("/completion", ASK).status == 200)


def test_an_engine_that_dies_while_it_wakes_is_started_again(tiny: str) -> None:
    with Live(*SLEEPY, model=tiny) as server:
        thread = stopped_wake(server)
        (engine,) = engines(server.process.pid)
        os.kill(engine, signal.SIGKILL)
        server.wait_line("the model's engine ended: it was killed")
        assert server.client.post("/completion", ASK).status == 200  # it waits as well
        thread.join()
        (answer,) = thread.answers  # type: ignore[attr-defined]
        assert answer.status == 200


@pytest.mark.parametrize("state", ["asleep", "waking"])
def test_it_can_be_stopped(state: str, tiny: str) -> None:
    with Live(*SLEEPY, "--drain-seconds", "30", model=tiny) as server:
        thread = None
        if state == "waking":
            thread = stopped_wake(server)
        else:
            fall_asleep(server)
        t_start = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
        assert time.monotonic() - t_start < 20
        if thread is not None:
            thread.join()
            (answer,) = thread.answers  # type: ignore[attr-defined]
            assert (answer.status, answer.error["message"]) == (503, "The server is shutting down")


def test_a_request_during_the_drain_delay_still_wakes_it(tiny: str) -> None:
    with Live(*SLEEPY, "--drain-delay-seconds", "5", model=tiny) as server:
        fall_asleep(server)
        server.signal(signal.SIGTERM)
        server.wait_line("draining")
        assert server.client.get("/health").status == 503
        assert server.client.post("/completion", ASK).status == 200
        assert server.wait_exit() == 0


def test_a_reload_turns_it_on_and_off(tiny: str, tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text("")
    with Live(*FLAGS, "--env-file", str(env_file), model=tiny) as server:
        time.sleep(1.5)
        assert not is_sleeping(server.client)
        env_file.write_text("LLAMA_ARG_SLEEP_IDLE_SECONDS=1")
        server.signal(signal.SIGHUP)
        fall_asleep(server)
        env_file.write_text("")
        server.signal(signal.SIGHUP)
        until(lambda: sum(line.endswith("reloaded") for line in server.lines) == 2)
        assert is_sleeping(server.client)  # until a request needs it
        server.client.complete(**ASK)
        time.sleep(2.5)
        assert not is_sleeping(server.client)


def test_systemd_is_told(tiny: str, tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(20)
        with Live(*SLEEPY, model=tiny, env={"NOTIFY_SOCKET": path}):
            while "STATUS=sleeping" not in notify.recv(65536).decode():
                pass


def compare(peer: Client, own: Client, read: Callable[[Client], Any]) -> None:
    assert read(own) == read(peer)


def test_beside_llama_server(sleepy: Live) -> None:
    """What both do in the same way. There, tokenizing, counting and /slots wake the model; here they do
    not."""
    flags = ("-np", "2", "-c", "1024", "--no-warmup", "--slots", "--metrics", "--sleep-idle-seconds", "1")
    with llama_server(model_path(), *flags) as peer:
        for client in (peer, sleepy.client):
            client.complete(**ASK)
        before = [counters(client) for client in (peer, sleepy.client)]
        assert before[0].keys() <= before[1].keys()
        for client in (peer, sleepy.client):
            until(lambda: is_sleeping(client))  # noqa: B023  (called at once)
        assert [counters(client) for client in (peer, sleepy.client)] == before
        compare(
            peer, sleepy.client, lambda one: (one.get("/health").status, one.get("/health").json["status"])
        )
        compare(peer, sleepy.client, lambda one: one.get("/props").json["is_sleeping"])
        compare(peer, sleepy.client, lambda one: one.get("/v1/models").status)
        compare(peer, sleepy.client, lambda one: one.get("/props").json["total_slots"])
        assert all(is_sleeping(client) for client in (peer, sleepy.client))
        tokens = {
            client: client.post("/tokenize", {"content": "some text"}).json
            for client in (peer, sleepy.client)
        }
        assert tokens[peer] == tokens[sleepy.client]
        assert (is_sleeping(peer), is_sleeping(sleepy.client)) == (False, True)
        until(lambda: is_sleeping(peer))
        for client in (peer, sleepy.client):
            assert client.get("/slots").status == 200
        assert (is_sleeping(peer), is_sleeping(sleepy.client)) == (False, True)
        until(lambda: is_sleeping(peer))
        for client in (peer, sleepy.client):
            assert client.complete(**ASK)["tokens_predicted"] == 4
            assert not is_sleeping(client)


def test_embeddings_wake_it(tiny: str) -> None:
    with Live(*SLEEPY, "--embeddings", "--pooling", "mean", model=tiny) as server:
        ask = {"content": "some text"}
        first = server.client.post("/embedding", ask).json
        fall_asleep(server)
        assert server.client.post("/embedding", ask).json == first


def media_processes(front: int) -> int:
    """The number of the front's processes that read images."""
    n = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_child = f"PPid:\t{front}\n" in Path(f"/proc/{name}/status").read_text()
            n += is_child and b"llamad.media" in Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            pass
    return n


def test_the_processes_that_read_images_sleep_too(tiny: str, tmp_path: Path) -> None:
    projector = write_projector(tmp_path / "projector.gguf", "janus_pro", N_EMBD)
    data = base64.b64encode(image()).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    chat = {
        "messages": [{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}],
        "max_tokens": 4,
    }
    count = "/v1/chat/completions/input_tokens"
    flags = (*SLEEPY, "-c", "4096", "--mmproj", projector, "--temp", "0", "--media-cache-bytes", "0")
    with Live(*flags, model=tiny) as server:
        first = server.client.post("/v1/chat/completions", chat).json["choices"][0]["message"]
        n_tokens = server.client.post(count, chat).json
        fall_asleep(server)
        until(lambda: media_processes(server.process.pid) == 0)  # they end after the engine
        assert server.client.get("/props").json["modalities"]["vision"]
        assert server.client.post(count, chat).json == n_tokens  # this needs the projector
        assert not is_sleeping(server.client)
        fall_asleep(server)
        assert server.client.post("/v1/chat/completions", chat).json["choices"][0]["message"] == first
