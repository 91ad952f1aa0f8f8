"""POST /v1/completions through the official client: prompts, echo, best_of, logprobs, streams."""

from __future__ import annotations

from typing import Any

import pytest
from support.clients.official_clients import openai

PROMPT = "The capital of France is"
PATH = "/v1/completions"


def ask(official: openai.OpenAI, prompt: Any = PROMPT, **options: Any) -> Any:
    options = {"temperature": 0, "max_tokens": 6, **options}
    return official.completions.create(model="any", prompt=prompt, **options)


@pytest.mark.real_model
def test_answer(official: openai.OpenAI, client: Any) -> None:
    answer = ask(official)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.id != ask(official).id
    assert answer.model == "any"
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].logprobs is None
    assert answer.choices[0].text == client.complete(PROMPT, temperature=0, n_predict=6)["content"]
    assert answer.usage.completion_tokens == 6
    assert answer.system_fingerprint == client.get("/props").json["build_info"]


def test_prompts(official: openai.OpenAI, client: Any) -> None:
    text = ask(official).choices[0].text
    tokens = client.post("/tokenize", {"content": PROMPT}).json["tokens"]
    assert ask(official, tokens).choices[0].text == text
    several = ask(official, [PROMPT, "One two three"])
    assert [choice.index for choice in several.choices] == [0, 1]
    assert ask(official, [tokens, tokens[:2]], n=2).choices[3].index == 3
    mixed = client.post(PATH, {"prompt": [tokens[0], PROMPT[3:]], "max_tokens": 6, "temperature": 0}).json
    assert mixed["choices"][0]["text"] == text
    for prompt in (None, [], 5, [[]], [{}]):
        assert client.post(PATH, {"prompt": prompt}).error["message"].startswith('"prompt"')


