"""POST /v1/chat/completions through the official client: texts, streams, limits, forms, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel
from support.clients.official_clients import openai
from support.live_daemon import Live

SAY = [{"role": "user", "content": "Say hello to my cat."}]
PATH = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}


def ask(official: openai.OpenAI, messages: Any = SAY, **options: Any) -> Any:
    """Greedy and short, unless said otherwise."""
    options = {"temperature": 0, "max_tokens": 8, **options}
    return official.chat.completions.create(model="any", messages=messages, **options)


@pytest.mark.real_model
def test_answer(official: openai.OpenAI) -> None:
    one, other = ask(official), ask(official)
    assert one.object == "chat.completion"
    assert one.model == "any"
    assert one.choices[0].message.role == "assistant"
    assert one.choices[0].message.content == other.choices[0].message.content != ""
    assert one.choices[0].finish_reason == "length"
    assert one.choices[0].logprobs is None
    assert one.usage.completion_tokens == 8
    assert one.usage.total_tokens == one.usage.prompt_tokens + 8
    # All but the last token of the same prompt was there already.
    assert other.usage.prompt_tokens_details.cached_tokens == other.usage.prompt_tokens - 1
    assert one.id.startswith("chatcmpl-")
    assert one.id != other.id
    assert one.system_fingerprint == other.system_fingerprint
    assert one.timings["predicted_n"] == 8


def test_fingerprint_and_paths(official: openai.OpenAI, client: Any) -> None:
    build = client.get("/props").json["build_info"]
    answer = client.post("/chat/completions", {"messages": SAY, "max_tokens": 1}).json
    assert answer["system_fingerprint"] == build
    assert answer["model"] == "smol"  # the alias, where the request names none


@pytest.mark.real_model
def test_stream(official: openai.OpenAI) -> None:
    whole = ask(official, max_tokens=24).choices[0].message.content
    chunks = list(ask(official, max_tokens=24, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) > 10
    assert len({c.id for c in chunks}) == 1
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 24
    assert [c for c in ask(official, stream=True) if c.usage is not None] == []


def test_stream_ends_with_done(client: Any) -> None:
    body = {"messages": SAY, "max_tokens": 2, "stream": True, "timings_per_token": True}
    answer = client.post(PATH, body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.body.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    texts = [event for event in events if event["choices"][0]["delta"].get("content")]
    assert texts
    assert all("timings" in event for event in texts)
    assert events[-1]["timings"]["predicted_n"] == 2


def test_several(official: openai.OpenAI) -> None:
    answer = ask(official, n=3, temperature=1.5, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens == sum(8 for _ in answer.choices)
    again = ask(official, n=3, temperature=1.5, seed=7, stream=True, extra_body={"cache_prompt": False})
    texts = ["", "", ""]
    roles = [0, 0, 0]
    for chunk in again:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            roles[choice.index] += choice.delta.role is not None
    assert roles == [1, 1, 1]
    assert all(texts)


@pytest.mark.parametrize("stop", ["cat", ["cat", "zebra"]])
def test_stop(official: openai.OpenAI, stop: Any) -> None:
    messages = [{"role": "user", "content": "Repeat: my cat sleeps"}, {"role": "assistant", "content": "my"}]
    answer = ask(official, messages, stop=stop, extra_body={"grammar": 'root ::= " cat sleeps well"'})
    assert answer.choices[0].message.content == " "
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_limits(official: openai.OpenAI, name: str) -> None:
    answer = ask(official, max_tokens=openai.omit, extra_body={name: 3})
    assert answer.usage.completion_tokens == 3
    assert answer.choices[0].finish_reason == "length"


def test_seed(official: openai.OpenAI) -> None:
    texts = [
        ask(official, temperature=2, seed=seed, extra_body={"id_slot": 0, "cache_prompt": False})
        .choices[0]
        .message.content
        for seed in (5, 5, 6, 2**63 - 1, 2**63 - 1)  # OpenAI's have 64 bits
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[3] == texts[4] != texts[0]


def test_logprobs(official: openai.OpenAI) -> None:
    choice = ask(official, logprobs=True, top_logprobs=3).choices[0]
    told = choice.logprobs.content
    assert len(told) == 8
    assert b"".join(bytes(one.bytes) for one in told).decode() == choice.message.content
    for one in told:
        assert one.top_logprobs[0].token == one.token  # greedy
        assert one.logprob == one.top_logprobs[0].logprob <= 0
        assert len(one.top_logprobs) == 3
    streamed = ask(official, logprobs=True, top_logprobs=3, stream=True)
    chunks = [chunk.choices[0].logprobs for chunk in streamed if chunk.choices]
    tokens = [one.token for logprobs in chunks if logprobs for one in logprobs.content]
    assert tokens == [one.token for one in told]
    assert ask(official, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    # As /completion asks for them, and after sampling.
    asked = ask(official, extra_body={"n_probs": 2}).choices[0].logprobs.content
    assert len(asked[0].top_logprobs) == 2
    post = ask(official, logprobs=True, extra_body={"post_sampling_probs": True}).choices[0].logprobs.content
    assert post[0].prob == 1.0


FORMS: list[Any] = [
    {"type": "json_object", "schema": SCHEMA},
    {"type": "json_schema", "schema": SCHEMA},
    {"type": "json_schema", "json_schema": SCHEMA},
    {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA, "strict": True}},
]


@pytest.mark.parametrize("form", FORMS)
def test_schema(official: openai.OpenAI, form: Any) -> None:
    answer = ask(official, response_format=form, max_tokens=64)
    value = json.loads(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"
    assert list(value) == ["ok", "n"]
    assert isinstance(value["ok"], bool)
    assert 1 <= value["n"] <= 9


def test_documented_schemas(official: openai.OpenAI) -> None:
    """llama-server's README shows these."""
    text = {"type": "json_object", "schema": {"type": "string", "minLength": 10, "maxLength": 20}}
    value = json.loads(ask(official, response_format=text, max_tokens=64).choices[0].message.content)
    assert 10 <= len(value) <= 20
    titled = {"title": "Name", "type": "string"}
    listed = {"items": {"type": "string"}, "title": "Participants", "type": "string"}
    form = {"type": "json_schema", "schema": {"properties": {"name": titled, "participants": listed}}}
    assert ask(official, response_format=form).choices[0].message.content.startswith("{")


