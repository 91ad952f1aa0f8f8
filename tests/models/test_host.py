"""A host whose threads cannot be started says so; it does not load forever."""

import asyncio
import threading

import pytest

from llamad.engine import llama_log
from llamad.flags import parse
from llamad.models.host import Host, State


@pytest.mark.parametrize("name", ["llamad-load", "llamad-engine"])
def test_a_thread_that_cannot_be_started_fails_the_load(monkeypatch, tiny, name):
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        start(thread)

    async def load(host):
        log.attach(asyncio.get_running_loop())
        await host.load()
        assert host.state is State.FAILED
        assert "can't start new thread" in host.error
        await host.close()

    log = llama_log.LlamaLog()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    asyncio.run(load(Host(parse(["-m", str(tiny), "-t", "1", "-c", "256"], {}).settings)))
