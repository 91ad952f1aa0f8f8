"""JSON made to be slow: whatever its shape, it is answered or refused, and others are served meanwhile.

The bounds on delays are generous, as tests share their machine: what they guard against took seconds.
"""

import json
import threading
import time

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live, model_path
from support.models.tiny_model import write_tiny

from llamad.engine.testing.fake import Fake

DELAY_MAX = 1.0
N_CTX = 200_000

CHAT = {"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
# Every path that takes JSON, with a body that it accepts.
BODIES = {
    "/tokenize": {"content": "x"},
    "/detokenize": {"tokens": [97]},
    "/completion": {"prompt": "x", "n_predict": 1},
    "/v1/completions": {"prompt": "x", "max_tokens": 1},
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"input": "x", "max_output_tokens": 16},
    "/v1/messages": CHAT,
    "/v1/messages/count_tokens": CHAT,
    "/apply-template": CHAT,
    "/api/chat": {"messages": CHAT["messages"], "options": {"num_predict": 1}, "stream": False},
    "/api/generate": {"prompt": "x", "options": {"num_predict": 1}, "stream": False},
}
SMALL = ("/slots/0?action=context-shift", "/slots/0?action=erase", "/sessions/1?action=remove", "/props")


def repeated(item, n):
    return b"[" + b",".join([item] * n) + b"]"


@pytest.fixture(scope="module")
def server():
    fake = Fake(n_ctx=N_CTX, n_batch=2048)
    with Faked(fake, "-np", "2", "--slots", "--props", n_ctx=N_CTX, n_batch=2048) as server:
        yield server


class Watch:
    """Asks for /health again and again; `slowest` is the longest that it took."""

    def __init__(self, client):
        self.slowest = 0.0
        self._client = client
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self):
        while not self._end.is_set():
            t_start = time.monotonic()
            assert self._client.get("/health").status == 200
            self.slowest = max(self.slowest, time.monotonic() - t_start)
            time.sleep(0.002)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


SHAPES = {
    "arrays beyond the limit": ("/completion", b'{"prompt":' + repeated(b"[[]]", 3_000_000) + b"}", 400),
    "arrays": ("/v1/chat/completions", b'{"messages":' + repeated(b"[]", 99_000) + b"}", 400),
    "objects": ("/v1/messages", b'{"max_tokens":1,"tools":' + repeated(b"{}", 99_000) + b"}", 400),
    "strings": ("/completion", b'{"prompt":' + repeated(b'"a"', 199_000) + b"}", 400),
    "strings beside a wrong type": (
        "/completion",
        b'{"prompt":"x","stop":' + repeated(b'"a"', 190_000) + b',"temperature":"x"}',
        400,
    ),
    "keys": (
        "/v1/responses",
        b'{"metadata":{' + b",".join(b'"k%d":1' % i for i in range(57_000)) + b"}}",
        400,
    ),
    "numbers": ("/completion", b'{"prompt":' + repeated(b"131071", 399_000) + b"}", 400),
    "numbers that are hard to round": (
        "/completion",
        b'{"prompt":' + repeated(b"1e300", 390_000) + b"}",
        400,
    ),
    "a prompt": ("/completion", b'{"n_predict":1,"prompt":' + repeated(b"97", 190_000) + b"}", 200),
    "biases": (
        "/completion",
        b'{"prompt":"x","n_predict":1,"logit_bias":' + repeated(b"[97,1]", 65_000) + b"}",
        200,
    ),
    "wide text": ("/completion", b'{"prompt":"' + "中".encode() * 2_600_000 + b'"}', 400),
    "escapes": ("/completion", b'{"prompt":"' + b"\\n" * 3_900_000 + b'"}', 400),
    "ids": ("/detokenize", b'{"tokens":' + repeated(b"97", 399_000) + b"}", 200),
    "messages": (
        "/v1/messages/count_tokens",
        b'{"messages":' + repeated(b'{"role":"user","content":"word"}', 19_000) + b"}",
        200,
    ),
    "JSON in a string": (
        "/apply-template",
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": "x"},
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [
                            {"function": {"name": "f", "arguments": '{"a":[' + "[]," * 2_000_000 + "1]}"}}
                        ],
                    },
                ]
            }
        ).encode(),
        400,
    ),
    "a schema in a string": (
        "/v1/completions",
        json.dumps({"prompt": "x", "guided_json": "[" + "1e300," * 400_000 + "1]"}).encode(),
        400,
    ),
    "a choice beyond the limit": (
        "/v1/completions",
        b'{"prompt":"x","structured_outputs":{"choice":["' + b"\\n" * 3_700_000 + b'"]}}',
        400,
    ),
    "a choice of special characters": (
        "/v1/chat/completions",
        b'{"messages":[{"role":"user","content":"x"}],"guided_choice":["' + b"\\n" * 1_000_000 + b'"]}',
        400,  # it fits, but its grammar has too many states
    ),
    "a choice that escapes make too long": (
        "/v1/chat/completions",
        b'{"messages":[{"role":"user","content":"x"}],"guided_choice":["' + b"\\u0001" * 600_000 + b'"]}',
        400,
    ),
    "pieces": ("/tokenize", json.dumps({"content": "a b " * 250_000, "with_pieces": True}).encode(), 200),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_others_are_served_while_a_body_is_read(server, shape):
    path, body, status = SHAPES[shape]
    with Watch(server.client) as watch:
        answer = server.client.post(path, body)
    assert answer.status == status, answer.body[:200]
    if status == 400:
        assert answer.json["error"]["message"]
    assert watch.slowest < DELAY_MAX


