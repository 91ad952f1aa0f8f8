"""LangChain's and LlamaIndex's OpenAI classes over a live server: chats, streams, calls, structured answers.

They take seconds to import: only tests that run do it, not each worker that collects them."""

from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI
    from llama_index.llms.openai_like import OpenAILike

SAY = "Say hello to my cat."
FRESH = {"cache_prompt": False}  # texts that are compared must not hang on what the cache has


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]
    districts: int = Field(ge=0, le=9)


def city(name: Literal["Paris", "Rome"]) -> str:
    """Tells of a city."""
    return f"{name} is old."


@pytest.fixture
def url(client: Any) -> str:
    return f"http://{client.host}:{client.port}/v1"


def lang_chain(url: str, **options: Any) -> "ChatOpenAI":
    from langchain_openai import ChatOpenAI

    options = {"max_tokens": 8, "extra_body": FRESH, **options}
    return ChatOpenAI(base_url=url, api_key="none", model="smol", temperature=0, max_retries=0, **options)


def llama_index(url: str, **options: Any) -> "OpenAILike":
    from llama_index.llms.openai_like import OpenAILike

    chat = {"is_chat_model": True, "is_function_calling_model": True, "max_tokens": 8}
    options = {**chat, "additional_kwargs": {"extra_body": FRESH}, **options}
    return OpenAILike(api_base=url, api_key="none", model="smol", temperature=0, max_retries=0, **options)


def joined(chunks: Any) -> Any:
    first, *rest = list(chunks)
    for chunk in rest:
        first += chunk
    return first


@pytest.mark.real_model
def test_lang_chain(url: str) -> None:
    chat = lang_chain(url)
    whole = chat.invoke([("system", "Be brief."), ("user", SAY)])
    assert whole.content
    assert whole.response_metadata["finish_reason"] == "length"
    assert whole.usage_metadata["output_tokens"] == 8
    streamed = joined(chat.stream([("system", "Be brief."), ("user", SAY)], stream_usage=True))
    assert streamed.content == whole.content
    assert streamed.usage_metadata["output_tokens"] == 8
    answers = joined(lang_chain(url, use_responses_api=True).stream(SAY))
    assert answers.text
    assert answers.usage_metadata["output_tokens"] == 8


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_lang_chain_structured(url: str, method: Any) -> None:
    chat = lang_chain(url, max_tokens=64).with_structured_output(City, method=method)
    assert isinstance(chat.invoke("Name a city."), City)


def test_lang_chain_tools(url: str) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage

    chat = lang_chain(url, max_tokens=64)
    asked = HumanMessage("Tell me of a city.")
    called = chat.bind_tools([city], tool_choice="city").invoke([asked])
    call = called.tool_calls[0]
    assert call["name"] == "city"
    assert call["args"]["name"] in ("Paris", "Rome")
    streamed = joined(chat.bind_tools([city], tool_choice="city").stream([asked]))
    assert streamed.tool_calls[0]["args"] == call["args"]
    result = ToolMessage(city(**call["args"]), tool_call_id=call["id"])
    answer = lang_chain(url).bind_tools([city], tool_choice="none").invoke([asked, called, result])
    assert answer.content
    assert not answer.tool_calls


def test_llama_index(url: str) -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai import OpenAI as LlamaIndexOpenAI

    asked = [ChatMessage(role="user", content=SAY)]
    whole = llama_index(url).chat(asked)
    assert whole.message.content
    deltas = [chunk.delta for chunk in llama_index(url).stream_chat(asked)]
    assert "".join(deltas) == whole.message.content
    text = llama_index(url, is_chat_model=False)
    assert (
        "".join(chunk.delta for chunk in text.stream_complete("Once upon")) == text.complete("Once upon").text
    )
    own = LlamaIndexOpenAI(api_base=url, api_key="none", model="gpt-4o-mini", temperature=0, max_tokens=8)
    assert own.chat(asked).message.content


def test_llama_index_structured(url: str) -> None:
    from llama_index.core.tools import FunctionTool

    chat = llama_index(url, max_tokens=64)
    assert isinstance(chat.as_structured_llm(City).complete("Name a city.").raw, City)
    tool = FunctionTool.from_defaults(fn=city)
    called = chat.chat_with_tools([tool], user_msg="Tell me of a city.", tool_required=True)
    call = chat.get_tool_calls_from_response(called)[0]
    assert call.tool_name == "city"
    assert tool(**call.tool_kwargs).content.endswith("is old.")
