"""The bodies of Ollama's endpoints that generate, and their messages in OpenAI's form.

Pure functions, on the event loop or in a worker. Raises every 400 about Ollama's own fields.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct

from llamad.api.ollama import options
from llamad.api.ollama.keep_alive import KeepAlive
from llamad.api.openai.request import TOP_LOGPROBS_MAX, ChatRequest
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.ignored_fields import Hosted, LeftOut
from llamad.api.request.parse import Defaults
from llamad.models.catalogue.catalogue import HUBS

LATEST = ":latest"
_LEVELS = ("low", "medium", "high", "max")


class ConvertedChat(ChatRequest, kw_only=True):
    """A chat in OpenAI's form that was made of a body below."""

    HOSTED: ClassVar[Hosted] = Hosted()
    FORMAT: ClassVar[str] = "format"


class GeneratingRequest(Struct, kw_only=True):
    """The fields of /api/chat and /api/generate. Streams are the default here."""

    model: str = ""
    stream: bool = True
    format: Annotated[str | dict[str, Any] | None, Meta(description='"json" or a JSON schema')] = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    keep_alive: KeepAlive = None
    think: Annotated[bool | str | None, Meta(description='a boolean, "low", "medium", "high" or "max"')] = (
        None
    )
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=TOP_LOGPROBS_MAX)] = 0
    truncate: bool | None = None
    shift: bool | None = None


class OllamaChatRequest(GeneratingRequest, kw_only=True):
    messages: list[Any] = msgspec.field(default_factory=list)
    tools: list[Any] | None = None


class OllamaGenerateRequest(GeneratingRequest, kw_only=True):
    prompt: str = ""
    suffix: str = ""
    system: str = ""
    template: str = ""
    context: Annotated[list[Any] | None, Meta(description="an array of token ids")] = None
    raw: bool = False
    images: Annotated[list[Any], Meta(description="an array of images in base64")] = msgspec.field(
        default_factory=list
    )
    width: int | None = None
    height: int | None = None
    steps: int | None = None


def bare_name(name: str) -> str:
    """Return the name of a model without the tag that Ollama adds to a name without one, and without the host that its
    clients write before the name of a repository."""
    for host in HUBS:
        name = name.removeprefix(host)
    return name.removesuffix(LATEST)


def common(body: GeneratingRequest, defaults: Defaults) -> ConvertedChat:
    """Return a request with the fields that both endpoints share; it has no messages yet. Raises ApiError."""
    request = options.read(ConvertedChat, body.options, defaults)
    request.model = bare_name(body.model) or None
    request.stream = body.stream
    request.response_format = _format(body.format)
    request.reasoning_format = "auto"
    _think(request, body.think)
    request.logprobs, request.top_logprobs = body.logprobs, body.top_logprobs
    # A prompt that is too long is refused, and a text ends with its context: nothing is cut.
    for name in ("truncate", "shift"):
        if getattr(body, name):
            request.left_out.add(name)
    return request


def _format(value: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None or value == "":
        return None
    if value == "json":
        return {"type": "json_object"}
    if isinstance(value, dict):
        return {"type": "json_schema", "schema": value}
    raise bad('"format" must be "json" or a JSON schema')


def _think(request: ConvertedChat, value: bool | str | None) -> None:
    if isinstance(value, bool):
        request.chat_template_kwargs = {"enable_thinking": value}
    elif value in _LEVELS:
        request.reasoning_effort = value  # type: ignore[assignment]
    elif value is not None:
        raise bad('"think" must be a boolean, "low", "medium", "high" or "max"')


def of_chat(body: OllamaChatRequest, defaults: Defaults) -> ConvertedChat:
    """Return the chat of /api/chat in OpenAI's form. Raises ApiError."""
    request = common(body, defaults)
    request.messages = _messages(body.messages, request.left_out)
    request.tools = body.tools
    return request


def of_prompt(body: OllamaGenerateRequest, defaults: Defaults) -> ConvertedChat:
    """Return the prompt of /api/generate as a chat in OpenAI's form. Raises ApiError."""
    request = common(body, defaults)
    if body.width is not None or body.height is not None or body.steps is not None:
        raise ApiError(501, '"width", "height" and "steps" are for images; this model generates text')
    if body.template:
        raise bad(
            '"template" is not supported: templates of Ollama are another language; start llamad with --chat-template,'
            ' or send a finished prompt with "raw": true'
        )
    if body.raw and (body.system or body.context or body.suffix):
        raise bad(
            '"raw" cannot be combined with "system", "context" or "suffix": the prompt is used as it is'
        )
    if body.context and body.images:
        raise bad('"context" cannot be combined with "images"; use /api/chat')
    system = [{"role": "system", "content": body.system}] if body.system else []
    content = _with_images(body.prompt, body.images, "images")
    request.messages = [*system, {"role": "user", "content": content}]
    return request


def _with_images(text: str, images: list[Any], where: str) -> str | list[dict[str, Any]]:
    """Return the content of a message; images come first, as in Ollama."""
    if not images:
        return text
    if not all(isinstance(one, str) and one for one in images):
        raise bad(f'"{where}" must be an array of images in base64')
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": one}} for one in images]
    return [*parts, {"type": "text", "text": text}]


def _messages(messages: list[Any], left_out: LeftOut) -> list[dict[str, Any]]:
    """Return the messages. Results of tools have the ids of the calls before them."""
    out: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []  # calls without a result
    for i, message in enumerate(messages):
        where = f"messages[{i}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "user", "assistant", "tool"):
            raise bad(f'"{where}" must be an object with the "role" "system", "user", "assistant" or "tool"')
        content, images = message.get("content"), message.get("images")
        content, images = "" if content is None else content, [] if images is None else images
        if not isinstance(content, str) or not isinstance(images, list):
            raise bad(f'"{where}": "content" must be a string and "images" an array')
        made: dict[str, Any] = {"role": role, "content": _with_images(content, images, f"{where}.images")}
        if role == "assistant":
            if message.get("thinking"):
                made["reasoning_content"] = message["thinking"]
            waiting = _calls(message.get("tool_calls"), i)
            if waiting:
                made["tool_calls"] = list(waiting)
        elif role == "tool":
            made |= _result(message, waiting)
        out.append(made)
    return out


def _calls(calls: Any, i: int) -> list[dict[str, Any]]:
    if calls is None:
        return []
    if not isinstance(calls, list) or not all(
        isinstance(one, dict) and isinstance(one.get("function"), dict) for one in calls
    ):
        raise bad(f'"messages[{i}].tool_calls" must be an array of objects with a "function"')
    return [
        {"id": one.get("id") or f"call_{i}_{k}", "type": "function", "function": one["function"]}
        for k, one in enumerate(calls)
    ]


def _result(message: dict[str, Any], waiting: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a tool's result says of its call: the one that it names by id or by the name of the tool, or else the
    first that has no result yet."""
    id, name = message.get("tool_call_id"), message.get("tool_name") or message.get("name")
    named = [one for one in waiting if one["id"] == id or (not id and one["function"].get("name") == name)]
    call = next(iter(named or waiting), None)
    if call is not None:
        waiting.remove(call)
    known = id or (call["id"] if call is not None else None)
    return {**({"tool_call_id": known} if known else {}), **({"name": name} if name else {})}
