"""An engine that breaks, on the real program, where requests may not go on in the next one: its requests fail, everyone
else goes on, and another engine takes its place."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults import Faults
from support.live_daemon import WAIT_SECONDS, Live, engines, until

FLAGS = (
    "-np",
    "2",
    "-c",
    "1024",
    "--slots",
    "--metrics",
    "--sessions-max-bytes",
    "64M",
    "--resume-after-crash",
    "0",
)


N_PREDICT = 60_000  # a stream that lasts for seconds on any machine, and fits into a slot


class Stream:
    """A stream in the background: `events` are its data, `ended` when it is over."""

    def __init__(self, server: Live, **body: Any) -> None:
        self.events: list[Any] = []
        self.ended = threading.Event()
        body = {
            "prompt": "Once upon a time",
            "n_predict": N_PREDICT,
            "stream": True,
            "ignore_eos": True,
            **body,
        }
        self._socket = server.client.open_stream(body)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        data = b""
        while chunk := self._socket.recv(65536):
            data += chunk
            *lines, data = data.split(b"\n")
            self.events += [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
            if self.events and ("error" in self.events[-1] or self.events[-1].get("stop")):
                break
        self._socket.close()
        self.ended.set()

    def error(self) -> dict[str, Any]:
        """Its last event."""
        assert self.ended.wait(WAIT_SECONDS), "the stream did not end"
        last: dict[str, Any] = self.events[-1]["error"]
        return last


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def server(faults: Faults, tiny: str) -> Iterator[Live]:
    # A cache of 64 MiB: less could come from what malloc keeps, although the process may not grow.
    large = ("-c", "131072", "-ctk", "f32", "-ctv", "f32")
    with Live(*FLAGS, *large, "--engine-stall-seconds", "1", model=tiny, env=faults.env) as live:
        yield live


@pytest.fixture(autouse=True)
def sound(request: pytest.FixtureRequest, faults: Faults) -> None:
    """Every test begins with an engine that serves."""
    faults.set("")
    if "server" in request.fixturenames:
        request.getfixturevalue("server").wait_ready()


def by_signal(number: int) -> Callable[[Live, Faults], None]:
    return lambda server, _: os.kill(engines(server.process.pid)[0], number)


def by_fault(name: str) -> Callable[[Live, Faults], None]:
    return lambda _, faults: faults.set(name)


def no_more_memory(server: Live, faults: Faults) -> None:
    """The engine may have no page more than it has; what llama.cpp makes of that is its own."""
    pid = engines(server.process.pid)[0]
    resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
    faults.set("throw")  # the context is made anew


ENDS: dict[str, tuple[Callable[[Live, Faults], None], str]] = {
    "abort": (by_fault("abort"), r"crashed \(SIGABRT\).*a fault of the device"),
    "segv": (by_fault("segv"), r"crashed \(SIGSEGV\)"),
    "sigsegv": (by_signal(signal.SIGSEGV), r"crashed \(SIGSEGV\)"),
    "sigkill": (by_signal(signal.SIGKILL), r"was killed \(SIGKILL\), as Linux does when memory runs out"),
    "sigterm": (by_signal(signal.SIGTERM), r"the model's engine ended: it got a SIGTERM"),
    "hang": (by_fault("hang"), "it hangs: it has had work for"),
    "memory": (no_more_memory, "the model's engine ended"),
    "lost": (by_fault("lost"), "llama.cpp's context was lost and could not be created again"),
}


def test_a_pause_of_all_processes_is_no_hang(server: Live) -> None:
    """The engine of a paused container or virtual machine has work that it cannot do; it is not restarted for that."""
    stream = Stream(server)
    until(lambda: len(stream.events) > 2, "the stream did not begin")
    before = engines(server.process.pid)
    for pid in (*before, server.process.pid):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    server.signal(signal.SIGCONT)
    time.sleep(0.1)  # the front looks at the engine before that goes on
    for pid in before:
        os.kill(pid, signal.SIGCONT)
    n_events = len(stream.events)
    until(lambda: len(stream.events) > n_events, "the stream did not go on")
    assert engines(server.process.pid) == before


def test_an_engine_that_is_stopped_without_work_is_replaced(server: Live) -> None:
    """Its next request would wait until it counted as hung."""
    assert server.client.complete("Once", n_predict=2)["tokens_predicted"] == 2
    server.wait_idle()
    before = engines(server.process.pid)
    os.kill(before[0], signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(before[0], signal.SIGCONT)  # not for long enough
    time.sleep(2)
    assert engines(server.process.pid) == before
    os.kill(before[0], signal.SIGSTOP)
    server.wait_line("it hangs: a signal stopped it")
    until(lambda: engines(server.process.pid) not in ([], before), "it did not end")
    until(lambda: server.client.get("/health").status == 200, "no engine took its place")


@pytest.mark.parametrize("kind", ENDS)
def test_an_engine_that_ends_costs_its_requests_and_nothing_else(
    server: Live, faults: Faults, kind: str
) -> None:
    break_it, reason = ENDS[kind]
    n_fds, before = server.n_descriptors(), engines(server.process.pid)
    n_restarts, n_most = restarts(server), counter(server, "llamacpp:n_tokens_max")
    assert server.client.post("/sessions/7?action=save&slot=0").status == 200
    stream = Stream(server)
    until(lambda: len(stream.events) > 2, "the stream did not begin")
    n_lines = len(server.lines)
    break_it(server, faults)
    error = stream.error()
    faults.set("")
    assert (error["code"], error["type"]) == (500, "server_error")
    # A context that cannot be made again ends the engine after its requests have failed.
    assert "engine ended" in error["message"] or kind in ("memory", "lost")
    assert server.client.get("/v1/models").status == 200
    until(lambda: engines(server.process.pid) not in ([], before), "it did not end")
    until(lambda: server.client.get("/health").status == 200, "no engine took its place")
    text = server.client.complete("Once upon a time", n_predict=4)
    assert text["tokens_predicted"] == 4
    assert server.client.post("/sessions/7?action=restore&slot=0").status == 200  # it outlived the engine
    until(lambda: server.n_descriptors() <= n_fds, "descriptors are lost")
    assert restarts(server) == n_restarts + 1
    assert counter(server, "llamacpp:n_tokens_max") >= n_most  # of all engines
    log = "\n".join(server.lines[n_lines:])
    assert re.search(reason, log), log


def counter(server: Live, name: str) -> int:
    text = server.client.get("/metrics").body.decode()
    return int(text.split(f"\n{name} ")[1].split("\n")[0])


def restarts(server: Live) -> int:
    return counter(server, "llamad:engine_restarts_total")


def test_an_exception_in_a_decode_costs_its_requests_and_no_engine(server: Live, faults: Faults) -> None:
    before = engines(server.process.pid)
    stream = Stream(server)
    until(lambda: len(stream.events) > 2, "the stream did not begin")
    faults.set("throw")
    assert stream.error()["code"] == 500
    faults.set("")
    assert server.client.complete("Once upon a time", n_predict=4)["tokens_predicted"] == 4
    assert engines(server.process.pid) == before


def test_health_tells_the_truth_while_another_engine_is_loaded(server: Live, faults: Faults) -> None:
    seen = []
    os.kill(engines(server.process.pid)[0], signal.SIGKILL)

    def is_back() -> bool:
        answer = server.client.get("/health")
        seen.append(answer)
        if answer.status == 503:
            refused = server.client.post("/completion", {"prompt": "a", "n_predict": 1})
            assert refused.status in (200, 500, 503)
            if refused.status == 503:
                assert int(refused.headers["retry-after"]) > 0
        return answer.status == 200 and len(seen) > 1 and any(one.status == 503 for one in seen)

    until(is_back, "no engine took its place")
    told = next(one for one in seen if one.status == 503).json
    assert told["status"] == "restarting"
    assert "SIGKILL" in told["error"]["message"]


def test_an_engine_that_fails_again_and_again_is_given_up(faults: Faults, tiny: str) -> None:
    faults.set("")
    with Live(*FLAGS, model=tiny, env=faults.env) as live:
        faults.set("abort")  # the first decode of every new engine, too
        os.kill(engines(live.process.pid)[0], signal.SIGKILL)
        answer = until(
            lambda: (one := live.client.get("/health")).status == 500 and one, "it is started for ever"
        )
        faults.set("")
        assert answer.json["status"] == "error"
        assert "starts in a row failed" in answer.json["error"]["message"]
        assert live.client.post("/completion", {"prompt": "a"}).status == 500
        assert live.client.post("/tokenize", {"content": "a"}).status == 500
        assert "llamad:engine_failed 1" in live.client.get("/metrics").body.decode()
        assert engines(live.process.pid) == []


@pytest.mark.parametrize("fault", ["no-memfd", "no-threads"])
def test_a_start_without_resources_says_so(faults: Faults, tiny: str, fault: str) -> None:
    faults.set("")
    with Live(*FLAGS, model=tiny, env=faults.env) as live:
        faults.set(fault)
        os.kill(engines(live.process.pid)[0], signal.SIGKILL)
        answer = until(
            lambda: (one := live.client.get("/health")).status == 500 and one, "it is started for ever"
        )
        faults.set("")
        assert "engine" in answer.json["error"]["message"]


def test_a_front_without_descriptors_starts_an_engine_once_it_has_some(server: Live) -> None:
    front = server.process.pid
    n_lines = len(server.lines)
    soft, hard = resource.prlimit(front, resource.RLIMIT_NOFILE)
    resource.prlimit(front, resource.RLIMIT_NOFILE, (3, hard))  # what is open stays so
    os.kill(engines(front)[0], signal.SIGKILL)
    until(lambda: "Too many open files" in "\n".join(server.lines[n_lines:]), "nobody said why")
    resource.prlimit(front, resource.RLIMIT_NOFILE, (soft, hard))
    until(lambda: server.client.get("/health").status == 200, "no engine took its place")
    assert server.client.complete("Once upon a time", n_predict=4)["tokens_predicted"] == 4


def test_an_engine_ends_with_its_front(tiny: str) -> None:
    with Live(*FLAGS, model=tiny) as live:
        (engine,) = engines(live.process.pid)
        live.signal(signal.SIGKILL)
        live.wait_exit()
        until(
            lambda: not Path(f"/proc/{engine}").exists() or "Z" in Path(f"/proc/{engine}/stat").read_text(),
            "",
        )


def test_a_conversation_goes_on_after_a_crash(server: Live) -> None:
    first = server.client.complete("The quick brown fox", n_predict=8, temperature=0, id_slot=0)
    saved = server.client.post("/slots/0?action=save-state", {})
    assert saved.status == 200
    os.kill(engines(server.process.pid)[0], signal.SIGKILL)
    until(lambda: server.client.get("/health").status == 503, "nobody noticed")
    until(lambda: server.client.get("/health").status == 200, "no engine took its place")
    restored = server.client.post("/slots/1?action=restore-state", {"state": saved.json["state"]})
    assert restored.status == 200, restored.body
    again = server.client.complete(
        "The quick brown fox" + first["content"], n_predict=4, temperature=0, id_slot=1
    )
    assert again["timings"]["cache_n"] > 4