def test_json_object(official: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": 'Answer with the JSON {"a": 1}'}]
    text = ask(official, messages, response_format={"type": "json_object"}, max_tokens=6).choices[0]
    assert text.message.content.startswith("{")


@pytest.mark.parametrize("form", [{"type": "text"}, {"type": "auto"}, "auto", None])
def test_no_form(official: openai.OpenAI, form: Any) -> None:
    plain = ask(official).choices[0].message.content
    assert ask(official, extra_body={"response_format": form}).choices[0].message.content == plain


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("json", '"type"'),
        ({"type": "xml"}, "unknown type"),
        ({"type": "json_schema"}, "missing"),
        ({"type": "json_schema", "json_schema": 3}, "must be an object"),
        ({"type": "json_schema", "json_schema": {"type": 7}}, "response_format"),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": 5}}, "must be an object"),
        ([], '"type"'),
    ],
)
def test_bad_forms(official: openai.OpenAI, form: Any, says: str) -> None:
    with pytest.raises(openai.BadRequestError, match=says):
        ask(official, extra_body={"response_format": form})


def test_unstrict_form_warns(client: Any) -> None:
    schema = {"type": "array", "items": {"type": "boolean"}, "maxItems": 2, "uniqueItems": True}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": False}}
    body = {"messages": SAY, "max_tokens": 16, "response_format": form}
    answer = client.post(PATH, body).json
    assert any("uniqueItems" in one for one in answer["warnings"])
    last = [event for event in _events(client, body) if event["choices"][0]["finish_reason"]]
    assert last[0]["warnings"] == answer["warnings"]


def _events(client: Any, body: Any) -> list[Any]:
    lines = client.post(PATH, {**body, "stream": True}).body.decode().split("\n\n")[:-2]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


class Pet(BaseModel):
    name: str
    age: int


