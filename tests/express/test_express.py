"""The express lane in the real program: connections go there, come back for everything else, and nobody can tell."""

import json
import re
import signal
import socket
import time

import pytest
from support.lanes import Kept, masked
from support.live import Live, model_path
from support.tiny import write_tiny

KEY, OTHER_KEY = "Authorization: Bearer one\r\n", "Authorization: Bearer two\r\n"
BODIES = {
    "/health": None,
    "/v1/health": None,
    "/tokenize": b'{"content":"Hello, w\\u00f6rld"}',
    "/detokenize": b'{"tokens":[19556,28,905,216,128]}',
}
N_ENOUGH = 12  # more answers than it takes to be lent


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", model_path())


@pytest.fixture(scope="module")
def live(tiny):
    flags = ("--metrics", "--api-key", "one,two", "-np", "2", "-c", "4096", "--express-threads", "2")
    with Live(*flags, model=tiny) as server:
        server.client.headers = {"Authorization": "Bearer one"}
        yield server


def metric(live, name: str) -> int:
    found = re.search(rf"^llamad:express_{name} (\d+)$", live.client.get("/metrics").body.decode(), re.M)
    assert found
    return int(found[1])


def until(condition) -> None:
    t_end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < t_end, "it did not come to that"
        time.sleep(0.005)


def connect(live) -> Kept:
    return Kept((live.client.host, live.client.port))


@pytest.fixture
def lend(live):
    """Connections that the lane has, by what they ask."""
    made = []

    def make(path: str, headers: str = KEY) -> Kept:
        n = metric(live, "connections")
        kept = connect(live)
        made.append(kept)
        for _ in range(N_ENOUGH):
            assert kept.ask(path, BODIES[path], headers)[0].startswith(b"HTTP/1.1 200 ")
        assert metric(live, "connections") == n + 1
        return kept

    yield make
    for kept in made:
        kept.close()
    until(lambda: metric(live, "connections") == 0)


@pytest.mark.parametrize("headers", [KEY, KEY + "Origin: http://a.example\r\nX-More: 1\r\n"])
@pytest.mark.parametrize("path", BODIES)
def test_answers_do_not_change(live, path, headers):
    n = metric(live, "requests_total")
    kept = connect(live)
    answers = [kept.ask(path, BODIES[path], headers) for _ in range(N_ENOUGH * 2)]
    assert len({(masked(head), body) for head, body in answers}) == 1
    assert len({re.search(rb"X-Request-Id: \S+", head)[0] for head, _ in answers}) == len(answers)
    assert N_ENOUGH <= metric(live, "requests_total") - n < 2 * N_ENOUGH
    kept.close()
    until(lambda: metric(live, "connections") == 0)


def test_bodies_of_other_lengths_stay(live, lend):
    kept = lend("/tokenize")
    n = metric(live, "returns_total")
    for i in range(0, 3000, 100):
        body = json.dumps({"content": "word " * i}).encode()
        assert kept.ask("/tokenize", body, KEY)[1] == live.client.post("/tokenize", body).body
    assert metric(live, "returns_total") == n


def test_a_body_in_pieces_stays(live, lend):
    kept = lend("/tokenize")
    n = metric(live, "returns_total")
    data = kept.request("/tokenize", BODIES["/tokenize"], KEY)
    for piece in (data[:9], data[9:60], data[60:-5], data[-5:]):
        kept.socket.sendall(piece)
        time.sleep(0.01)
    assert kept.answer()[1] == live.client.post("/tokenize", BODIES["/tokenize"]).body
    assert metric(live, "returns_total") == n


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/health", None, KEY, 200),
        ("/nowhere", None, KEY, 404),
        ("/tokenize", b'{"content":"a"}', "Authorization: Bearer six\r\n", 401),
        ("/tokenize", b'{"content":"a"}', OTHER_KEY, 200),
        ("/tokenize", b'{"content":"a"}', "", 401),
        ("/tokenize", b'{"content":"a","with_pieces":true}', KEY, 200),
        ("/tokenize", b'{"content":', KEY, 400),
        ("/tokenize", b'{"content":5}', KEY, 400),
        ("/tokenize", b'{"content":"%b"}' % (b"x" * 20_000), KEY, 200),
        ("/detokenize", b'{"tokens":[1,2]}', KEY, 200),
        ("/completion", b'{"prompt":"a","n_predict":1}', KEY, 200),
    ],
)
def test_anything_else_is_the_loops(live, lend, path, body, headers, status):
    kept = lend("/tokenize")
    n = metric(live, "returns_total")
    head, found = kept.ask(path, body, headers)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    if path != "/completion":
        fresh = connect(live)
        head_fresh, found_fresh = fresh.ask(path, body, headers)
        fresh.close()
        assert (masked(head), found) == (masked(head_fresh), found_fresh)
    assert metric(live, "returns_total") == n + 1
    assert kept.ask("/tokenize", BODIES["/tokenize"], KEY)[0].startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_all_answered_in_order(live, lend):
    kept = lend("/tokenize")
    bodies = [json.dumps({"content": "a" * i}).encode() for i in range(1, 40)]
    kept.socket.sendall(b"".join(kept.request("/tokenize", body, KEY) for body in bodies))
    for body in bodies:
        assert kept.answer()[1] == live.client.post("/tokenize", body).body


