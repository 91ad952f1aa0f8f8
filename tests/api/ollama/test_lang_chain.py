"""LangChain's classes for Ollama over a live server: a second client, with requests of its own making."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

CALL = b'<tool_call>\n{"name": "clock", "arguments": {"zone": "CET"}}\n</tool_call>'

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>{% endfor %}|{% endfor %}{{ tools or '' }}"
)


def chat_of(server: Faked, **options: Any) -> Any:
    from langchain_ollama import ChatOllama

    url = f"http://{server.client.host}:{server.client.port}"
    return ChatOllama(base_url=url, model="smol", validate_model_on_init=True, **options)


def clock(zone: str) -> str:
    """The time in a zone."""
    return zone


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


def test_chat_and_stream() -> None:
    with Faked(Fake(script=b"One two three.", n_ctx=4096), "-a", "smol", n_ctx=4096) as server:
        chat = chat_of(server, num_ctx=2048, num_gpu=1, seed=3, keep_alive="5m")
        whole = chat.invoke([("system", "Be brief."), ("user", "Count.")])
        assert whole.content == "One two three."
        assert whole.response_metadata["done_reason"] == "stop"
        assert whole.usage_metadata["output_tokens"] == len("One two three.") + 1
        chunks = list(chat.stream("Count."))
        assert "".join(one.content for one in chunks) == "One two three."


def test_tools() -> None:
    with Faked(
        Fake(script=CALL, n_ctx=8192), "-a", "smol", "--chat-template", TEMPLATE, n_ctx=8192
    ) as server:
        bound = chat_of(server).bind_tools([clock])
        reply = bound.invoke("What time is it?")
        (call,) = reply.tool_calls
        assert (call["name"], call["args"]) == ("clock", {"zone": "CET"})
        from langchain_core.messages import HumanMessage, ToolMessage

        messages = [HumanMessage("What time is it?"), reply, ToolMessage("noon", tool_call_id=call["id"])]
        assert bound.invoke(messages).tool_calls


def test_reasoning() -> None:
    template = "{% if enable_thinking %}<think></think>{% endif %}x"
    with Faked(Fake(script=b"<think>Hm.</think>Yes."), "-a", "smol", "--chat-template", template) as server:
        reply = chat_of(server, reasoning=True).invoke("x")
        assert (reply.additional_kwargs["reasoning_content"], reply.content) == ("Hm.", "Yes.")


def test_structured_output() -> None:
    with Faked(Fake(n_ctx=4096), "-a", "smol", n_ctx=4096) as server:
        structured = chat_of(server, num_predict=100).with_structured_output(City)
        assert structured.invoke("Which?").name in ("Paris", "Rome")


def test_embeddings(tiny_embedder: Faked) -> None:
    from langchain_ollama import OllamaEmbeddings

    url = f"http://{tiny_embedder.client.host}:{tiny_embedder.client.port}"
    embeddings = OllamaEmbeddings(base_url=url, model="smol")
    vectors = embeddings.embed_documents(["one", "other"])
    assert len(vectors) == 2
    assert embeddings.embed_query("one") == pytest.approx(vectors[0])


@pytest.fixture
def tiny_embedder() -> Any:
    from support.json_bodies import Vectors

    with Faked(Fake(), "--embedding", "-a", "smol", vectors=Vectors("mean")) as server:
        yield server
