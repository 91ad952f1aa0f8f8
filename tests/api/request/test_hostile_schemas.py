"""One key with schemas and grammars made to be slow: another key's small ones are answered meanwhile.

Over the real program, as the engine's compilers are a part of it. The bounds on delays are generous, as tests share
their machine: what they guard against took seven seconds.
"""

import itertools
import json
import threading
import time
from http.client import HTTPConnection

import pytest
from support.http_client import TIMEOUT
from support.live_daemon import Live

MANY, ONE = ({"Authorization": f"Bearer {key}"} for key in ("many", "one"))
N_CONNECTIONS = 6
N_STRINGS = 100_000
DELAY_MAX = 2.0
STALL_MAX = 1.0
N_ASKED = 5


@pytest.fixture(scope="module")
def server(tiny):
    with Live("-np", "4", "-c", "2048", "--api-key", "many,one", model=tiny) as server:
        server.client.headers = ONE
        yield server


def enum(i: int) -> dict:
    return {"json_schema": {"enum": [f"{i}-{k:06}" for k in range(N_STRINGS)]}}


def long_grammar(i: int) -> dict:
    words = " | ".join(f'"{i}-{k:06}"' for k in range(N_STRINGS))
    return {"grammar": f"root ::= {words}"}


def small_but_slow(i: int) -> dict:
    """Few bytes, which become many rules."""
    numbers = {"type": "integer", "minimum": i, "maximum": 10**15 + i}
    return {"json_schema": {"type": "object", "properties": dict.fromkeys(map(str, range(900)), numbers)}}


class Flood:
    """Sends what `make` makes from several connections until it ends."""

    def __init__(self, server: Live, make) -> None:
        self._server = server
        self._make = make
        self._numbers = itertools.count()
        self._is_over = threading.Event()
        self.n_answers = 0
        self._threads = [threading.Thread(target=self._send) for _ in range(N_CONNECTIONS)]

    def _send(self) -> None:
        while not self._is_over.is_set():
            connection = HTTPConnection(self._server.client.host, self._server.client.port, timeout=TIMEOUT)
            body = {"prompt": "x", "n_predict": 1, **self._make(next(self._numbers))}
            connection.request("POST", "/completion", json.dumps(body).encode(), MANY)
            connection.sock.settimeout(0.2)
            while not self._is_over.is_set():
                try:
                    connection.getresponse().read()
                    self.n_answers += 1
                    break
                except TimeoutError:
                    pass
                except Exception:
                    break
            connection.close()

    def __enter__(self) -> "Flood":
        for thread in self._threads:
            thread.start()
        time.sleep(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("make", [enum, long_grammar, small_but_slow])
def test_small_ones_of_another_key_do_not_wait(server, make):
    delays, stalls = [], []
    with Flood(server, make):
        for i in range(N_ASKED):
            t_start = time.monotonic()
            assert server.client.get("/health").status == 200
            stalls.append(time.monotonic() - t_start)
            constraint = {"json_schema": {"const": f"{make.__name__} {i}"}}
            if i % 2:
                constraint = {"grammar": f'root ::= "{make.__name__} {i}"'}
            t_start = time.monotonic()
            answer = server.client.post("/completion", {"prompt": "x", "n_predict": 1, **constraint})
            delays.append(time.monotonic() - t_start)
            assert answer.status == 200, answer.body
    assert max(delays) < DELAY_MAX
    assert max(stalls) < STALL_MAX
