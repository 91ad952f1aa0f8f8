"""A long prompt is silent until it is read: no gateway may end its request meanwhile."""

import re
import threading
import time
import uuid
from contextlib import ExitStack

import pytest
from support.fake_daemon import Faked
from support.http_client import Client

from bench.gateways.clients import KEY, MODEL, PATH, chat
from bench.gateways.programs import DEPLOY, GATEWAYS, find
from llamad.engine.testing.fake import Fake

HOUR_SECONDS = 3600
SILENCE_SECONDS = 100  # nginx gives up after 60 by itself
N_EACH = 5
FLAGS = ("-np", "16", "--alias", MODEL, "--api-key", "k", "--chat-template", "chatml")
UNITS = {"": 1, "s": 1, "m": 60, "h": HOUR_SECONDS}


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
    found = re.search(rf"^ *{setting} (\d+)([smh]?)\b", (DEPLOY / file).read_text(), re.MULTILINE)
    assert found is not None
    assert int(found[1]) * UNITS[found[2]] >= HOUR_SECONDS


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
