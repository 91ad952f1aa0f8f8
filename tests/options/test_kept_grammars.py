"""Compiled grammars are kept, shared and forgotten. The daemon runs in this process, to count its work."""

import socket
import struct
import threading

import pytest
from support.fake_daemon import Faked

from llamad.api.request.constraints import KEPT_MAX, SMALL_MAX, Grammars
from llamad.engine.testing.fake import Fake


class Counted(Grammars):
    """Compiles only while `go` is set, and says what it compiled."""

    def __init__(self):
        super().__init__()
        self.compiled = []
        self.go = threading.Event()
        self.go.set()

    def compile(self, wanted, engine, loop):
        self.compiled.append(wanted.grammar or wanted.schema)
        assert self.go.wait(30)
        return super().compile(wanted, engine, loop)


class CountedDaemon(Faked):
    def __init__(self):
        super().__init__(Fake(), "-np", "2")
        self.grammars = self.served.grammars = Counted()


@pytest.fixture
def counted():
    server = CountedDaemon()
    with server:
        yield server
        server.grammars.go.set()


def ask(server, **options):
    return server.client.complete("a", n_predict=4, **options)


def test_the_same_grammar_is_compiled_once(counted):
    for _ in range(3):
        assert ask(counted, grammar='root ::= "ab"')["content"] == "ab"
        assert ask(counted, json_schema={"const": 5})["content"] == "5"
    assert counted.grammars.compiled == ['root ::= "ab"', b'{"const":5}']


def test_fifty_grammars_do_not_pile_up(counted):
    for i in range(50):
        assert ask(counted, grammar=f'root ::= "{i:02}"')["content"] == f"{i:02}"
    assert len(counted.grammars.compiled) == 50
    assert len(counted.grammars._kept) == KEPT_MAX
    ask(counted, grammar='root ::= "49"')
    assert len(counted.grammars.compiled) == 50
    ask(counted, grammar='root ::= "00"')
    assert len(counted.grammars.compiled) == 51
    # One that is in use is not lost when it is no longer kept.
    assert len(counted.grammars._kept) == KEPT_MAX


def test_those_who_want_the_same_wait_together(counted):
    counted.grammars.go.clear()
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(ask(counted, grammar='root ::= "ab"')["content"]))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    counted.until(lambda: [one.n_waiting for one in counted.grammars._making.values()] == [2])
    counted.grammars.go.set()
    for thread in threads:
        thread.join()
    assert answers == ["ab", "ab"]
    assert counted.grammars.compiled == ['root ::= "ab"']
    assert counted.grammars._making == {}


def test_a_client_that_leaves_is_not_compiled_for(counted):
    """The first is being compiled when its client goes, the second still waits for its turn."""
    counted.grammars.go.clear()
    gone = [
        counted.client.open_stream({"prompt": "a", "grammar": f'root ::= "{name}"'})
        for name in ("first", "second")
    ]
    counted.until(lambda: len(counted.grammars._making) == 2)
    for one in gone:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    counted.until(lambda: not counted.grammars._making)
    counted.grammars.go.set()
    assert ask(counted, grammar='root ::= "ok"')["content"] == "ok"
    assert counted.grammars.compiled == ['root ::= "first"', 'root ::= "ok"']
    counted.until(lambda: counted.client.get("/health").json["slots_processing"] == 0)


def test_a_large_schema_does_not_delay_a_grammar(counted):
    """Of the same client: large and small ones have threads of their own."""
    counted.grammars.go.clear()
    schema = {"const": 1, "description": "x" * (SMALL_MAX + 1)}
    waiting = counted.client.open_stream({"prompt": "a", "json_schema": schema, "n_predict": 4})
    counted.until(lambda: len(counted.grammars.compiled) == 1)
    held, counted.grammars.go = counted.grammars.go, threading.Event()
    counted.grammars.go.set()
    assert ask(counted, grammar='root ::= "ab"')["content"] == "ab"
    held.set()
    assert b"200 OK" in waiting.recv(4096)
    waiting.close()


def test_the_grammar_of_a_flag_is_never_forgotten():
    with Faked(Fake(), "--grammar", 'root ::= "own"') as server:
        for i in range(KEPT_MAX + 1):
            ask(server, grammar=f'root ::= "{i:02}"')
        own = server.served.grammars
        assert own.known(server.served.constraint) is not None
        assert ask(server)["content"] == "own"
