"""The gateways' configurations in deploy/, run by the real programs in front of two llamads."""

import http.client
import json
import signal

import pytest
from support.gateways.programs import FLAGS, KEY, Load, haproxy, nginx, smg, until
from support.live_daemon import Live

GATEWAYS = {"haproxy": haproxy, "nginx": nginx, "smg": smg}
N_CONVERSATIONS = 8
ELSEWHERE = "127.0.0.5"  # no trusted proxy
STORY = "Once upon a time there was a long story that somebody told"


def served(backend: Live) -> int:
    return sum('"POST /v1/chat/completions" 200' in line for line in backend.lines)


def n_tasks(backend: Live) -> int:
    load = backend.client.get("/v1/loads", headers=KEY).json
    return load["loads"][0]["num_total_reqs"]


def ask(gateway, messages, **headers):
    body = {"model": "tiny", "messages": messages, "max_tokens": 4}
    answer = gateway.client.post("/v1/chat/completions", body, headers=headers)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.fixture(scope="module")
def backends(tiny):
    with (
        Live(*FLAGS, model=tiny) as one,
        Live(*FLAGS, model=tiny) as two,
    ):
        yield [one, two]


@pytest.fixture(params=GATEWAYS)
def start(request, tmp_path):
    """Starts the gateway over these backends."""
    return lambda backends: GATEWAYS[request.param](backends, tmp_path)


def test_conversations_stay_and_are_spread(start, backends):
    with start(backends) as gateway:
        before = [served(backend) for backend in backends]
        for named in (False, True):
            for i in range(N_CONVERSATIONS):
                messages = [{"role": "system", "content": "You are brief."}]
                headers = {"X-Session-Id": f"session {i}"} if named else {}
                for turn in range(3):
                    messages.append({"role": "user", "content": f"{i} {named} {turn}: {STORY}"})
                    answer = ask(gateway, messages, **headers)
                    usage = answer["usage"]
                    if turn > 0:
                        share = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
                        assert share > 0.4, (named, i, turn, usage)
                    messages.append(answer["choices"][0]["message"])
        total = 2 * 3 * N_CONVERSATIONS
        until(lambda: sum(map(served, backends)) - sum(before) == total, "all access lines")
        shares = [served(backend) - n for backend, n in zip(backends, before, strict=True)]
        assert min(shares) >= total // 8, shares


def test_keys_and_addresses_are_passed_on(start, backends):
    def lines():
        return [line for one in backends for line in one.lines if '/chat/completions" 401' in line]

    body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    with start(backends) as gateway:
        n_before = len(lines())
        host, port = gateway.client.host, gateway.client.port
        connection = http.client.HTTPConnection(host, port, timeout=30, source_address=(ELSEWHERE, 0))
        # What the client says of itself does not count.
        headers = KEY | {"Authorization": "Bearer wrong", "X-Forwarded-For": "203.0.113.7"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        assert connection.getresponse().status == 401
        connection.close()
        until(lambda: len(lines()) > n_before, "the access line")
        assert any(f" {ELSEWHERE}:0 " in line for line in lines()), lines()


def test_streams_pass_unbuffered(start, backends):
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "count"}],
        "max_tokens": 400,
        "stream": True,
        "ignore_eos": True,
    }

    def comes_at_once() -> bool:
        """Whether the first event came while the rest was still being written."""
        stream = gateway.client.events("/v1/chat/completions", body)
        next(stream)
        is_written = sum(map(n_tasks, backends)) == 1
        stream.close()
        until(lambda: sum(map(n_tasks, backends)) == 0, "the gateway to tell that its client has left")
        return is_written

    with start(backends) as gateway:
        # Where the machine is busy, a small model may have written all of it before it was looked for.
        assert any(comes_at_once() for _ in range(5))


def test_a_killed_server_costs_only_what_it_was_writing(start, backends, tiny):
    with Live(*FLAGS, model=tiny) as doomed, start([doomed, backends[1]]) as gateway:
        with Load(gateway.client) as load:
            load.wait_more(10)
            until(lambda: served(doomed) > 0, "the other server to have its share")
            doomed.signal(signal.SIGKILL)
            load.wait_more(30)
        assert load.failed == []


def test_a_drained_server_costs_nothing(start, backends, tiny):
    with (
        Live(*FLAGS, "--drain-delay-seconds", "3", "--drain-seconds", "60", model=tiny) as leaving,
        start([leaving, backends[1]]) as gateway,
    ):
        with Load(gateway.client) as load:
            load.wait_more(10)
            until(lambda: served(leaving) > 0, "the other server to have its share")
            leaving.signal(signal.SIGTERM)
            assert leaving.wait_exit() == 0
            load.wait_more(10)
        assert load.failed == []
