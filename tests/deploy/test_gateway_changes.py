"""Servers that die, leave and come behind a gateway while clients ask, most of them with streams."""

import http.client
import os
import signal
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.live_daemon import engines

from bench.gateways.clients import Answer, BrokenError, Load, ask, chat, read
from bench.gateways.programs import until

N_CONVERSATIONS = 24


def who_answers(address, backends, body, headers):
    """The backend that the gateway sends this chat to, and the answer."""
    request_id = uuid.uuid4().hex
    answer = ask(address, body, headers | {"X-Request-Id": request_id})
    until(lambda: any(one.has_served(request_id) for one in backends), "the access line")
    return next(one for one in backends if one.has_served(request_id)), answer


def conversation_of(backend, address, backends):
    """A chat and headers that the gateway sends to this one."""
    while True:
        headers = {"X-Session-Id": uuid.uuid4().hex}
        body = chat([{"role": "user", "content": f"{uuid.uuid4().hex} hello"}], max_tokens=2)
        if who_answers(address, backends, body, headers)[0] is backend:
            return body, headers


def test_a_killed_server_costs_only_what_it_was_writing(start, backends, backend):
    doomed, survivor = backend(), backends[1]
    with (
        start([doomed, survivor]) as gateway,
        ThreadPoolExecutor(4) as pool,
        Load(gateway.address, 3, 1, max_tokens=32) as load,
    ):
        body, headers = conversation_of(doomed, gateway.address, [doomed, survivor])
        begun = Answer()
        stream = body | {"stream": True, "max_tokens": 900, "ignore_eos": True}
        written = pool.submit(read, gateway.address, stream, headers, begun)
        until(lambda: begun.t_first > 0, "the first event")
        # With its model stopped, the server writes no more, and what comes now has not begun.
        (engine,) = engines(doomed.process.pid)
        os.kill(engine, signal.SIGSTOP)
        n_before = doomed.n_tasks()
        waiting = [pool.submit(ask, gateway.address, body, headers) for _ in range(3)]
        until(
            lambda: doomed.n_tasks() >= n_before + 3 or all(one.done() for one in waiting),
            "requests that wait for the server that dies",
        )
        os.kill(doomed.process.pid, signal.SIGKILL)
        os.kill(engine, signal.SIGKILL)
        with pytest.raises((http.client.IncompleteRead, BrokenError), match=r"IncompleteRead|an error event"):
            written.result()  # its client sees that it was cut
        for one in waiting:
            one.result()  # answered by the other
        load.wait_more(8)
    for failure in load.failed:
        assert failure.has_begun, failure
        assert not survivor.has_served(failure.request_id), failure
        assert "no [DONE]" not in failure.reason, failure


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
        messages.append({"role": "user", "content": f"{uuid.uuid4().hex} and then"})
        one, answer = who_answers(gateway.address, everyone, chat(messages, max_tokens=2), {})
        messages.append(answer["choices"][0]["message"])
        return one

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
