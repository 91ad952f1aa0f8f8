"""A model over two RPC workers on this machine: its answers, and what a worker that dies, hangs or is none costs."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.live_daemon import WAIT_SECONDS, Live, engines, until
from support.models.tiny_adapters import write_lora
from support.rpc import workers as rpc_workers
from support.rpc.workers import Behaviour, Pretender, RpcWorker, free_port, worker

from llamad.flags.parse import parse
from llamad.models import stalls
from llamad.models.host import Host

FLAGS = ("-np", "2", "-c", "1024", "--slots", "--embedding", "--pooling", "mean")
# Of a vector of length 1: this process's CPU may multiply in other ways (AMX) than a worker's device.
NEAR = 1e-3
GREEDY = {"n_predict": 24, "temperature": 0, "ignore_eos": True, "cache_prompt": False}


@pytest.fixture(scope="module")
def workers() -> Iterator[list[RpcWorker]]:
    with RpcWorker() as first, RpcWorker() as second:
        yield [first, second]


@pytest.fixture(scope="module")
def adapter(tiny: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Flags of an adapter that acts only where a request asks for it."""
    path = write_lora(tmp_path_factory.mktemp("lora") / "lora.gguf", tiny, seed=1)
    return ("--lora", path, "--lora-init-without-apply")


@pytest.fixture(scope="module")
def split(tiny: str, adapter: tuple[str, ...], workers: list[RpcWorker]) -> Iterator[Live]:
    """Both hold a part: each has a layer or more."""
    endpoints = ",".join(one.endpoint for one in workers)
    with Live(*FLAGS, *adapter, "--rpc", endpoints, "-ts", "1,1", model=tiny) as live:
        yield live


@pytest.fixture(scope="module")
def alone(tiny: str, adapter: tuple[str, ...]) -> Iterator[Live]:
    with Live(*FLAGS, *adapter, model=tiny) as live:
        yield live


@pytest.fixture
def server(split: Live) -> Live:
    split.wait_ready()
    return split


def text(server: Live, prompt: str = "Once upon a time", **options: Any) -> str:
    return str(server.client.complete(prompt, **GREEDY, **options)["content"])


def vector(server: Live, words: str) -> list[float]:
    data = server.client.post("/v1/embeddings", {"input": words}).json["data"]
    return list(data[0]["embedding"])


def unavailable(server: Live, endpoint: str) -> dict[str, Any]:
    """/health, once it is a 503 that names the endpoint."""

    def told() -> dict[str, Any] | None:
        answer = server.client.get("/health")
        is_told = answer.status == 503 and f"RPC worker {endpoint}: " in answer.json["error"]["message"]
        return answer.json if is_told else None

    error: dict[str, Any] = until(told, "nobody says which worker is missing")
    return error


# Answers.


def test_it_answers_as_on_one_machine(server: Live, alone: Live) -> None:
    for prompt in ("Once upon a time", "The quick brown fox", "Hello " * 200):
        assert text(server, prompt) == text(alone, prompt)
    assert vector(server, "a vector") == pytest.approx(vector(alone, "a vector"), abs=NEAR)


def test_adapters_act_as_on_one_machine(server: Live, alone: Live) -> None:
    with_it = {"lora": [{"id": 0, "scale": 1.0}]}
    assert text(server, **with_it) == text(alone, **with_it) != text(alone)


def test_both_workers_hold_a_part(server: Live, workers: list[RpcWorker]) -> None:
    assert server.client.get("/props").json["settings"]["rpc"] == [one.endpoint for one in workers]
    for one in workers:
        server.wait_line(f"RPC worker {one.endpoint} .* has 1 device: ")
        status = Path(f"/proc/{one.process.pid}/status").read_text()
        assert int(status.split("RssAnon:")[1].split()[0]) > 1000


def test_embeddings_beside_texts_change_neither(server: Live, alone: Live) -> None:
    """A worker computes its last graph again when it is told to, whichever context sent that."""
    expected, wanted = text(alone), vector(alone, "beside it")
    is_over = threading.Event()
    wrong: list[list[float]] = []

    def embed() -> None:
        while not is_over.is_set():
            embedding = vector(server, "beside it")
            if embedding != pytest.approx(wanted, abs=NEAR):
                wrong.append(embedding)

    threads = [threading.Thread(target=embed) for _ in range(2)]
    for thread in threads:
        thread.start()
    texts = {text(server) for _ in range(10)}
    is_over.set()
    for thread in threads:
        thread.join()
    assert texts == {expected}
    assert wrong == []


