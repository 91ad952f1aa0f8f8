"""What the access log says of a generating request: the numbers of its own response, in every dialect, and why it
ended."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.chats.forced_calls import CALL_MAX
from support.fake_daemon import Faked

from llamad.api.generate.accounting import model_word
from llamad.client.adapters import Adapters
from llamad.engine.testing.fake import Fake
from llamad.flags.types.values import AdapterFile
from llamad.protocol.model_info import AdapterInfo, VectorInfo

SAY = [{"role": "user", "content": "hello"}]
BODIES: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "hello", "n_predict": 5},
    "/v1/completions": {"prompt": "hello", "max_tokens": 5},
    "/v1/chat/completions": {"messages": SAY, "max_tokens": 5},
    "/v1/messages": {"messages": SAY, "max_tokens": 5},
    "/v1/responses": {"input": "hello", "max_output_tokens": 5},
}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WAIT_SECONDS = 60
_numbers = itertools.count()


def words(line: str) -> dict[str, str]:
    """The details and the error's message of a text line."""
    line, _, error = line.partition(' error="')
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word and '"' not in word)
    return fields | ({"error": error.rstrip('"')} if error else {})


def words_of(id: str, lines: Callable[[], Iterable[str]]) -> dict[str, str]:
    """Those of the request with this id, once it is logged."""
    t_end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < t_end:
        for line in list(lines()):
            if f" {id} " in line and '" ' in line:
                return words(line)
        time.sleep(0.002)
    raise AssertionError(f"the request {id} was not logged")


class Sums:
    """Computes vectors of nothing."""

    n_seq_max = n_pack = 64

    def __init__(self) -> None:
        self.info = VectorInfo("mean", 2, (), False, 64, False)

    def use(self, adapters: list[tuple[int, float]]) -> int:
        return 0

    def compute(self, memory: memoryview, lengths: list[int]) -> int:
        memory[4 * sum(lengths) :] = np.ones((len(lengths), 2), np.float32).tobytes()
        return 0


@pytest.fixture(scope="module", autouse=True)
def logged() -> Iterator[None]:
    """A daemon asks at its start whether anybody wants the lines."""
    access = logging.getLogger("llamad.access")
    access.setLevel(logging.INFO)
    yield
    access.setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def server(logged: None) -> Iterator[Faked]:
    fake = Fake(n_ctx=512, decode_us=500)
    with Faked(fake, "-np", "2", "--alias", "fake", "--embeddings", vectors=Sums()) as server:
        yield server


@pytest.fixture
def ask(server: Faked, caplog: Any) -> Any:
    """Sends a request, and returns the answer and the words of its line."""

    def ask(path: str, body: dict[str, Any], to: Faked = server) -> tuple[Any, dict[str, str]]:
        id = f"accounting-{next(_numbers)}"
        answer = to.client.post(path, body, headers={"X-Request-Id": id})
        return answer, words_of(id, lambda: caplog.messages)

    return ask


def leave(server: Faked, body: dict[str, Any], when: Any, **headers: str) -> str:
    """Sends a request and goes away once `when` says so. Returns its id."""
    id = f"accounting-{next(_numbers)}"
    data = json.dumps(body).encode()
    lines = [f"{name}: {value}" for name, value in {"X-Request-Id": id, **headers}.items()]
    lines = ["POST /completion HTTP/1.1", "Host: localhost", f"Content-Length: {len(data)}", *lines]
    with socket.create_connection((server.client.host, server.client.port)) as sock:
        sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        server.until(when)
    return id


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_every_dialect_has_its_numbers(ask: Any, path: str, stream: bool) -> None:
    answer, words = ask(path, {**BODIES[path], "stream": stream, "ignore_eos": True})
    assert answer.status == 200, answer.body
    assert list(words) == [
        "model",
        "tokens_in",
        "tokens_cached",
        "tokens_out",
        "queue_ms",
        "first_ms",
        "finish",
    ]
    assert (words["model"], words["tokens_out"], words["finish"]) == ("fake", "5", "length")
    assert int(words["tokens_in"]) > 0
    if not stream:
        usage = answer.json.get("usage") or {
            "input_tokens": answer.json["tokens_evaluated"],
            "output_tokens": answer.json["tokens_predicted"],
        }
        n_in = usage.get("input_tokens", usage.get("prompt_tokens"))
        n_in += usage.get("cache_read_input_tokens", 0)
        assert (words["tokens_in"], words["tokens_out"]) == (str(n_in), "5")


def test_times_are_in_order(ask: Any) -> None:
    answer, words = ask("/completion", BODIES["/completion"])
    timings = answer.json["timings"]
    assert 0 <= float(words["queue_ms"]) <= float(words["first_ms"])
    # Rounded to a tenth.
    assert float(words["first_ms"]) >= timings["prompt_ms"] - 0.1
    assert words["tokens_cached"] == str(timings["cache_n"])


def test_several_prompts_and_completions_are_summed(ask: Any) -> None:
    body = {"prompt": ["hello", "goodbye"], "n": 2, "max_tokens": 3, "ignore_eos": True}
    answer, words = ask("/v1/completions", body)
    usage = answer.json["usage"]
    assert (words["prompts"], words["completions"]) == ("2", "4")
    assert words["tokens_in"] == str(usage["prompt_tokens"])
    assert words["tokens_out"] == str(usage["completion_tokens"]) == "12"
    assert words["tokens_cached"] == str(usage["prompt_tokens_details"]["cached_tokens"])


