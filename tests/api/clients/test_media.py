"""Images from the official clients, streamed and not: every form of one picture gets the same answer. Sound is in
tests/api/openai/test_transcriptions.py."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from support.clients.official_clients import anthropic, openai
from support.http_client import Client
from support.live_daemon import Live
from support.media_files import image
from support.models.tiny_projectors import write_projector

FLAGS = ("-np", "2", "-c", "4096", "--no-warmup")
DRAWN: dict[str, Any] = {"temperature": 1.0, "seed": 3, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
MORE: dict[str, Any] = {"extra_body": DRAWN}
N_ROWS = 16
DATA = b64encode(image(1)).decode()
URI = f"data:image/png;base64,{DATA}"
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}


@pytest.fixture(scope="module")
def seeing(tiny: str, tmp_path_factory: Any) -> Iterator[Client]:
    projector = write_projector(tmp_path_factory.mktemp("projector") / "janus.gguf", "janus_pro", 64)
    with Live(*FLAGS, "--mmproj", projector, model=tiny) as server:
        yield server.client


@pytest.fixture(scope="module")
def gpt(seeing: Client) -> Any:
    return openai.OpenAI(base_url=f"http://{seeing.host}:{seeing.port}/v1", api_key="x", max_retries=0)


@pytest.fixture(scope="module")
def claude(seeing: Client) -> Any:
    return anthropic.Anthropic(base_url=f"http://{seeing.host}:{seeing.port}", api_key="x", max_retries=0)


@pytest.fixture(scope="module")
def expected(gpt: Any) -> str:
    """What is said about the picture."""
    parts = [{"type": "text", "text": "Look: "}, {"type": "image_url", "image_url": {"url": URI}}]
    asked = {"model": "x", "messages": [{"role": "user", "content": parts}], "max_tokens": 12, **MORE}
    done = gpt.chat.completions.create(**asked)
    assert done.usage.prompt_tokens > N_ROWS
    said: str = done.choices[0].message.content
    assert said
    chunks = gpt.chat.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == said
    blind = [{"role": "user", "content": "Look: "}]
    other = gpt.chat.completions.create(model="x", messages=blind, max_tokens=12, **MORE)
    assert other.choices[0].message.content != said
    return said


def test_responses(gpt: Any, expected: str) -> None:
    items = [
        {"type": "input_text", "text": "Look: "},
        {"type": "input_image", "image_url": URI, "detail": "auto"},
    ]
    asked = {
        "model": "x",
        "input": [{"role": "user", "content": items}],
        "max_output_tokens": 12,
        "store": False,
        **MORE,
    }
    done = gpt.responses.create(**asked)
    assert done.output_text == expected
    assert done.usage.input_tokens > N_ROWS
    with gpt.responses.stream(**asked) as stream:
        streamed = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    assert streamed == expected


def test_messages(claude: Any, expected: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Look: "}, BLOCK]}]
    asked = {"model": "x", "messages": messages, "max_tokens": 12, **MORE}
    done = claude.messages.create(**asked)
    assert done.content[0].text == expected
    assert done.usage.input_tokens + (done.usage.cache_read_input_tokens or 0) > N_ROWS
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == expected
    counted = claude.messages.count_tokens(model="x", messages=messages).input_tokens
    assert counted == done.usage.input_tokens + (done.usage.cache_read_input_tokens or 0)


def test_an_image_in_a_tool_result(claude: Any) -> None:
    """Its rows are a part of the prompt, and another picture gets another answer."""
    tools = [{"name": "look", "input_schema": {"type": "object"}}]

    def asked(content: list[Any]) -> dict[str, Any]:
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content}
        messages = [
            {"role": "user", "content": "Look"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}],
            },
            {"role": "user", "content": [result]},
        ]
        return {"model": "x", "messages": messages, "tools": tools, "max_tokens": 12, **MORE}

    def count(content: list[Any]) -> int:
        given = asked(content)
        n: int = claude.messages.count_tokens(model="x", messages=given["messages"], tools=tools).input_tokens
        return n

    text = {"type": "text", "text": "Seen:"}
    assert count([text, BLOCK]) == count([text]) + N_ROWS
    done = claude.messages.create(**asked([text, BLOCK])).content[0].text
    with claude.messages.stream(**asked([text, BLOCK])) as stream:
        assert "".join(stream.text_stream) == done
    source = {**BLOCK["source"], "data": b64encode(image(2)).decode()}
    assert claude.messages.create(**asked([text, {**BLOCK, "source": source}])).content[0].text != done


def test_errors(gpt: Any, claude: Any) -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
    with pytest.raises(openai.BadRequestError, match="none of PNG"):
        gpt.chat.completions.create(model="x", messages=[{"role": "user", "content": [part]}])
    source = {"type": "base64", "media_type": "image/png", "data": "aaaa"}
    content = [{"type": "image", "source": source}]
    with pytest.raises(anthropic.BadRequestError, match="none of PNG"):
        claude.messages.create(model="x", max_tokens=1, messages=[{"role": "user", "content": content}])


PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="
FORMS = ("![1x1.gif]({})", '<img src="{}">', "{}")


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_llamafiler_any_role_may_include_images(seeing: Client, role: str) -> None:
    def count(text: str) -> int:
        messages = [{"role": "user", "content": "Look"}, {"role": role, "content": text}]
        ordered = messages[::-1] if role == "system" else messages
        body = {"messages": [*ordered, {"role": "user", "content": "Tell"}]}
        n: int = seeing.post("/v1/chat/completions/input_tokens", body).json["input_tokens"]
        return n

    n_text = count("a b c")
    for form in FORMS:
        shown = form.format(PIXEL)
        assert count(f"a {shown} b {shown} c") >= n_text + 2 * N_ROWS
        assert count(f"a {shown} b {shown} c") <= n_text + 2 * N_ROWS + 4, "no URI is left in the text"


def test_llamafiler_images_stand_where_they_stood(seeing: Client, gpt: Any) -> None:
    uris = [
        f"data:image/{kind};base64,{b64encode(image(i)).decode()}" for i, kind in ((1, "png"), (2, "odd"))
    ]

    def said(content: Any) -> str:
        asked = {"model": "x", "messages": [{"role": "user", "content": content}], "max_tokens": 12, **MORE}
        text: str = gpt.chat.completions.create(**asked).choices[0].message.content
        return text

    parts: list[Any] = [{"type": "text", "text": "a "}, {"type": "image_url", "image_url": {"url": uris[0]}}]
    parts += [{"type": "text", "text": " b "}, {"type": "image_url", "image_url": {"url": uris[1]}}]
    expected = said(parts)
    for form in FORMS:
        assert said("a {} b {}".format(*(form.format(uri) for uri in uris))) == expected
        assert said("a {} b {}".format(*(form.format(uri) for uri in uris[::-1]))) != expected
    for kind in ("JPEG", "GIF"):  # whatever the type says
        shown = FORMS[0].format(f"data:image/png;base64,{b64encode(image(1, kind)).decode()}")
        assert said(f"a {shown} b") != said("a  b")