def test_a_state_comes_and_goes(server: Live) -> None:
    first = server.client.complete("The quick brown fox", n_predict=8, temperature=0, id_slot=0)
    saved = server.client.post("/slots/0?action=save-state", {})
    assert saved.status == 200
    assert server.client.post("/slots/1?action=restore-state", {"state": saved.json["state"]}).status == 200
    again = server.client.complete(
        "The quick brown fox" + first["content"], n_predict=4, temperature=0, id_slot=1
    )
    assert again["timings"]["cache_n"] > 4


# A worker that goes.


def test_a_worker_that_dies_is_missed_at_once_and_waited_for(
    server: Live, alone: Live, workers: list[RpcWorker]
) -> None:
    """Nobody has asked anything meanwhile, and more starts than an engine has are not used up."""
    workers[1].kill()
    told = unavailable(server, workers[1].endpoint)
    assert told["status"] == "restarting"
    assert told["progress"] == {"stage": "workers"}
    assert "Connection refused" in told["error"]["message"]
    refused = server.client.post("/completion", {"prompt": "a"})
    assert (refused.status, refused.error["type"]) == (503, "unavailable_error")
    assert int(refused.headers["retry-after"]) > 0
    assert server.client.get("/v1/models").status == 200
    assert engines(server.process.pid) == []
    workers[1].start()
    server.wait_ready()
    assert text(server) == text(alone)


def test_a_worker_that_dies_costs_the_running_requests(
    server: Live, alone: Live, workers: list[RpcWorker]
) -> None:
    body = {"prompt": "Once upon a time", "n_predict": 900, "ignore_eos": True, "stream": True}
    stream = server.client.open_stream(body).makefile("rb")
    events = (json.loads(line[6:]) for line in stream if line.startswith(b"data: {"))
    assert "content" in next(events)
    workers[0].kill()
    error = next(event["error"] for event in events if "error" in event)
    assert (error["code"], error["type"]) == (500, "server_error")
    unavailable(server, workers[0].endpoint)
    workers[0].start()
    server.wait_ready()
    assert text(server) == text(alone)


def test_a_worker_that_hangs_is_given_up_and_waited_for(tiny: str) -> None:
    with (
        RpcWorker() as hanging,
        Live("--rpc", hanging.endpoint, "--engine-stall-seconds", "2", model=tiny) as live,
    ):
        hanging.signal(signal.SIGSTOP)
        answer = live.client.post("/completion", {"prompt": "a", "n_predict": 4})
        assert (answer.status, answer.error["type"]) == (500, "server_error")
        told = unavailable(live, hanging.endpoint)["error"]["message"]
        assert "it hangs: it has had work for" in told
        assert "serves one client at a time" in told
        hanging.signal(signal.SIGCONT)
        live.wait_ready()


def test_another_version_after_a_restart_is_waited_out(server: Live, workers: list[RpcWorker]) -> None:
    """The operator may still put it right; the daemon goes on."""
    workers[1].kill()
    unavailable(server, workers[1].endpoint)
    with Pretender(worker(version=(1, 0, 0)), int(workers[1].endpoint.rpartition(":")[2])):
        until(
            lambda: "it speaks version 1.0" in server.client.get("/health").json["error"]["message"],
            "nobody says what is wrong",
        )
    workers[1].start()
    server.wait_ready()


# The start.


def test_a_worker_may_come_up_later(tiny: str) -> None:
    with RpcWorker() as late:
        late.kill()
        with Live(*FLAGS, "--rpc", late.endpoint, "--api-key", "k", model=tiny, ready=False) as live:
            live.wait_line(f"RPC worker {late.endpoint}: no connection: Connection refused; waiting for it")
            public = live.client.get("/health")
            assert (public.status, public.json["status"]) == (503, "loading model")
            assert public.json["error"]["message"] == "Loading model"
            own = live.client.get("/health", headers={"Authorization": "Bearer k"}).json
            assert own["error"]["message"].startswith(f"Loading model; RPC worker {late.endpoint}: ")
            late.start()
            live.wait_ready()