def test_echo(official: openai.OpenAI, client: Any) -> None:
    text = ask(official).choices[0].text
    assert ask(official, echo=True).choices[0].text == PROMPT + text
    tokens = client.post("/tokenize", {"content": PROMPT}).json["tokens"]
    both = ask(official, [tokens, tokens], echo=True, n=2)
    assert [choice.text for choice in both.choices] == [PROMPT + text] * 4
    chunks = ask(official, echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == PROMPT + text


def test_logprobs_have_both_forms(client: Any) -> None:
    """OpenAI's own, and the chats', which llama-server has here too."""
    body = {"prompt": "One, two,", "max_tokens": 3, "logprobs": 2, "temperature": 0}
    told = client.post("/v1/completions", body).json["choices"][0]["logprobs"]
    assert [one["token"] for one in told["content"]] == told["tokens"]
    assert [one["logprob"] for one in told["content"]] == told["token_logprobs"]
    assert [{top["token"]: top["logprob"] for top in one["top_logprobs"]} for one in told["content"]] == (
        told["top_logprobs"]
    )


def test_echo_with_logprobs(official: openai.OpenAI, client: Any) -> None:
    """A text that was generated, sent again as a prompt: its tokens are as likely as they were."""
    written = ask(official, logprobs=2, extra_body={"return_tokens": True}).choices[0]
    prompt = client.post("/tokenize", {"content": PROMPT}).json["tokens"] + written.tokens
    for n in (0, 2):
        choice = ask(official, prompt, echo=True, logprobs=2, max_tokens=n).choices[0]
        told = choice.logprobs
        assert len(told.tokens) == len(prompt) + n
        assert len(told.token_logprobs) == len(told.top_logprobs) == len(told.text_offset) == len(told.tokens)
        assert "".join(told.tokens) == choice.text
        assert choice.text.startswith(PROMPT + written.text)
        assert told.token_logprobs[0] is told.top_logprobs[0] is None
        assert told.text_offset[-1] == len(choice.text) - len(told.tokens[-1])
        again = slice(-n - 6, len(prompt))
        assert told.token_logprobs[again] == pytest.approx(written.logprobs.token_logprobs, abs=0.3)
        assert all(len(top) == 2 for top in told.top_logprobs[1:])


def test_echo_with_logprobs_of_several(official: openai.OpenAI, client: Any) -> None:
    """Each completion has its prompt's, whole or streamed, and a long prompt is told to its end."""
    texts = ["word and other " * 40, "😀 and ☃!"]
    options = {"echo": True, "logprobs": 1, "max_tokens": 1, "n": 2}
    whole = ask(official, texts, **options).choices
    for i, choice in enumerate(whole):
        assert choice.text.startswith(texts[i // 2])
        assert choice.logprobs.token_logprobs[:-1] == whole[i // 2 * 2].logprobs.token_logprobs[:-1]
        assert len(choice.logprobs.tokens) == 1 + len(
            client.post("/tokenize", {"content": texts[i // 2]}).json["tokens"]
        )
        assert choice.logprobs.text_offset[-1] == len(texts[i // 2])
    streamed: dict[int, Any] = {i: {"text": "", "token_logprobs": [], "text_offset": []} for i in range(4)}
    for chunk in ask(official, texts, stream=True, **options):
        choice = chunk.choices[0]
        one = streamed[choice.index]
        one["text"] += choice.text
        if choice.logprobs is not None:
            one["token_logprobs"] += choice.logprobs.token_logprobs
            one["text_offset"] += choice.logprobs.text_offset
    for i, choice in enumerate(whole):
        assert streamed[i]["text"].startswith(texts[i // 2])
        assert streamed[i]["text_offset"] == choice.logprobs.text_offset
        prompt = choice.logprobs.token_logprobs[1:-1]
        assert streamed[i]["token_logprobs"][1:-1] == pytest.approx(prompt, abs=0.3)


def test_echo_with_logprobs_errors(client: Any) -> None:
    body = {"prompt": "a", "echo": True, "logprobs": 1, "post_sampling_probs": True}
    assert "cannot be combined" in client.post(PATH, body).error["message"]


def test_stream(official: openai.OpenAI, client: Any) -> None:
    whole = ask(official).choices[0].text
    chunks = list(ask(official, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == 6
    assert len({chunk.id for chunk in chunks}) == 1
    answer = client.post(PATH, {"prompt": PROMPT, "max_tokens": 2, "stream": True, "return_tokens": True})
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert b'"tokens":[' in answer.body


def test_logprobs(official: openai.OpenAI) -> None:
    choice = ask(official, logprobs=3).choices[0]
    told = choice.logprobs
    assert "".join(told.tokens) == choice.text
    assert (
        len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs) == len(told.text_offset) == 6
    )
    assert told.text_offset[:2] == [0, len(told.tokens[0])]
    assert all(len(one) == 3 for one in told.top_logprobs)
    assert all(
        max(one.values()) == own for one, own in zip(told.top_logprobs, told.token_logprobs, strict=True)
    )
    assert ask(official, logprobs=0).choices[0].logprobs.top_logprobs == [{}] * 6
    offsets = [
        offset
        for chunk in ask(official, logprobs=1, stream=True)
        if chunk.choices[0].logprobs
        for offset in chunk.choices[0].logprobs.text_offset
    ]
    assert offsets == told.text_offset
    sampled = ask(official, logprobs=1, extra_body={"post_sampling_probs": True}).choices[0].logprobs
    assert sampled.token_logprobs == [0.0] * 6


def test_best_of(official: openai.OpenAI, client: Any) -> None:
    options = {"temperature": 1.5, "seed": 11, "logprobs": 0}
    all_of = ask(official, n=3, **options).choices
    best = ask(official, best_of=3, **options)
    assert len(best.choices) == 1
    assert best.choices[0].index == 0
    assert best.usage.completion_tokens == 18

    def mean(choice: Any) -> float:
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    assert abs(mean(best.choices[0]) - max(map(mean, all_of))) < 0.5
    for body in ({"best_of": 2, "stream": True}, {"best_of": 1, "n": 2}, {"best_of": 10**6}):
        answer = client.post(PATH, {"prompt": "x", **body})
        assert answer.status == 400
        assert '"best_of"' in answer.error["message"]
    assert len(client.post(PATH, {"prompt": "x", "n_cmpl": 2, "max_tokens": 1}).json["choices"]) == 2


def test_errors(official: openai.OpenAI, client: Any) -> None:
    with pytest.raises(openai.APIStatusError, match="suffix") as caught:
        ask(official, suffix="the end")
    assert caught.value.status_code == 501
    for name, value in (("echo", 1), ("logprobs", True), ("logprobs", 21), ("max_tokens", -3), ("n", "2")):
        with pytest.raises(openai.BadRequestError, match=f'"{name}"'):
            ask(official, extra_body={name: value})
    with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
        ask(official, "word " * 9000)


def test_form_and_stop(official: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"enum": ["red", "blue"]}}
    assert ask(official, extra_body={"response_format": form}).choices[0].text in ('"red"', '"blue"')
    stopped = ask(official, stop=["b"], extra_body={"grammar": 'root ::= "aab"'}).choices[0]
    assert stopped.text == "aa"
    assert stopped.finish_reason == "stop"
