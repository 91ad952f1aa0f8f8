"""A slow model behind a gateway, made up for that: its streams pass as they come, and its silence is allowed."""

import http.client
import json
import re
import threading
import time
import uuid
from contextlib import ExitStack

import pytest
from support.fake_daemon import Faked
from support.http_client import Client

from bench.gateways.clients import KEY, MODEL, PATH, chat
from bench.gateways.programs import DEPLOY, GATEWAYS, find, until
from llamad.engine.testing.fake import Fake

HOUR_SECONDS = 3600
SILENCE_SECONDS = 100  # nginx gives up after 60 by itself
N_EACH = 5
FLAGS = ("-np", "16", "--alias", MODEL, "--api-key", "k", "--chat-template", "chatml")
UNITS = {"": 1, "s": 1, "m": 60, "h": HOUR_SECONDS}


TOKEN_US = 20_000
N_TOKENS, N_EVENTS = 16, 4  # less than any buffer would wait for


@pytest.fixture(scope="module")
def slow():
    with Faked(Fake(), *FLAGS, "--metrics") as server:
        server.fake.take(TOKEN_US)
        yield server


def told(server, path):
    return server.client.get(path, headers=KEY)


def n_over(server):
    """Chats that were answered, or whose client has left."""
    return sum(
        map(int, re.findall(rb'endpoint="%s".*?} (\d+)' % PATH.encode(), told(server, "/metrics").body))
    )


def n_tasks(server):
    return told(server, "/v1/loads").json["loads"][0]["num_total_reqs"]


def test_streams_pass_unbuffered(start, slow):
    """The model stops as soon as some events have come: they would come at the end if anything kept them."""
    with start([slow.client]) as gateway:
        host, port = gateway.address
        body = chat([{"role": "user", "content": "hi"}], max_tokens=N_TOKENS, ignore_eos=True, stream=True)
        stream = Client(host, port, KEY).events(PATH, body)
        try:
            for _ in range(N_EVENTS):
                next(stream)
            slow.fake.block(True)
            assert n_tasks(slow) == 1
            n_before = n_over(slow)
            stream.close()
            until(lambda: n_over(slow) > n_before, "the gateway to tell that its client has left")
        finally:
            slow.fake.block(False)
        until(lambda: n_tasks(slow) == 0, "the model to be idle")


def test_a_client_that_waits_and_leaves_is_noticed(start, slow):
    with start([slow.client]) as gateway:
        n_before = n_over(slow)
        client = http.client.HTTPConnection(*gateway.address)
        slow.fake.block(True)
        try:
            body = chat([{"role": "user", "content": "hi"}], max_tokens=N_TOKENS)
            client.request("POST", PATH, json.dumps(body).encode(), KEY)
            until(lambda: n_tasks(slow) == 1, "the request")
            client.close()
            until(lambda: n_over(slow) > n_before, "the gateway to tell that its client has left")
        finally:
            slow.fake.block(False)
        until(lambda: n_tasks(slow) == 0, "the model to be idle")


@pytest.mark.parametrize(
    ("file", "setting"),
    [
        ("haproxy/haproxy.cfg", "timeout client"),
        ("haproxy/haproxy.cfg", "timeout server"),
        ("nginx/llamad.conf", "proxy_read_timeout"),
        ("nginx/llamad.conf", "proxy_send_timeout"),
        ("smg/run.sh", "--request-timeout-secs"),
    ],
)
def test_silence_of_an_hour_is_allowed(file, setting):
    duration = re.search(rf"^ *{setting} (\d+)([smh]?)\b", (DEPLOY / file).read_text(), re.MULTILINE)
    assert duration is not None
    assert int(duration[1]) * UNITS[duration[2]] >= HOUR_SECONDS


@pytest.mark.soak
@pytest.mark.parametrize("stream", [False, True])
def test_a_prefill_of_minutes_is_answered(tmp_path, stream):
    answers = []

    def ask(address):
        host, port = address
        body = chat([{"role": "user", "content": uuid.uuid4().hex}], max_tokens=2, stream=stream)
        answers.append(Client(host, port, KEY).post(PATH, body))

    installed = [one for name, one in GATEWAYS.items() if find(name)]
    if not installed:
        pytest.skip("no gateway is installed")
    with Faked(Fake(), *FLAGS) as server, ExitStack() as stack:
        gateways = [stack.enter_context(one([server.client.port], tmp_path)) for one in installed]
        server.fake.block(True)
        threads = [threading.Thread(target=ask, args=(one.address,)) for one in gateways * N_EACH]
        for thread in threads:
            thread.start()
        time.sleep(SILENCE_SECONDS)
        assert answers == []
        server.fake.block(False)
        for thread in threads:
            thread.join()
    assert [answer.status for answer in answers] == [200] * len(threads)
    if stream:
        assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in answers)