@pytest.mark.real_model
def test_pydantic(official: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Tom is a cat of 3 years. Describe him as JSON."}]
    answer = official.chat.completions.parse(
        model="any", messages=messages, response_format=Pet, temperature=0, max_tokens=80
    )
    assert isinstance(answer.choices[0].message.parsed, Pet)


def test_prefill(official: openai.OpenAI, client: Any) -> None:
    messages = [*SAY, {"role": "assistant", "content": "Hello, dear"}]
    prompt = client.post("/apply-template", {"messages": messages}).json["prompt"]
    assert prompt.endswith("<|im_start|>assistant\nHello, dear")
    answer = ask(official, messages).choices[0].message.content
    assert answer == client.complete(prompt, temperature=0, n_predict=8)["content"]


def test_a_prefill_in_parts_is_joined_as_in_llama_server(client: Any) -> None:
    parts = [{"type": "text", "text": "Hello,"}, {"type": "text", "text": "dear"}]
    messages = [*SAY, {"role": "assistant", "content": parts}]
    prompt = client.post("/apply-template", {"messages": messages}).json["prompt"]
    assert prompt.endswith("<|im_start|>assistant\nHello,\n\ndear")


def test_echo_of_a_prefilled_turn(client: Any) -> None:
    body = {
        "messages": [*SAY, {"role": "assistant", "content": "Hello, dear"}],
        "max_tokens": 4,
        "temperature": 0,
    }
    new = client.post(PATH, body).json["choices"][0]["message"]["content"]
    assert not new.startswith("Hello, dear")
    assert (
        client.post(PATH, {**body, "echo": True}).json["choices"][0]["message"]["content"]
        == "Hello, dear" + new
    )
    for more in ({}, {"return_progress": True}):
        sent = client.post(PATH, {**body, "stream": True, "echo": True, **more}).body.split(b"\n\n")[:-2]
        deltas = [json.loads(event[6:])["choices"][0]["delta"].get("content") or "" for event in sent]
        assert "".join(deltas) == "Hello, dear" + new
    unprefilled = client.post(PATH, {**body, "messages": SAY, "echo": True}).json
    assert "Say hello" not in unprefilled["choices"][0]["message"]["content"]


def test_null_content_is_an_empty_one(client: Any) -> None:
    for role in ("user", "system"):
        null, empty = (
            client.post("/apply-template", {"messages": [{"role": role, "content": content}, *SAY]}).json[
                "prompt"
            ]
            for content in (None, "")
        )
        assert null == empty


def test_apply_template(client: Any) -> None:
    def prompt(**body: Any) -> str:
        answer = client.post("/apply-template", body)
        assert answer.status == 200, answer.body
        return answer.json["prompt"]

    system = {"role": "system", "content": "Be brief."}
    text = prompt(messages=[system, *SAY])
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay hello to my cat.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert prompt(messages=[{**system, "role": "developer"}, *SAY]) == text
    parts = [{"type": "text", "text": "Say hello to my cat."}]
    assert prompt(messages=[system, {"role": "user", "content": parts}]) == text
    assert prompt(messages=[system, *SAY], add_generation_prompt=False) == text.removesuffix(
        "<|im_start|>assistant\n"
    )
    long = "word " * 20000  # rendered by a worker
    assert f"user\n{long}<|im_end|>" in prompt(messages=[{"role": "user", "content": long}])
    assert client.post("/apply-template", {"messages": []}).error["message"].startswith('"messages"')


def test_template_variables(tiny: str) -> None:
    template = "{% if loud %}LOUD{% endif %}{% if raises %}{{ raise_exception('never this') }}{% endif %}x"
    flags = ("--chat-template", template, "--chat-template-kwargs", '{"loud": true}', "-c", "256")
    with Live(*flags, "--api-key", "sesame", model=tiny) as server:
        server.client.headers = {"Authorization": "Bearer sesame"}
        post = server.client.post
        assert post("/apply-template", {"messages": SAY}).json["prompt"] == "LOUDx"
        quiet = {"messages": SAY, "chat_template_kwargs": {"loud": False}}
        assert post("/apply-template", quiet).json["prompt"] == "x"
        refused = post(PATH, {"messages": SAY, "chat_template_kwargs": {"raises": True}})
        assert refused.status == 400
        assert "never this" in refused.error["message"]
        _check_end_of_context(server)
        _check_keys(server)


def _check_end_of_context(server: Live) -> None:
    """Without a limit a text ends with its context; nothing shifts."""
    for limit in ({}, {"max_tokens": -1}, {"n_predict": -1}):
        body = {"messages": SAY, "ignore_eos": True, "temperature": 0, **limit}
        answer = server.client.post(PATH, body).json
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["total_tokens"] in (256, 257)
    answer = server.client.post("/v1/completions", {"prompt": "x", "ignore_eos": True}).json
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] in (256, 257)


