"""One client with more requests than anybody can serve: the others are served as if it were one of them."""

import threading
import time

import pytest
from support.fake_daemon import Faked

from llamad.api.request.constraints import Grammars
from llamad.engine.testing.fake import Fake

MANY, ONE = ({"Authorization": f"Bearer {key}"} for key in ("many", "one"))
KEYS = ("--api-key", "many", "--api-key", "one")
N_MANY = 12


@pytest.fixture
def slow_grammars(monkeypatch):
    compile_ = Grammars.compile

    def slow(self, wanted, engine, loop):
        time.sleep(0.2)
        return compile_(self, wanted, engine, loop)

    monkeypatch.setattr(Grammars, "compile", slow)


@pytest.mark.parametrize("kind", ["grammar", "schema"])
def test_slow_grammars_of_one_client_delay_nobody_else(slow_grammars, kind):
    def body(i: int):
        constraint = {"grammar": f'root ::= "{i}"'} if kind == "grammar" else {"json_schema": {"const": i}}
        return {"prompt": "x", "n_predict": 1, **constraint}

    answered = []

    def ask(server, i):
        answered.append(server.client.post("/completion", body(i), headers=MANY).status)

    with Faked(Fake(), "-np", "4", *KEYS) as server:
        threads = [threading.Thread(target=ask, args=(server, i)) for i in range(N_MANY)]
        for thread in threads:
            thread.start()
        server.until(lambda: len(server.served.preparing) >= N_MANY - 2)
        assert server.client.post("/completion", body(99), headers=ONE).status == 200
        assert len(answered) < N_MANY - 4
        for thread in threads:
            thread.join(30)
        assert answered == [200] * N_MANY


def test_one_client_leaves_others_a_part_of_the_preparing(slow_grammars):
    def body(i: int):
        return {"prompt": "x", "n_predict": 1, "grammar": f'root ::= "{i}"'}

    answered = []

    def ask(server, i):
        answered.append(server.client.post("/completion", body(i), headers=MANY).status)

    with Faked(Fake(), "-np", "1", "--queue-max", "7", *KEYS) as server:
        threads = [threading.Thread(target=ask, args=(server, i)) for i in range(N_MANY)]
        for thread in threads:
            thread.start()
        server.until(lambda: 429 in answered)
        assert server.client.post("/completion", body(99), headers=ONE).status == 200
        for thread in threads:
            thread.join(30)
        assert set(answered) == {200, 429}
