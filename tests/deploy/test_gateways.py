"""The gateways' configurations in deploy/, run by the real programs in front of two llamads."""

import http.client
import json
import os
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.http_client import Client
from support.live_daemon import engines

from bench.gateways.clients import KEY, PATH, BrokenError, ask, chat
from bench.gateways.programs import ProxyProtocolHaproxy, find, until

ELSEWHERE = "127.0.0.5"  # no trusted proxy
STORY = "Once upon a time there was a long story that somebody told"
N_SPREAD = 48


def new_chat(**options):
    """A conversation that nobody has had before."""
    return chat([{"role": "user", "content": f"{uuid.uuid4().hex} hello"}], max_tokens=2, **options)


def client_of(gateway):
    host, port = gateway.address
    return Client(host, port, KEY)


def served_since(before, backends, n):
    """How many chats each has answered since then, once all `n` are logged."""
    until(lambda: sum(one.n_served() for one in backends) == sum(before) + n, "all access lines")
    return [one.n_served() - n_before for one, n_before in zip(backends, before, strict=True)]


@pytest.mark.parametrize("kind", ["named", "system prompt", "no system prompt"])
def test_conversations_stay_where_their_cache_is(gateway, backends, kind):
    for i in range(6):
        headers = {"X-Session-Id": f"{uuid.uuid4()}"} if kind == "named" else {}
        messages = [] if kind == "no system prompt" else [{"role": "system", "content": "You are brief."}]
        before = [one.n_served() for one in backends]
        for turn in range(3):
            messages.append({"role": "user", "content": f"{uuid.uuid4().hex} {STORY}"})
            answer = ask(gateway.address, chat(messages, max_tokens=4), headers)
            usage = answer["usage"]
            if turn > 0:
                share = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
                assert share > 0.4, (i, turn, usage)
            messages.append(answer["choices"][0]["message"])
        assert 3 in served_since(before, backends, 3)


def test_new_conversations_are_spread(gateway, backends):
    before = [one.n_served() for one in backends]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ask(gateway.address, new_chat()), range(N_SPREAD)))
    shares = served_since(before, backends, N_SPREAD)
    # A hash, which knows no load, leaves one of two less than a quarter in one of 3,000 runs.
    assert min(shares) >= N_SPREAD // 4, shares


@pytest.mark.parametrize(
    "gateway", ["haproxy", "smg"], indirect=True, scope="module"
)  # nginx's hash knows no load
def test_new_conversations_go_to_the_least_busy(gateway, backends):
    own = new_chat()
    headers = {"X-Session-Id": uuid.uuid4().hex}
    before = [one.n_served() for one in backends]
    ask(gateway.address, own, headers)
    busy = backends[served_since(before, backends, 1).index(1)]
    (engine,) = engines(busy.process.pid)
    os.kill(engine, signal.SIGSTOP)
    try:
        threads = [threading.Thread(target=ask, args=(gateway.address, own, headers)) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: busy.n_tasks() == 3, "the conversation's requests to be where it is")
        for _ in range(8):
            ask(gateway.address, new_chat())  # would wait for the engine that is stopped
        assert busy.n_tasks() == 3
    finally:
        os.kill(engine, signal.SIGCONT)
    for thread in threads:
        thread.join()


def ask_with_wrong_key(address):
    """From another address, with a lie about it."""
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=60, source_address=(ELSEWHERE, 0))
    headers = KEY | {"Authorization": "Bearer wrong", "X-Forwarded-For": "203.0.113.7"}
    connection.request("POST", PATH, json.dumps(new_chat()).encode(), headers)
    assert connection.getresponse().status == 401
    connection.close()


def refused(backends) -> list[str]:
    return [line for one in backends for line in one.lines if f'{PATH}" 401' in line]


def test_keys_and_addresses_are_passed_on(gateway, backends):
    client = " " if gateway.name == "smg" else f" {ELSEWHERE}:0 "  # smg tells nobody's address

    def n_of_client():
        return sum(client in line for line in refused(backends))

    n_before = n_of_client()
    ask_with_wrong_key(gateway.address)
    until(lambda: n_of_client() > n_before, "the access line")


def test_the_proxy_protocol_tells_the_clients_address(backend, tmp_path):
    if find("haproxy") is None:
        pytest.skip("haproxy is not installed")
    backends = [backend("--proxy-protocol", proxy=ProxyProtocolHaproxy.source) for _ in range(2)]
    with ProxyProtocolHaproxy([one.port for one in backends], tmp_path) as gateway:
        for _ in range(4):
            ask(gateway.address, new_chat())
        ask_with_wrong_key(gateway.address)
        until(lambda: refused(backends) != [], "the access line")
    assert f" {ELSEWHERE}:" in refused(backends)[0]
    assert f" {ELSEWHERE}:0 " not in refused(backends)[0]  # the connection's own address, with its port


@pytest.mark.parametrize("gateway", ["smg"], indirect=True, scope="module")
def test_smg_takes_servers_only_from_its_owner(gateway):
    answer = client_of(gateway).post("/workers", {"url": "http://203.0.113.7:80"})
    assert answer.status == 401


def test_errors_are_passed_on(gateway):
    with pytest.raises(BrokenError, match="400"):
        ask(gateway.address, new_chat(temperature="hot"))