@pytest.mark.parametrize("path", [*BODIES, *SMALL])
def test_values_nested_too_deeply_are_a_400(server, path):
    deep = b"[" * 990 + b"]" * 990
    fields = (
        b"prompt",
        b"messages",
        b"tools",
        b"input",
        b"metadata",
        b"json_schema",
        b"chat_template_kwargs",
        b"x",
    )
    for field in fields:
        for body in (b'{"%b":%b}' % (field, deep), b'{"%b":{"a":%b}}' % (field, deep)):
            answer = server.client.post(path, body)
            # Erasing reads no body.
            assert answer.status == 400 or path == "/slots/0?action=erase", answer.body
    assert server.client.get("/health").status == 200


@pytest.mark.parametrize("path", BODIES)
def test_the_deepest_values_that_are_allowed_fail_nowhere(server, path):
    """Everywhere in a body: what walks them has room on the stack."""
    for open, close in (("[", "]"), ('{"a":', "}")):
        deep = json.loads(open * 120 + "1" + close * 120)
        tool = {
            "type": "function",
            "name": "f",
            "input_schema": {"a": deep},
            "function": {"name": "f", "parameters": {"a": deep}},
            "parameters": {"a": deep},
        }
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"a": deep}}}
        messages: list[object] = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "user", "content": "x"},
        ]
        for more in (
            {"tools": [tool]},
            {"tools": [tool], "tool_choice": "required"},
            {"messages": messages},
            {"messages": [{"role": "user", "content": deep}]},
            {"messages": [{"role": "user", "content": "x", "more": deep}]},
            {"chat_template_kwargs": {"a": deep}},
            {"metadata": {"a": deep}},
            {"json_schema": {"properties": {"a": deep}}},
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": deep}}}},
            {"input": deep},
            {"prompt": deep},
            {"stop": deep},
            {"logit_bias": deep},
        ):
            answer = server.client.post(path, BODIES[path] | more)
            assert answer.status in (200, 400, 501), (more.keys(), answer.body)


def test_tokens_with_pieces_take_little_memory(tmp_path):
    with Live(model=write_tiny(tmp_path / "tiny.gguf", model_path())) as server:

        def peak():
            with open(f"/proc/{server.process.pid}/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) // 1024

        text = "a b " * 250_000
        body = {"content": text, "with_pieces": True}
        server.client.post("/tokenize", {"content": "a", "with_pieces": True})
        before = peak()
        answer = server.client.post("/tokenize", body)
        assert answer.status == 200
        assert "".join(one["piece"] for one in answer.json["tokens"]).strip() == text.strip()
        # The text, its tokens, and twice the answer; it was 200 MB.
        assert peak() - before < 40 + 3 * len(answer.body) // 2**20


def test_pieces_beyond_the_limit_of_an_answer_are_refused():
    with Faked(Fake(), "--answer-max-bytes", "100K") as server:
        for n in (4_000, 40_000):
            for with_pieces in (False, True):
                body = {"content": "x" * n, "with_pieces": with_pieces}
                answer = server.client.post("/tokenize", body)
                is_large = n * (24 if with_pieces else 4) > 100 * 1024
                assert answer.status == (400 if is_large else 200), answer.body[:100]
                assert not is_large or "--answer-max-bytes" in answer.error["message"]


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/completion"]
)
def test_the_name_of_a_model_is_bounded(server, path):
    """Each event of a stream repeats it: 3 MB of it became 30 MB for eight tokens."""
    answer = server.client.post(path, BODIES[path] | {"model": "x" * 1025, "stream": True})
    assert answer.status == 400
    assert '"model" may have at most 1024 characters' in answer.json["error"]["message"]
    assert server.client.post(path, BODIES[path] | {"model": "x" * 1024, "stream": True}).status == 200