def test_why_it_ended(server: Faked, ask: Any) -> None:
    try:
        server.fake.script = b"abc"
        assert ask("/completion", {"prompt": "x"})[1]["finish"] == "stop"
        assert ask("/completion", {"prompt": "x", "stop": ["b"]})[1]["finish"] == "word"
        assert ask("/completion", {"prompt": "x", "n_predict": 0})[1]["tokens_out"] == "0"
    finally:
        server.fake.script = b""


def test_a_refused_request_has_an_error_and_no_numbers(ask: Any) -> None:
    answer, words = ask("/completion", {"prompt": "x" * 1000})
    assert answer.status == 400
    assert list(words) == ["error"]
    assert words["error"].startswith("The prompt of ")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_has_the_tokens_so_far(server: Faked, caplog: Any, stream: bool) -> None:
    body = {"prompt": "hello", "n_predict": -1, "ignore_eos": True, "stream": stream}
    id = leave(
        server, body, lambda: any(slot.is_busy and slot.n_decoded > 9 for slot in server.engine.slots())
    )
    words = words_of(id, lambda: caplog.messages)
    assert words["finish"] == "abort"
    assert int(words["tokens_out"]) > 9
    server.until(lambda: not server.engine.tasks)


def test_a_client_that_leaves_the_queue(server: Faked, caplog: Any) -> None:
    busy = [server.client.open_stream({"prompt": "busy", "n_predict": -1, "ignore_eos": True}) for _ in "ab"]
    server.until(lambda: server.engine.n_running == 2)
    id = leave(server, {"prompt": "hello"}, lambda: server.engine.n_waiting == 1)
    words = words_of(id, lambda: caplog.messages)
    assert (words["finish"], words["tokens_out"], words["tokens_cached"]) == ("abort", "0", "0")
    assert float(words["queue_ms"]) > 0
    assert "first_ms" not in words
    for sock in busy:
        sock.close()
    server.until(lambda: not server.engine.tasks)


def test_a_generation_that_goes_on_without_its_client(server: Faked, caplog: Any) -> None:
    caplog.set_level("INFO")
    body = {"prompt": "hello", "n_predict": 300, "ignore_eos": True, "stream": True}
    id = leave(server, body, lambda: server.engine.n_running == 1, **{"X-Conversation-Id": "c"})
    assert words_of(id, lambda: caplog.messages)["finish"] == "detached"
    server.until(
        lambda: any(f"request {id}: " in line and "tokens_out=300" in line for line in caplog.messages)
    )
    (line,) = [line for line in caplog.messages if f"request {id}: " in line]
    assert line.endswith("finish=length")


def test_a_timeout_and_a_failed_decode(ask: Any) -> None:
    with Faked(Fake(decode_us=3000), "--request-timeout", "0.2") as short:
        answer, words = ask("/completion", {"prompt": "for ever"}, short)
        assert (answer.status, words["finish"]) == (408, "timeout")
        assert words["error"] == "The request exceeded --request-timeout"
        short.fake.fail_next(-3, n_times=2)
        answer, words = ask("/completion", {"prompt": "y"}, short)
        assert (answer.status, words["finish"]) == (500, "error")


def test_vectors_have_their_tokens(ask: Any) -> None:
    answer, words = ask("/v1/embeddings", {"input": ["hello", "you"]})
    n_tokens = answer.json["usage"]["prompt_tokens"]
    assert words == {"model": "fake", "prompts": "2", "tokens_in": str(n_tokens)}
    assert list(ask("/embedding", {"content": "hello"})[1]) == ["model", "tokens_in"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_tool_calls_are_a_reason(live: Any, path: str, stream: bool) -> None:
    body = {**BODIES[path], "stream": stream, "max_tokens": CALL_MAX, "tool_choice": "required"}
    function = {"name": "weather", "parameters": WEATHER}
    if path == "/v1/messages":
        body["tools"] = [{"name": "weather", "input_schema": WEATHER}]
        body["tool_choice"] = {"type": "any"}
    else:
        is_chat = path == "/v1/chat/completions"
        body["tools"] = [{"type": "function", **({"function": function} if is_chat else function)}]
    if path == "/v1/responses":
        body["max_output_tokens"] = body.pop("max_tokens")
    id = f"accounting-{next(_numbers)}-{path.replace('/', '.')}"
    answer = live.client.post(path, body, headers={"X-Request-Id": id})
    assert answer.status == 200, answer.body
    words = words_of(id, lambda: live.lines)
    assert (words["model"], words["finish"]) == ("smol", "tool_calls")


def test_adapters_are_part_of_the_models_name() -> None:
    files = [AdapterFile("/a/b.gguf", 1.0, ""), AdapterFile("/a/c.gguf", 1.0, "extra")]
    adapters = Adapters(files, apply=True)
    infos = [AdapterInfo(i, bytes(32), 1, "", "", ()) for i in range(3)]
    adapters.opened(infos[:2])
    service: Any = SimpleNamespace(public_name="base", host=SimpleNamespace(adapters=adapters))
    assert model_word(service, ()) == "base"
    assert model_word(service, [infos[1].id]) == "base:extra"
    assert model_word(service, [info.id for info in infos]) == "base:b.gguf+extra+2"
