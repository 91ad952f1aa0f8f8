"""Sends any bytes to the HTTP layer, from two clients at once.

Invariant: each client gets the responses that it would get alone on a fresh server, byte for byte (except the server's
own ids and dates), whether its bytes arrive at once, in packets or one by one, and whatever the other client sends in
between. Nothing raises inside the server, and when both have disconnected, no connection, exchange or byte of a body is
left.

`make fuzz` runs it; LLAMAD_FUZZ_CASES says how long. The same server, with its cache of heads, serves all cases.
"""

import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from support.http_wires import Wires, clients

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
ONE = b"GET /hello?name=one HTTP/1.1\r\nHost: a\r\n\r\n"
TWO = b"GET /hello?name=two HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def wires():
    with Wires() as wires:
        yield wires


@settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=clients)
@example(sent=([b"\r\n\r\n", ONE], [b"\r\n\r\n", TWO], [100]))
@example(
    sent=([b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n", b"y" * 800], [ONE, TWO], [850])
)
def test_two_clients_are_answered_as_if_each_were_alone(wires, sent):
    wires.check(*sent)
