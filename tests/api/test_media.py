"""Images and sound in requests, in every form that clients send, over tiny projectors; beside llama-server where it was
built."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_client import Client
from support.live_daemon import Live
from support.media_files import image, sound
from support.models.tiny_projectors import write_projector
from support.peer import llama_server

FLAGS = ("-np", "2", "-c", "4096", "--slots", "--no-warmup", "--cache-ram", "64")
N_EMBD = 64
# Random, so that every logit counts; the same for the same logits.
DRAWN = {"temperature": 1.5, "seed": 3, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
SHORT = {**DRAWN, "n_predict": 12, "max_tokens": 12}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def projectors(tmp_path_factory: Any) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("projectors")
    kinds = ("janus_pro", "gemma3", "gemma4ua")
    return {kind: write_projector(folder / f"{kind}.gguf", kind, N_EMBD) for kind in kinds}


@pytest.fixture(scope="module")
def seeing(tiny: str, projectors: dict[str, str], tmp_path_factory: Any) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("media")
    (folder / "one.png").write_bytes(image(1))
    with Live(*FLAGS, "--mmproj", projectors["janus_pro"], "--media-path", str(folder), model=tiny) as server:
        yield server.client


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{b64(data)}"


def object_of(*files: bytes, text: str = "Look: <__media__> and tell") -> dict[str, Any]:
    return {"prompt_string": text, "multimodal_data": [b64(one) for one in files]}


def said(client: Client, content: Any, path: str = CHAT, **more: Any) -> str:
    answer = client.post(path, {"messages": [{"role": "user", "content": content}], **SHORT, **more})
    assert answer.status == 200, answer.body
    text: str = answer.json["choices"][0]["message"]["content"]
    return text


def test_the_native_forms_are_one(seeing: Client) -> None:
    first = seeing.post("/completion", {"prompt": object_of(image(1)), **SHORT}).json
    assert first["tokens_evaluated"] > 16
    older = {"prompt": "Look: [img-12] and tell", "image_data": [{"id": 12, "data": b64(image(1))}], **SHORT}
    again = seeing.post("/completion", older).json
    assert again["content"] == first["content"]
    assert again["timings"]["cache_n"] >= 16, "the image is a part of the cached prefix"
    assert again["prompt"].endswith("Look:  and tell")
    other = seeing.post("/completion", {"prompt": object_of(image(2)), **SHORT}).json
    assert other["content"] != first["content"]
    assert other["timings"]["cache_n"] < 16
    two = {"prompt": [object_of(image(1)), "plain"], **SHORT}
    assert seeing.post("/completion", two).json[0]["content"] == first["content"]
    several = {"prompt": object_of(image(1), image(2), text="<__media__> or <__media__>?"), "n": 2, **SHORT}
    assert len(seeing.post("/completion", several).json) == 2
    text = seeing.post("/v1/completions", {"prompt": object_of(image(1)), **SHORT}).json["choices"][0]["text"]
    assert text == first["content"]


def test_the_forms_of_chats_are_one(seeing: Client) -> None:
    png = image(1)
    parts = [{"type": "text", "text": "Look: "}, {"type": "image_url", "image_url": {"url": uri(png)}}]
    expected = said(seeing, parts)
    assert said(seeing, [parts[0], {"type": "image_url", "image_url": uri(png)}]) == expected
    assert said(seeing, [parts[0], {"type": "image_url", "image_url": {"url": "file://one.png"}}]) == expected
    assert said(seeing, f"Look: ![x]({uri(png)})") == expected
    assert said(seeing, f'Look: <img src="{uri(png)}">') == expected
    assert said(seeing, [{"type": "text", "text": "Look: "}]) != expected
    body = {"messages": [{"role": "user", "content": parts}]}
    usage = seeing.post(CHAT, {**body, "max_tokens": 1}).json["usage"]
    counted = seeing.post("/v1/chat/completions/input_tokens", body).json["input_tokens"]
    assert counted == usage["prompt_tokens"] > 16
    assert "Look: <__media__>" in seeing.post("/apply-template", body).json["prompt"]
    source = {"type": "base64", "media_type": "image/png", "data": b64(png)}
    blocks = [{"type": "text", "text": "Look: "}, {"type": "image", "source": source}]
    asked = {"messages": [{"role": "user", "content": blocks}], "max_tokens": 12, **DRAWN}
    answer = seeing.post("/v1/messages", asked).json
    assert answer["content"][0]["text"] == expected
    items = [{"type": "input_text", "text": "Look: "}, {"type": "input_image", "image_url": uri(png)}]
    asked = {"input": [{"role": "user", "content": items}], "max_output_tokens": 12, **DRAWN}
    answer = seeing.post("/v1/responses", asked).json
    assert answer["output"][0]["content"][0]["text"] == expected


def test_an_image_in_a_tool_result(seeing: Client) -> None:
    use = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
    source = {"type": "base64", "media_type": "image/png", "data": b64(image(1))}
    result = {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": [{"type": "image", "source": source}],
    }
    messages = [
        {"role": "user", "content": "Look"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    answer = seeing.post("/v1/messages", {"messages": messages, "tools": tools, "max_tokens": 4})
    assert answer.status == 200, answer.body
    assert answer.json["usage"]["input_tokens"] > 16


def test_streamed(seeing: Client) -> None:
    body = {
        "messages": [{"role": "user", "content": f"Look: ![x]({uri(image(1))})"}],
        "stream": True,
        **SHORT,
    }
    lines = seeing.post(CHAT, body).body.decode().split("\n\n")
    events = [json.loads(one[6:]) for one in lines if one.startswith("data: {")]
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
    assert text == said(seeing, f"Look: ![x]({uri(image(1))})")


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("data:image/png;base64,aaaa", 400, "is none of PNG"),
        (uri(image(1)[:3000]), 400, "is broken"),
        ("data:text/plain;base64,aaaa", 400, "must begin with image/"),
        ("***", 400, "not base64"),
        ("http://127.0.0.1/x.png", 400, "--media-urls"),
        ("file://../secret", 400, "below --media-path"),
        ("file://none.png", 400, "cannot be opened"),
        (uri(sound(1), "audio/wav"), 501, "reads no sound"),
        ("", 400, "names no file"),
    ],
)
def test_what_is_wrong_is_said(seeing: Client, source: str, status: int, says: str) -> None:
    content = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": source}}]
    answer = seeing.post(CHAT, {"messages": [{"role": "user", "content": content}], "max_tokens": 1})
    assert (answer.status, says in answer.json["error"]["message"]) == (status, True), answer.body
    assert "messages[0].content.image_url" in answer.json["error"]["message"]


def test_wrong_prompts(seeing: Client) -> None:
    for body, says in (
        ({"prompt": object_of(image(1), text="no marker")}, "0 markers"),
        ({"prompt": object_of(image(1), text="ends with <__media__>")}, "ends with an image"),
        ({"prompt": "x", "image_data": ["y"]}, "image_data[0]"),
        ({"prompt": object_of(*[image(1)] * 65, text="<__media__>" * 65 + "x")}, "at most 64"),
    ):
        answer = seeing.post("/completion", {**body, "n_predict": 1})
        assert (answer.status, says in answer.json["error"]["message"]) == (400, True), answer.body


def test_a_slot_with_an_image_is_not_saved(seeing: Client) -> None:
    seeing.post("/completion", {"prompt": object_of(image(1)), "id_slot": 1, **SHORT})
    answer = seeing.post("/slots/1?action=save-state", {})
    assert (answer.status, "images or sound" in answer.json["error"]["message"]) == (501, True), answer.body
    tokens = seeing.post("/slots/1?action=tokens", {}).json["tokens"]
    assert tokens.count(-1) == 16
    assert min(tokens) == -1


def test_what_the_model_can_do_is_told(seeing: Client, client: Client) -> None:
    props = seeing.get("/props").json
    assert props["modalities"] == {"vision": True, "video": False, "audio": False}
    assert props["media_marker"] == "<__media__>"
    assert "multimodal" in seeing.get("/v1/models").json["models"][0]["capabilities"]
    # A server without a projector.
    part = {"type": "image_url", "image_url": {"url": uri(image(1))}}
    answer = client.post(CHAT, {"messages": [{"role": "user", "content": [part]}], "max_tokens": 1})
    assert answer.status == 501
    answer = client.post("/completion", {"prompt": object_of(image(1)), "n_predict": 1})
    assert (answer.status, "--mmproj" in answer.json["error"]["message"]) == (501, True)


@pytest.mark.parametrize(
    ("kind", "data"), [("janus_pro", image(1)), ("gemma3", image(1)), ("gemma4ua", sound(1))]
)
def test_llama_server_writes_the_same(tiny: str, projectors: dict[str, str], kind: str, data: bytes) -> None:
    flags = ("--mmproj", projectors[kind], "-c", "4096", "-np", "2", "--no-warmup")
    with llama_server(tiny, *flags) as peer, Live(*flags, model=tiny) as server:
        answers = []
        for one in (peer, server.client):
            marker = one.get("/props").json.get("media_marker") or "<__media__>"
            prompt = object_of(data, text=f"Look: {marker} and tell")
            done = one.post("/completion", {"prompt": prompt, **SHORT, "n_predict": 24}).json
            part: dict[str, Any] = {"type": "image_url", "image_url": {"url": uri(data)}}
            if kind == "gemma4ua":
                part = {"type": "input_audio", "input_audio": {"data": b64(data), "format": "wav"}}
            chat = said(one, [{"type": "text", "text": "Look: "}, part])
            answers.append((done["content"], done["tokens_evaluated"], chat))
        assert answers[0] == answers[1]
