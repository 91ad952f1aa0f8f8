"""POST /api/chat through the official `ollama` package: whole and streamed, options, formats, tools, reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from support.clients.official_clients import ollama
from support.fake_daemon import Faked
from support.http_client import Client

from llamad.engine.testing.fake import Fake

PATH = "/api/chat"
HI: list[Any] = [{"role": "user", "content": "Hi"}]
THINKER = (
    "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content }}\n{% endfor %}assistant: "
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% if reasoning_effort is defined %}effort {{ reasoning_effort }}{% endif %}"
)
TOOL_TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>{% endfor %}"
    "{% if m.tool_call_id %}[{{ m.tool_call_id }}]{% endif %}|{% endfor %}{{ tools or '' }}"
)
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "The time", "parameters": {"type": "object"}},
}
CALL = b'<tool_call>\n{"name": "clock", "arguments": {"zone": "CET"}}\n</tool_call>'


def client_of(server: Faked, **options: Any) -> Any:
    return ollama.Client(host=f"http://{server.client.host}:{server.client.port}", **options)


def ignored(server: Faked, **body: Any) -> str:
    """The header that names what a request asked for in vain."""
    reply = server.client.post(PATH, {"model": "m", "messages": HI, "stream": False, **body})
    assert reply.status == 200, reply.body
    return str(reply.headers.get("x-llamad-ignored", ""))


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    with Faked(Fake(script=b"One two three.", n_ctx=4096), "--slots", "-a", "smol", n_ctx=4096) as made:
        yield made


@pytest.fixture
def official(server: Faked) -> Iterator[Any]:
    with client_of(server) as made:
        yield made


def test_whole(official: Any) -> None:
    reply = official.chat("smol", HI)
    assert reply.message.role == "assistant"
    assert reply.message.content == "One two three."
    assert (reply.model, reply.done, reply.done_reason) == ("smol", True, "stop")
    assert reply.prompt_eval_count > 2
    assert reply.eval_count == len("One two three.") + 1
    assert reply.total_duration >= reply.prompt_eval_duration + reply.eval_duration > 0
    assert 0 <= reply.load_duration < reply.total_duration
    assert reply.created_at.endswith("Z")
    assert reply.message.thinking is None
    assert reply.message.tool_calls is None


def test_streamed(official: Any) -> None:
    *pieces, last = official.chat("smol", HI, stream=True)
    assert "".join(one.message.content for one in pieces) == "One two three."
    assert len(pieces) > 3
    assert {one.done for one in pieces} == {False}
    assert (last.done, last.done_reason, last.message.content) == (True, "stop", "")
    assert last.eval_count == len("One two three.") + 1


def test_a_stream_is_the_default_and_has_an_object_in_each_line(server: Faked) -> None:
    reply = server.client.post(PATH, {"model": "smol", "messages": HI})
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert reply.body.endswith(b"\n")
    objects = [json.loads(line) for line in reply.body.decode().splitlines()]
    assert [one["done"] for one in objects] == [False] * (len(objects) - 1) + [True]
    assert server.client.post(PATH, {"model": "smol", "messages": HI, "stream": False}).json["done"] is True


def test_a_silent_stream_has_lines_that_say_nothing() -> None:
    """The fake model takes two seconds for its prompt."""
    with Faked(Fake(script=b"x", decode_us=2_200_000), "--sse-ping-interval", "1") as server:
        first, *_ = client_of(server).chat("m", HI, stream=True, options={"num_predict": 1})
    assert (first.message.content, first.done) == ("", False)


def test_options(server: Faked, official: Any) -> None:
    assert official.chat("smol", HI, options={"num_predict": 3}).done_reason == "length"
    assert official.chat("smol", HI, options={"num_predict": 3}).message.content == "One"
    stopped = official.chat("smol", HI, options={"stop": ["two"]})
    assert (stopped.message.content, stopped.done_reason) == ("One ", "stop")
    assert official.chat("smol", HI, options=ollama.Options(num_predict=-1, seed=7)).done_reason == "stop"
    assert official.chat("smol", HI, options={"num_predict": 0}).message.content == "One two three."


def test_every_option_reaches_the_engine() -> None:
    """They are what /slots shows of the request that runs."""
    sent = {
        "num_keep": 5,
        "seed": 42,
        "num_predict": 100,
        "top_k": 20,
        "top_p": 0.9,
        "min_p": 0.25,
        "tfs_z": 0.5,
        "typical_p": 0.75,
        "repeat_last_n": 33,
        "temperature": 0.5,
        "repeat_penalty": 1.25,
        "presence_penalty": 1.5,
        "frequency_penalty": 1.0,
        "mirostat": 1,
        "mirostat_tau": 2.5,
        "mirostat_eta": 0.5,
        "penalize_newline": True,
    }
    names = {"num_keep": "n_keep", "num_predict": "n_predict", "penalize_newline": "penalize_nl"}
    with Faked(Fake(script=b"x" * 100, decode_us=50_000), "--slots") as server:
        stream = client_of(server).chat("m", HI, stream=True, options=sent)
        next(iter(stream))
        (slot,) = [one for one in server.client.get("/slots").json if one["is_processing"]]
        shown = slot["params"]
        assert {name: shown[names.get(name, name)] for name in sent} == sent


def test_hints_are_left_out_and_named(server: Faked) -> None:
    """They are sizes and settings of a load."""
    assert ignored(server, options={"num_ctx": 4096, "num_predict": 1}) == ""
    assert ignored(server, options={"num_ctx": 4097}) == "options.num_ctx"
    hints = {
        "num_gpu": 99,
        "num_thread": 4,
        "use_mmap": True,
        "use_mlock": False,
        "num_batch": 512,
        "main_gpu": 0,
    }
    assert ignored(server, options=hints) == ", ".join(f"options.{name}" for name in hints)
    assert ignored(server, options={"unheard": 1, "num_gpu": None}) == "options.unheard"
    assert ignored(server, truncate=True, shift=True) == "truncate, shift"
    assert ignored(server, truncate=False, shift=False) == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": 5}, '"messages" must be an array'),
        ({"messages": ["a"]}, '"messages[0]" must be an object with the "role"'),
        ({"messages": [{"role": "x", "content": "a"}]}, '"messages[0]" must be an object with the "role"'),
        ({"messages": [{"role": "user", "content": ["a"]}]}, '"messages[0]": "content" must be a string'),
        (
            {"messages": [{"role": "user", "content": "a", "images": [1]}]},
            '"messages[0].images" must be an array of',
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [5]}]}, '"messages[0].tool_calls" must be'),
        ({"options": {"temperature": "a"}}, '"options.temperature" must be a number'),
        ({"options": {"num_predict": "a"}}, '"options.num_predict" must be an integer'),
        ({"options": {"top_k": 0.5}}, '"options.top_k" must be'),
        ({"options": []}, '"options" must be an object'),
        ({"format": "xml"}, '"format" must be "json" or a JSON schema'),
        ({"format": {"type": "hiccup"}}, '"format": type at #: must be'),
        ({"think": "deeply"}, '"think" must be a boolean, "low"'),
        ({"think": True}, '"m" does not support thinking'),
        ({"keep_alive": "x"}, '"keep_alive" must be a number of seconds, or a duration'),
        ({"tools": [5]}, '"tools[0]" must be'),
        ({"top_logprobs": 21, "logprobs": True}, '"top_logprobs" must be between 0 and 20'),
        ({"top_logprobs": 2}, '"top_logprobs" needs "logprobs": true'),
    ],
)
def test_wrong_requests(server: Faked, body: dict[str, Any], message: str) -> None:
    reply = server.client.post(PATH, {"model": "m", "messages": HI, "stream": False, **body})
    assert reply.status == 400
    assert reply.json.keys() == {"error"}
    assert message in reply.json["error"]


def test_errors_of_the_client(server: Faked, official: Any) -> None:
    long = [{"role": "user", "content": "x" * 5000}]
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError, match="exceeds the available context") as caught:
            list(official.chat("m", long, stream=stream))
        assert caught.value.status_code == 400
    for ask in (official.pull, official.delete):
        with pytest.raises(ollama.ResponseError, match="This server has one model") as caught:
            ask("m")
        assert caught.value.status_code == 501
    for ask in (official.push, partial(official.create, from_="x"), partial(official.copy, "n")):
        with pytest.raises(ollama.ResponseError, match="not copied, created or pushed") as caught:
            ask("m")
        assert caught.value.status_code == 501


def test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with Faked(Fake(script=b"Yes."), "--api-key", "secret") as server:
        with pytest.raises(ollama.ResponseError, match="Invalid API Key") as caught:
            client_of(server).chat("m", HI)
        assert caught.value.status_code == 401
        known = client_of(server, headers={"Authorization": "Bearer secret"})
        assert known.chat("m", HI).message.content == "Yes."
        with monkeypatch.context() as patched:
            patched.setenv("OLLAMA_API_KEY", "secret")
            assert client_of(server).chat("m", HI).message.content == "Yes."
        assert [server.client.get(path).status for path in ("/api/tags", "/api/version", "/api/ps")] == [
            200,
            200,
            401,
        ]


def test_origins(server: Faked) -> None:
    """Other pages may not use a local server, whatever the dialect."""
    reply = server.client.post(
        PATH, {"model": "m", "messages": HI}, headers={"Origin": "https://evil.example"}
    )
    assert reply.status == 403
    assert "error" in reply.json


@pytest.mark.parametrize(
    ("more", "headers", "status", "message"),
    [
        ({}, {"Host": "evil.example"}, 421, "does not serve the host"),
        ({"messages": [{"role": "user", "content": "x" * 20_000}]}, {}, 413, "--body-max-bytes"),
        ({"options": {"num_predict": 9}}, {}, 400, '"options.num_predict" may be at most 8'),
        ({"options": {"stop": ["a"] * 65}}, {}, 400, '"options.stop" may have at most 64'),
    ],
)
def test_limits_and_hosts(more: dict[str, Any], headers: dict[str, str], status: int, message: str) -> None:
    """They are those of the other dialects, and their refusals have the form of this one."""
    flags = ("--n-predict-max", "8", "--body-max-bytes", "16384")
    with Faked(Fake(script=b"One two three."), *flags) as server:
        body = {"model": "m", "messages": HI, "stream": False}
        reply = server.client.post(PATH, body | more, headers=headers)
        assert reply.status == status
        assert reply.json.keys() == {"error"}
        assert message in reply.json["error"]
        endless = server.client.post(PATH, body | {"options": {"num_predict": -1}}).json
        assert (endless["done_reason"], endless["eval_count"]) == ("length", 8)


def test_a_field_that_is_null_is_left_out(server: Faked) -> None:
    """Clients in typed languages send all of their fields."""
    names = ("stream", "options", "format", "keep_alive", "tools", "think", "truncate", "shift", "logprobs")
    message = {"role": "user", "content": "Hi", "images": None, "tool_calls": None, "thinking": None}
    reply = server.client.post(PATH, {"model": "m", "messages": [message], **dict.fromkeys(names)})
    assert reply.headers["content-type"] == "application/x-ndjson"
    *lines, last = map(json.loads, reply.body.decode().splitlines())
    assert "".join(one["message"]["content"] for one in lines) == "One two three."
    assert last["done_reason"] == "stop"
    options = dict.fromkeys(("seed", "stop", "num_predict", "temperature", "num_ctx"))
    assert ignored(server, options=options) == ""


def test_an_engine_that_fails_is_an_error_in_the_stream() -> None:
    with Faked(Fake(script=b"x" * 100, decode_us=20_000)) as server:
        stream = iter(client_of(server).chat("m", HI, stream=True))
        next(stream)
        jobs: list[Any] = list(server.served.service.streams)
        server.loop.call_soon_threadsafe(jobs[0].give_way, "gone")
        with pytest.raises(ollama.ResponseError, match="gone"):
            list(stream)


class City(BaseModel):
    name: Literal["Paris", "Rome"]
    size: Literal[1, 2]


def test_formats() -> None:
    """The script is no JSON: the grammar chooses among the other tokens."""
    with Faked(Fake(n_ctx=4096), n_ctx=4096) as server:
        official = client_of(server)
        reply = official.chat("m", HI, format=City.model_json_schema(), options={"num_predict": 200})
        assert City.model_validate_json(reply.message.content)
        chunks = official.chat(
            "m", HI, format=City.model_json_schema(), options={"num_predict": 200}, stream=True
        )
        assert City.model_validate_json("".join(one.message.content for one in chunks))
        assert official.chat("m", HI, format="json", options={"num_predict": 1}).message.content in (
            "{",
            " ",
            "\n",
        )
        assert official.chat("m", HI, format="", options={"num_predict": 1}).done


def test_a_tool_call() -> None:
    def clock(zone: str) -> str:
        """The time.

        Args:
            zone: its zone
        """
        return zone

    with Faked(Fake(script=CALL, n_ctx=8192), "--chat-template", TOOL_TEMPLATE, n_ctx=8192) as server:
        official = client_of(server)
        for tools in ([clock], [CLOCK]):
            reply = official.chat("m", HI, tools=tools)
            (call,) = reply.message.tool_calls
            assert (call.function.name, call.function.arguments) == ("clock", {"zone": "CET"})
            assert (reply.message.content, reply.done_reason) == ("", "stop")
        chunks = list(official.chat("m", HI, tools=[CLOCK], stream=True))
        (call,) = [call for one in chunks for call in one.message.tool_calls or ()]
        assert call.function.arguments == {"zone": "CET"}
        assert "".join(one.message.content for one in chunks) == ""
        raw = server.client.post(PATH, {"messages": HI, "tools": [CLOCK], "stream": False}).json
        assert raw["message"]["tool_calls"][0]["id"]
        assert raw["message"]["tool_calls"][0]["function"]["index"] == 0
        cut = official.chat("m", HI, tools=[CLOCK], options={"num_predict": len(CALL) - 20})
        assert cut.message.tool_calls is None
        assert cut.done_reason == "length"
        assert "zone" in cut.message.content


def test_results_of_tools_belong_to_their_calls() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"function": {"name": name, "arguments": {"a": 1}}}

    messages = [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [call("one"), call("two"), call("three")]},
        {"role": "tool", "content": "second", "tool_name": "two"},
        {"role": "tool", "content": "first"},
        {"role": "tool", "content": "third", "tool_call_id": "call_1_2"},
        {"role": "tool", "content": "more"},
    ]
    with Faked(
        Fake(script=b"x", n_ctx=4096), "--slots", "--chat-template", TOOL_TEMPLATE, n_ctx=4096
    ) as server:
        body = {"model": "m", "messages": messages, "stream": False, "options": {"num_predict": 1}}
        reply = server.client.post(PATH, body)
        assert reply.status == 200, reply.body
        slot = max(server.client.get("/slots").json, key=lambda one: one["n_tokens"])
        tokens = server.client.post(f"/slots/{slot['id']}?action=tokens", {}).json["tokens"]
        prompt = server.client.post("/detokenize", {"tokens": tokens}).json["content"]
    assert "tool:second[call_1_1]|tool:first[call_1_0]|tool:third[call_1_2]|tool:more|" in prompt
    assert "call_1_0" in prompt.partition("tool:second")[0]


def test_thinking() -> None:
    script = b"<think>Hm.</think>Yes."
    with Faked(Fake(script=script, n_ctx=4096), "--chat-template", THINKER, n_ctx=4096) as server:
        official = client_of(server)
        for think in (None, True, "high"):
            reply = official.chat("m", HI, think=think)
            assert (reply.message.thinking, reply.message.content) == ("Hm.", "Yes.")
        chunks = list(official.chat("m", HI, think=True, stream=True))
        assert "".join(one.message.thinking or "" for one in chunks) == "Hm."
        assert "".join(one.message.content for one in chunks) == "Yes."
        counts = {
            think: official.chat("m", HI, think=think, options={"num_predict": 1}).prompt_eval_count
            for think in (True, False, "low", "high")
        }
        assert counts[False] == counts[True] + len("<think></think>")
        assert counts["high"] == counts["low"] + 1 == counts[True] + len("effort high")
        own = [*HI, {"role": "assistant", "content": "No.", "thinking": "Hm."}, *HI]
        plain = [*HI, {"role": "assistant", "content": "No."}, *HI]
        n_with, n_without = (official.chat("m", one).prompt_eval_count for one in (own, plain))
        assert n_with == n_without + len("<think>Hm.</think>")
        # The thought of an answer that the server gave is put back.
        given = [*HI, {"role": "assistant", "content": "Yes."}, *HI]
        assert official.chat("m", given).prompt_eval_count == n_with + len("Yes.") - len("No.")


def test_logprobs(official: Any) -> None:
    reply = official.chat("smol", HI, logprobs=True, top_logprobs=2, options={"num_predict": 3})
    assert [one.token for one in reply.logprobs] == ["O", "n", "e"]
    assert [len(one.top_logprobs) for one in reply.logprobs] == [2, 2, 2]
    assert all(one.logprob <= 0 for one in reply.logprobs)
    chunks = official.chat("smol", HI, logprobs=True, stream=True, options={"num_predict": 3})
    assert [one.token for chunk in chunks for one in chunk.logprobs or ()] == ["O", "n", "e"]
    assert official.chat("smol", HI, options={"num_predict": 3}).logprobs is None


def test_a_request_without_messages_loads_the_model(official: Any) -> None:
    reply = official.chat("smol")
    assert (reply.done, reply.done_reason, reply.message.content) == (True, "load", "")
    (line,) = official.chat("smol", [], stream=True)
    assert line.done_reason == "load"


def test_other_requests_are_not_touched(server: Faked) -> None:
    """Errors outside of /api have the usual form."""
    client: Client = server.client
    assert client.post("/v1/chat/completions", {"messages": 5}).error["type"] == "invalid_request_error"