def test_nobody_waits_for_a_worker_at_the_end(tiny: str) -> None:
    with Live(*FLAGS, "--rpc", f"127.0.0.1:{free_port()}", model=tiny, ready=False) as live:
        live.wait_line("waiting for it")
        live.signal(signal.SIGTERM)
        assert live.wait_exit() == 0


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (rpc_workers.garbage, "does not speak llama.cpp's RPC protocol"),
        (rpc_workers.closes, "closes the connection instead of answering"),
        (worker(version=(1, 0, 0)), "it speaks version 1.0 of the protocol"),
    ],
)
def test_what_is_no_worker_stops_the_start(tiny: str, behave: Behaviour, words: str) -> None:
    with Pretender(behave) as one, Live("--rpc", one.endpoint, model=tiny, ready=False) as live:
        assert live.wait_exit() == 1
        assert live.wait_line(f"--rpc: RPC worker {one.endpoint}: .*{words}")


def test_what_never_answers_costs_nothing_but_the_model(tiny: str) -> None:
    with Pretender(rpc_workers.silent) as one, Live("--rpc", one.endpoint, model=tiny, ready=False) as live:
        unavailable(live, one.endpoint)
        assert live.client.get("/health?live").status == 200
        assert live.client.post("/completion", {"prompt": "a"}).status == 503


def test_a_load_that_hangs_is_ended(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp would wait for ever for a worker that falls silent."""
    monkeypatch.setattr(stalls, "STALL_SECONDS_MIN", 1.0)

    async def load(endpoint: str) -> str:
        host = Host(parse(["-m", tiny, "--rpc", endpoint], {}).settings.model)
        loading = asyncio.ensure_future(host.load())
        async with asyncio.timeout(WAIT_SECONDS):
            while not host.waits_for:
                await asyncio.sleep(0.01)
        loading.cancel()
        await host.close()
        return host.error

    with Pretender(rpc_workers.fades) as one:
        assert "it hangs: the load has made no progress for" in asyncio.run(load(one.endpoint))


def test_a_worker_that_fails_every_engine_is_given_up(tiny: str) -> None:
    """It passes each probe, and hangs up on llama.cpp."""
    with Pretender(rpc_workers.hangs_up) as one, Live("--rpc", one.endpoint, model=tiny, ready=False) as live:
        answer = until(
            lambda: (told := live.client.get("/health")).status == 500 and told, "it goes on for ever"
        )
        assert "starts in a row failed" in answer.json["error"]["message"]
        assert live.client.get("/health?live").status == 200


# Other commands.


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llamad", *arguments], capture_output=True, text=True, timeout=WAIT_SECONDS
    )


def test_devices_are_listed_and_checked(tiny: str) -> None:
    with RpcWorker() as first, RpcWorker() as second:
        flags = ("--rpc", f"{first.endpoint},{second.endpoint}")
        listed = run(*flags, "--list-devices")
        assert f"RPC0: {first.endpoint} (" in listed.stdout
        assert f"RPC1: {second.endpoint} (" in listed.stdout
        assert listed.stdout == run("--list-devices", *flags).stdout
        done = run("check", "--json", "-m", tiny, "-c", "512", *flags, "-dev", "RPC1")
        report = json.loads(done.stdout)
        assert [one["name"] for one in report["devices"]] == ["RPC1"]
        assert report["devices"][0]["description"] == second.endpoint
        assert report["memory"]["devices"]["RPC1"]["compute"] > 0
        wrong = run("check", "-m", tiny, *flags, "-dev", "RPC2")
        assert (wrong.returncode, "there is no such device" in wrong.stderr) == (1, True)


def test_a_check_and_a_list_without_a_worker_say_so(tiny: str) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    for command in (("check", "-m", tiny), ("--list-devices",)):
        done = run(*command, "--rpc", endpoint)
        assert done.returncode == 1
        assert f"RPC worker {endpoint}: no connection: Connection refused" in done.stderr
        assert done.stderr.count("\n") == 1