def test_a_client_that_asks_and_leaves(live, lend):
    kept = lend("/health")
    kept.socket.sendall(kept.request("/health", None, KEY))
    kept.socket.shutdown(socket.SHUT_WR)
    assert kept.answer()[1] == live.client.get("/health").body
    assert kept.is_closed()
    until(lambda: metric(live, "connections") == 0)


def test_busy_slots_are_told(live, lend):
    kept = lend("/health")
    stream = connect(live)
    stream.socket.sendall(
        stream.request("/completion", b'{"prompt":"a","n_predict":2000,"ignore_eos":true,"stream":true}', KEY)
    )
    until(lambda: json.loads(kept.ask("/health", None, KEY)[1])["slots_processing"] == 1)
    assert json.loads(kept.ask("/health", None, KEY)[1]) == {
        "status": "ok",
        "slots_idle": 1,
        "slots_processing": 1,
    }
    stream.close()
    until(lambda: json.loads(kept.ask("/health", None, KEY)[1])["slots_idle"] == 2)


def test_every_request_has_its_line_and_is_counted(live):
    def counted() -> int:
        text = live.client.get("/metrics").body.decode()
        return int(re.search(r'requests_total\{endpoint="/v1/health",status="200"\} (\d+)', text)[1])

    live.client.get("/v1/health")
    n = counted()
    kept = connect(live)
    ids = [
        re.search(rb"X-Request-Id: (\S+)", kept.ask("/v1/health", None, KEY)[0])[1].decode()
        for _ in range(100)
    ]
    assert counted() == n + 100
    peer = "{}:{}".format(*kept.socket.getsockname())
    for one in ids:
        live.wait_line(rf'{peer} {one} "GET /v1/health" 200 51 \d+\.\dms -$')
    kept.close()
    key = lend_one_line(live)
    assert key.startswith("key-")


def lend_one_line(live) -> str:
    """The name of the key in the line of a request that the lane served."""
    kept = connect(live)
    for _ in range(N_ENOUGH):
        head = kept.ask("/tokenize", BODIES["/tokenize"], KEY)[0]
    one = re.search(rb"X-Request-Id: (\S+)", head)[1].decode()
    kept.close()
    return live.wait_line(rf'{one} "POST /tokenize" 200 \d+ \S+ (\S+)$')[1]


def test_two_hundred_connections_at_once(live):
    kept = [connect(live) for _ in range(200)]
    want = {
        path: live.client.request("GET" if body is None else "POST", path, body).body
        for path, body in BODIES.items()
    }
    for _ in range(N_ENOUGH):
        for i, one in enumerate(kept):
            path = list(BODIES)[i % 4]
            one.socket.sendall(one.request(path, BODIES[path], KEY))
        for i, one in enumerate(kept):
            assert one.answer()[1] == want[list(BODIES)[i % 4]]
    assert metric(live, "connections") == 200
    for one in kept:
        one.close()
    until(lambda: metric(live, "connections") == 0)


def test_no_lane_where_nobody_wants_it_and_lent_connections_count(tiny):
    with Live("--metrics", "-c", "512", "--express-threads", "0", model=tiny) as server:
        assert b"express" not in server.client.get("/metrics").body
    with Live("-c", "512", "--connections-max", "3", "--keepalive-timeout", "1", model=tiny) as server:
        kept = [connect(server) for _ in range(3)]
        for one in kept:
            for _ in range(N_ENOUGH):
                one.ask("/health")
        assert server.client.get("/health").status == 503  # nobody else has room
        assert all(
            one.is_closed() for one in kept
        )  # rested in the lane, then with the loop, one second in all
        until(lambda: server.client.get("/health").status == 200)


def test_a_drain_is_told_and_ends(tiny):
    """While a stream runs to its end, lent connections hear that the server stops, and resting ones are closed."""
    with Live("-c", "8192", "-np", "1", "--drain-seconds", "20", model=tiny) as server:
        resting, asking, stream = connect(server), connect(server), connect(server)
        for one in (resting, asking):
            for _ in range(N_ENOUGH):
                assert b'"ok"' in one.ask("/health")[1]
        body = b'{"prompt":"a","n_predict":3000,"ignore_eos":true,"stream":true}'
        stream.socket.sendall(stream.request("/completion", body))
        until(lambda: b'"slots_processing":1' in asking.ask("/health")[1])
        server.signal(signal.SIGTERM)
        server.wait_line("stopping")
        until(lambda: asking.ask("/health")[0].startswith(b"HTTP/1.1 503 "))
        stream.close()
        assert resting.is_closed()
        assert server.wait_exit() == 0


def test_a_stop_with_resting_connections(tiny):
    with Live("-c", "512", model=tiny) as server:
        kept = [connect(server) for _ in range(20)]
        for one in kept:
            for _ in range(N_ENOUGH):
                one.ask("/health")
        server.signal(signal.SIGTERM)
        assert all(one.is_closed() for one in kept)
        assert server.wait_exit() == 0
