"""Servers that die, leave and come behind a gateway while clients ask, most of them with streams."""

import os
import signal
import uuid

from support.live_daemon import engines

from bench.gateways.clients import Load, ask, chat
from bench.gateways.programs import until

N_CONVERSATIONS = 24


def test_a_killed_server_costs_only_what_it_was_writing(start, backends, backend):
    doomed, survivor = backend(), backends[1]
    with start([doomed, survivor]) as gateway, Load(gateway.address, 7, 1, max_tokens=48) as load:
        load.wait_more(8)
        (engine,) = engines(doomed.process.pid)
        until(lambda: doomed.n_tasks() >= 4, "streams of the server that dies")
        # A model that stands still is killed in the midst of its streams, however busy this machine is.
        os.kill(engine, signal.SIGSTOP)
        os.kill(doomed.process.pid, signal.SIGKILL)
        os.kill(engine, signal.SIGKILL)
        load.wait_more(16)
    assert load.failed != []
    for failure in load.failed:
        assert failure.has_begun, failure
        assert not survivor.has_served(failure.request_id), failure
        assert "no [DONE]" not in failure.reason, failure  # a client sees that it was cut


def test_a_drained_server_costs_nothing(start, backends, backend):
    leaving = backend("--drain-delay-seconds", "3", "--drain-seconds", "60")
    with start([leaving, backends[1]]) as gateway, Load(gateway.address, 3, 1, max_tokens=48) as load:
        load.wait_more(8)
        until(lambda: leaving.n_tasks() > 0, "work for the server that leaves")
        leaving.signal(signal.SIGTERM)
        assert leaving.wait_exit() == 0
        load.wait_more(8)
    assert load.failed == []
    assert leaving.n_served() > 0


def test_an_added_server_gets_work_and_conversations_stay(start, backends, backend):
    added = backend()
    everyone = [*backends, added]

    def say(messages):
        """The next turn of a conversation; who answered it."""
        request_id = uuid.uuid4().hex
        messages.append({"role": "user", "content": f"{uuid.uuid4().hex} and then"})
        answer = ask(gateway.address, chat(messages, max_tokens=2), {"X-Request-Id": request_id})
        messages.append(answer["choices"][0]["message"])
        until(lambda: any(one.has_served(request_id) for one in everyone), "the access line")
        return next(one for one in everyone if one.has_served(request_id))

    conversations = [[] for _ in range(N_CONVERSATIONS)]
    with start(backends) as gateway:
        before = [say(messages) for messages in conversations]
        with Load(gateway.address, 1, 1, max_tokens=8) as load:
            load.wait_more(4)
            gateway.add_server([one.port for one in everyone])
            until(lambda: added.n_served() >= 3, "work for the server that was added")
            load.wait_more(4)
        after = [say(messages) for messages in conversations]
    assert load.failed == []
    n_moved = sum(one is not another for one, another in zip(before, after, strict=True))
    # Of three servers one is new: a hash moves a third to it, a table or a tree nothing.
    assert n_moved <= (N_CONVERSATIONS * 2 // 3 if gateway.name == "nginx" else 0), n_moved
    if gateway.name == "nginx":
        assert all(one is another or another is added for one, another in zip(before, after, strict=True))