def _check_keys(server: Live) -> None:
    url = f"http://{server.client.host}:{server.client.port}/v1"
    wrong = openai.OpenAI(base_url=url, api_key="wrong", max_retries=0)
    with wrong, pytest.raises(openai.AuthenticationError, match="Invalid API Key"):
        ask(wrong)
    with openai.OpenAI(base_url=url, api_key="sesame", max_retries=0) as right:
        assert ask(right, max_tokens=1).usage.completion_tokens == 1
        (listed,) = right.models.list().data
        assert right.models.retrieve(listed.id) == listed


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"messages": None}, '"messages"'),
        ({"messages": [{"content": "no role"}]}, "messages[0]"),
        ({"messages": [*SAY, {"role": "user", "content": 5}]}, "messages[1]"),
        ({"messages": [{"role": "user"}]}, 'no "content"'),
        ({"messages": [{"role": "user", "content": [{"type": "poem"}]}]}, '"type"'),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text"),
        ({"temperature": "hot"}, '"temperature"'),
        ({"max_tokens": "many"}, '"max_tokens"'),
        ({"max_completion_tokens": 1.5}, '"max_completion_tokens"'),
        ({"stop": 3}, '"stop"'),
        ({"n": 0}, '"n"'),
        ({"top_logprobs": 2}, '"top_logprobs" needs'),
        ({"logprobs": True, "top_logprobs": 21}, '"top_logprobs"'),
        ({"logprobs": 2}, '"logprobs"'),
        ({"stream_options": []}, '"stream_options"'),
        ({"chat_template_kwargs": 1}, '"chat_template_kwargs"'),
        ({"reasoning_format": ["x"]}, '"reasoning_format"'),
        ({"id_slot": "0"}, '"id_slot"'),
        ({"audio": {"voice": "alloy"}}, '"audio"'),
        ({"modalities": ["text", "audio"]}, '"modalities"'),
        ({"grammar": "root ::= (", "response_format": None}, "Failed to parse grammar"),
        ({"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, "cannot be combined"),
        ({"samplers": ["magic"]}, "unknown sampler"),
        ({"model": 7}, '"model"'),
    ],
)
def test_errors(official: openai.OpenAI, body: dict[str, Any], says: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(official, extra_body=body)
    error = caught.value.body
    assert isinstance(error, dict)
    assert error["code"] == 400
    assert error["type"] == "invalid_request_error"
    assert says in error["message"]


def test_other_errors(official: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as caught:
        ask(official, [{"role": "user", "content": "word " * 9000}])
    assert caught.value.type == "exceed_context_size_error"
    image = [{"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlhAQABAAAAACw="}}]
    with pytest.raises(openai.APIStatusError, match="text only") as refused:
        ask(official, [{"role": "user", "content": image}])
    assert refused.value.status_code == 501
    with pytest.raises(openai.NotFoundError):
        official.with_options(base_url=f"{official.base_url}nowhere").chat.completions.create(
            model="any", messages=SAY
        )
    assert ask(official, modalities=["text"], user="someone").choices[0].message.content


def test_every_option(client: Any) -> None:
    """What /completion takes is taken here."""
    options = client.complete("x", n_predict=1)["generation_settings"]
    own = {"n_predict", "max_tokens", "model", "n_ctx", "grammar", "stream", "logit_bias", "n_cmpl"}
    body = {name: value for name, value in options.items() if name not in own and "." not in name}
    extra = {"return_tokens": True, "logit_bias": [[1, -1]], "response_fields": ["choices", "usage"]}
    answer = client.post(PATH, {**body, "messages": SAY, "max_tokens": 4, **extra})
    assert answer.status == 200, answer.body
    assert set(answer.json) == {"choices", "usage"}
    assert len(answer.json["choices"][0]["tokens"]) == 4


def test_reasoning_effort(thinker: Any) -> None:
    """It reaches the template, in the template's words."""

    def prompt(**options: Any) -> str:
        return thinker.post("/apply-template", {"messages": SAY, **options}).json["prompt"].split("\n")[-1]

    assert prompt(reasoning_effort=None) == "assistant: "
    assert prompt(reasoning_effort="minimal") == "assistant: effort low"
    assert prompt(reasoning_effort="none") == "assistant: <think></think>"
    assert prompt(reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "much"}).endswith("much")
    refused = thinker.post(PATH, {"messages": SAY, "reasoning_effort": 3})
    assert refused.error["message"].startswith('"reasoning_effort" must be one of none, ')


@pytest.mark.parametrize("path", [PATH, "/v1/completions"])
def test_response_fields_of_a_stream(client: Any, path: str) -> None:
    """Each event has those that are asked for; one without any of them is not sent."""

    def told(*names: str) -> list[Any]:
        asked = {"messages": SAY} if path == PATH else {"prompt": "x"}
        options = {"max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
        lines = client.post(path, {**asked, **options, "response_fields": names}).body.split(b"\n\n")
        assert lines[-2:] == [b"data: [DONE]", b""]
        return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-2]]

    assert told("usage/completion_tokens", "nothing") == [{"usage/completion_tokens": 3}]
    events = told("choices", "usage")
    assert all(set(event) == {"choices"} for event in events[:-1])
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert set(events[-1]) == {"choices", "usage"}


def test_slot_and_cache(client: Any) -> None:
    def post(**options: Any) -> Any:
        return client.post(PATH, {"messages": SAY, "max_tokens": 2, "id_slot": 3, **options}).json["timings"]

    first = post(cache_prompt=False)
    assert first["cache_n"] == 0
    assert post()["cache_n"] == first["prompt_n"] - 1
    assert post(cache_prompt=False)["cache_n"] == 0


def test_streamed_tokens(client: Any) -> None:
    body = {"messages": SAY, "max_tokens": 5, "temperature": 0, "return_tokens": True}
    whole = client.post(PATH, body).json["choices"][0]["tokens"]
    events = _events(client, body)
    streamed = [token for event in events for token in event["choices"][0].get("tokens", [])]
    assert streamed == whole
    assert len(whole) == 5
