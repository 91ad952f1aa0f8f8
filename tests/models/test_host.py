"""When an engine that ended is started again, and when not; what it has before its first task; its
end with the daemon; how far a load is."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from support.engine_harness import GREEDY, Harness

from llamad.client.task import ENGINE_ABSENT, RequestContext, Task
from llamad.engine.testing.fake import Fake
from llamad.flags.parse import parse
from llamad.models import engine_process
from llamad.models.engine_process import EngineProcess
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.models.load_progress import LoadProgress
from llamad.models.restarts import DELAY_MAX_SECONDS, N_ENDS_MAX, N_LOADS_MAX, SOUND_SECONDS, Restarts
from llamad.protocol.control_messages import Embedded, Loaded, Progress, Ready
from llamad.protocol.messages import FAILURE_ENGINE
from llamad.protocol.model_info import AdapterInfo, Model, ModelInfo, VectorInfo


def test_one_end_is_followed_by_a_start_at_once():
    restarts = Restarts()
    assert [restarts.delay(SOUND_SECONDS) for _ in range(50)] == [0.0] * 50
    assert restarts.n_total == 50


def test_ends_in_a_row_are_followed_by_longer_and_longer_pauses_and_then_by_nothing():
    restarts = Restarts()
    delays = [restarts.delay(1.0) for _ in range(N_ENDS_MAX)]
    assert delays[-1] is None
    waited = [delay for delay in delays if delay is not None]
    assert waited == sorted(waited)
    assert waited[:4] == [0.0, 1.0, 2.0, 4.0]
    assert max(waited) == DELAY_MAX_SECONDS
    assert "ended 10 times" in restarts.reason()


def test_engines_that_never_serve_are_given_up_sooner():
    restarts = Restarts()
    assert [restarts.delay(None) for _ in range(N_LOADS_MAX)] == [0.0, 1.0, 2.0, None]
    assert "4 starts in a row failed" in restarts.reason()


def test_an_engine_that_serves_makes_up_for_those_that_did_not():
    restarts = Restarts()
    for _ in range(20):
        assert restarts.delay(None) == 0.0
        assert restarts.delay(SOUND_SECONDS) == 0.0


def test_ends_that_are_explained_do_not_count():
    restarts = Restarts()
    for _ in range(20):
        assert restarts.delay(None) == 0.0
        restarts.forgive()
    assert restarts.n_total == 20


def test_ends_after_which_requests_went_on_do_not_count():
    restarts = Restarts()
    assert restarts.delay(1.0) == 0.0
    for _ in range(200):
        restarts.went_on()
        # Engines that end again and again are never restarted without a pause.
        assert [restarts.delay(1.0) for _ in range(4)] == [1.0, 1.0, 2.0, 4.0]
    assert restarts.n_total == 801
    assert restarts.delay(SOUND_SECONDS) == 0.0
    assert restarts.delay(1.0) == 0.0


def test_engines_that_end_before_a_request_goes_on_are_given_up():
    restarts = Restarts()
    restarts.went_on()  # of no engine that ended
    assert [restarts.delay(1.0) for _ in range(N_ENDS_MAX)][-1] is None


def test_an_engine_that_continued_a_request_has_served() -> None:
    """An engine gets the requests of the last one before it is ready. Ends between the two counted as failed loads, so
    that the fourth of them gave the model up."""
    restarts = Restarts()
    delays = []
    for _ in range(2 * N_ENDS_MAX):
        restarts.went_on()
        delays.append(restarts.delay(None))
    assert delays == [0.0] + [1.0] * (2 * N_ENDS_MAX - 1)
    assert [restarts.delay(None) for _ in range(N_LOADS_MAX)][-1] is None


def test_a_load_tells_how_far_it_is():
    host = Host(parse(["-m", "a.gguf"], {}).settings.model)
    assert host.progress == LoadProgress("load")
    host._on_message(Progress(437))
    assert host.progress == LoadProgress("load", 43)
    assert host.progress.text() == "loading model: 43 %"


class Opening:
    """An engine's control socket, which opens adapters as soon as it may."""

    def __init__(self) -> None:
        self.asked, self.may_open = asyncio.Event(), asyncio.Event()

    async def open_adapter(self, number: int, path: str) -> AdapterInfo:
        self.asked.set()
        await self.may_open.wait()
        return AdapterInfo(number, Path(path).read_bytes().ljust(32), 4, "", "", ())


class Ending:
    """The sink of a task that is expected to fail."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

    def on_failed(self, failure: int, code: int) -> None:
        self.failed.set_result((failure, code))


def test_a_new_engine_has_its_adapters_before_it_can_be_given_a_task(tmp_path: Path) -> None:
    """A request that was prepared while another engine started used an adapter that was not open in it yet."""
    (tmp_path / "style.gguf").write_bytes(b"style")
    info = ModelInfo("fake.gguf", "fake", 1, 300, 8192, 16, 1000, 4000, "", 0, 1, -1, True)
    loaded = Loaded(info, 512, 512, True, None, (0, 0), [])

    harnesses = [Harness(Fake()) for _ in range(2)]
    first, second = (cast(Any, one.core.descriptors) for one in harnesses)

    async def run() -> None:
        host = Host(
            parse(["-m", "fake.gguf", "-np", "4", "--lora-load-path", str(tmp_path)], {}).settings.model
        )
        host.model = Model(info, harnesses[0].vocab, n_ctx=512, n_ctx_slot=512)
        opening: Any = Opening()
        opening.may_open.set()
        await host.connect_all(first, opening, loaded, Ready([], 0))
        await host.loading.load("style", "style.gguf", in_place=False)
        engine = host.engine
        assert engine is not None
        host.disconnect(is_stopped=False)
        opening = Opening()
        connecting = asyncio.ensure_future(host.connect_all(second, opening, loaded, Ready([], 0)))
        await opening.asked.wait()
        style = host.adapters.chosen(host.adapters.uses((), host.adapters.named("style")), b"")
        sink: Any = Ending()
        task = Task(RequestContext("early"), b"\x01\0\0\0", GREEDY, vocab=host.model.vocab, adapters=style)
        engine.submit(task, sink)
        assert await asyncio.wait_for(sink.failed, 5) == (FAILURE_ENGINE, ENGINE_ABSENT)
        opening.may_open.set()
        await connecting
        assert engine.is_connected
        host.disconnect(is_stopped=False)

    asyncio.run(run())


class Embedding:
    """An engine's control socket, which computes embeddings as soon as it may."""

    def __init__(self) -> None:
        self.asked, self.may_reply = asyncio.Event(), asyncio.Event()

    async def embed(self, *_: Any) -> Embedded:
        self.asked.set()
        await self.may_reply.wait()
        return Embedded(0, 0, 0.1)


def test_embeddings_that_go_on_make_up_for_the_ends_before() -> None:
    """Only generated text did, so that a model for embeddings was given up sooner."""
    info = ModelInfo("fake.gguf", "fake", 1, 300, 8192, 16, 1000, 4000, "", 0, 1, -1, True)
    loaded = Loaded(info, 512, 512, False, VectorInfo("mean", 1, (), False, 100, False), (64, 4), [])
    vocab = Harness(Fake()).vocab

    async def run() -> None:
        host = Host(parse(["-m", "fake.gguf", "--embedding"], {}).settings.model)
        host.model = Model(info, vocab, n_ctx=512, n_ctx_slot=512)
        first, second = cast(Any, Embedding()), cast(Any, Embedding())
        host.connect_vectors(loaded, first)
        assert host.embedder is not None
        job = host.embedder.submit([b"\x01\0\0\0"], vocab=vocab)
        await first.asked.wait()
        assert [host.restarts.delay(1.0) for _ in range(4)] == [0.0, 1.0, 2.0, 4.0]
        host.disconnect(is_stopped=False)
        first.may_reply.set()
        host.connect_vectors(loaded, second)
        second.may_reply.set()
        assert len(await asyncio.wait_for(job.future, 10)) == 1
        assert host.restarts.delay(1.0) == 1.0
        host.close_connections()

    asyncio.run(run())


def serve(tiny: str, then: Callable[[Host, EngineProcess], Awaitable[None]]) -> None:
    """Do something with a host whose engine serves."""

    async def run() -> None:
        host = Host(parse(["-m", tiny, "-np", "1", "-c", "256", "-t", "1", "--no-warmup"], {}).settings.model)
        await host.load()
        process = host._process
        assert process is not None
        await then(host, process)

    asyncio.run(run())


def test_an_engine_that_ends_while_it_opens_adapters_again_has_a_reason(
    tiny: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The question that the engine left open failed a moment before its end was noted, so that /health said only
    "EngineEnded", and the log had a traceback."""

    async def restart(host: Host, process: EngineProcess) -> None:
        reopen = host.loading.reopen

        async def ending(asking: Any) -> None:
            monkeypatch.setattr(host.loading, "reopen", reopen)
            assert host._process is not None
            os.kill(host._process.pid, signal.SIGSTOP)  # so that it does not answer
            opening = asyncio.ensure_future(asking.open_adapter(0, "none"))
            await asyncio.sleep(0.1)
            os.kill(host._process.pid, signal.SIGKILL)
            await opening

        monkeypatch.setattr(host.loading, "reopen", ending)
        os.kill(process.pid, signal.SIGKILL)
        while host.restarts.n_total < 2 or host.state is not State.READY:
            await asyncio.sleep(0.01)
        await host.close()

    serve(tiny, restart)
    assert "starting the engine failed" not in caplog.text
    assert caplog.text.count("the model's engine ended: it was killed (SIGKILL)") == 2


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("is_stuck", [False, True])
def test_a_closed_host_has_no_engine_any_more(
    tiny: str, is_stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing cancelled the wait for the engine's end, and so returned before it. One that does not end by itself is
    killed."""
    monkeypatch.setattr(engine_process, "STOP_SECONDS", 0.2 if is_stuck else 60)
    ended: list[str] = []

    async def close(host: Host, process: EngineProcess) -> None:
        if is_stuck:
            os.kill(process.pid, signal.SIGSTOP)
        await host.close()
        assert not is_there(process.pid)
        assert process.ended is not None
        ended.append(process.ended.result())
        assert host.engine is not None
        assert not host.engine.is_connected

    serve(tiny, close)
    assert ended == ["the daemon is stopping" if is_stuck else "it exited with status 0"]


def test_an_engine_that_cannot_be_ended_does_not_keep_the_daemon(
    tiny: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a device that does not answer the kernel."""
    monkeypatch.setattr(engine_process, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(engine_process, "END_SECONDS", 0.1)
    monkeypatch.setattr(EngineProcess, "_kill", lambda _: None)

    async def close(host: Host, process: EngineProcess) -> None:
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await asyncio.wait_for(host.close(), 30)
            assert is_there(process.pid)
        finally:
            os.kill(process.pid, signal.SIGKILL)
        while is_there(process.pid):  # the event loop still waits for its end
            await asyncio.sleep(0.01)

    serve(tiny, close)
    assert "was killed 0.1 s ago and has not ended" in caplog.text
