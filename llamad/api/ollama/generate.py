"""POST /api/chat and POST /api/generate.

Runs on the event loop. request.py reads the bodies, job.py runs the requests, lines.py writes the responses.
"""

from __future__ import annotations

from functools import partial

from llamad.api.generate.job import Job
from llamad.api.generate.prepare import prepare
from llamad.api.ollama import keep_alive
from llamad.api.ollama.lines import Lines, TextLines, no_text
from llamad.api.ollama.request import (
    ConvertedChat,
    OllamaChatRequest,
    OllamaGenerateRequest,
    of_chat,
    of_prompt,
)
from llamad.api.openai.chat_request import Chat, settle_chat, start, with_chat
from llamad.api.openai.request import settle
from llamad.api.request import fim_prompt
from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.ignored_fields import LeftOut
from llamad.api.request.media import sent_prompts
from llamad.api.request.prompt import Built, Prompt, Prompts
from llamad.api.service import waking
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange

_CHAT, _GENERATE = Body(OllamaChatRequest), Body(OllamaGenerateRequest)


def chat(served: ServedModel, exchange: Exchange) -> None:
    """POST /api/chat."""
    if keep_alive.asks_to_unload(exchange):
        body = _CHAT.decode(exchange.request.body)
        keep_alive.unload(served)
        lines = Lines(exchange, body.model or served.name, None)
        no_text(lines, "unload", exchange, LeftOut(), streams=body.stream)
        return
    waking.serve(served, exchange, _begin_chat)


def _begin_chat(served: ServedModel, exchange: Exchange) -> None:
    served.ready()
    n_bytes = len(exchange.request.body)
    with_body(
        served.service, exchange, partial(_read_chat, served), partial(_start_chat, served, exchange, n_bytes)
    )


def _read_chat(served: ServedModel, data: bytes | memoryview) -> tuple[OllamaChatRequest, ConvertedChat]:
    body = _CHAT.decode(data)
    request = of_chat(body, served.defaults)
    body.messages = body.messages[:1]  # freed, because the body lives longer
    body.tools = None
    return body, request


def _start_chat(
    served: ServedModel, exchange: Exchange, n_bytes: int, read: tuple[OllamaChatRequest, ConvertedChat]
) -> None:
    model, engine = served.ready()
    body, request = read
    keep_alive.keep(served, body.keep_alive, request.left_out)
    name = body.model or served.name
    if not body.messages:
        no_text(Lines(exchange, name, None), "load", exchange, request.left_out, streams=body.stream)
        return

    def submit(chat: Chat) -> None:
        _check_thinking(chat, body.think, name)
        constraint = settle_chat(chat, request, served)
        dialect = Lines(exchange, name, chat, request.top_logprobs if chat.logprobs else -1)
        job = Job(served, exchange, request, constraint, model, engine, dialect, markers=True)
        job.memory.keep_only(chat.kept_bytes(exchange.n_decoded))
        start(chat, job)

    with_chat(served, exchange, request, n_bytes, submit)


def _check_thinking(chat: Chat, think: bool | str | None, name: str) -> None:
    """Raise a 400 if the request asks for reasoning and the model has none."""
    if think and not chat.host.format.think and not chat.host.format.calls.thought_tags[1]:
        raise bad(f'"{name}" does not support thinking')


def generate(served: ServedModel, exchange: Exchange) -> None:
    """POST /api/generate."""
    if keep_alive.asks_to_unload(exchange):
        body = _GENERATE.decode(exchange.request.body)
        keep_alive.unload(served)
        lines = TextLines(exchange, body.model or served.name, None)
        no_text(lines, "unload", exchange, LeftOut(), streams=body.stream)
        return
    waking.serve(served, exchange, _begin_generate)


def _begin_generate(served: ServedModel, exchange: Exchange) -> None:
    served.ready()
    n_bytes = len(exchange.request.body)
    read = partial(_read_generate, served)
    with_body(served.service, exchange, read, partial(_start_generate, served, exchange, n_bytes))


def _read_generate(
    served: ServedModel, data: bytes | memoryview
) -> tuple[OllamaGenerateRequest, ConvertedChat]:
    body = _GENERATE.decode(data)
    return body, of_prompt(body, served.defaults)


def _start_generate(
    served: ServedModel, exchange: Exchange, n_bytes: int, read: tuple[OllamaGenerateRequest, ConvertedChat]
) -> None:
    model, engine = served.ready()
    body, request = read
    keep_alive.keep(served, body.keep_alive, request.left_out)
    name = body.model or served.name
    if not (body.prompt or body.images or body.suffix):
        no_text(TextLines(exchange, name, None), "load", exchange, request.left_out, streams=body.stream)
        return
    if body.raw or body.suffix:
        _complete(served, exchange, body, request)
        return

    def submit(chat: Chat) -> None:
        _check_thinking(chat, body.think, name)
        constraint = settle_chat(chat, request, served)
        n_top = request.top_logprobs if chat.logprobs else -1
        dialect = TextLines(exchange, name, chat, n_top, tells_context=True)
        job = Job(served, exchange, request, constraint, model, engine, dialect, markers=True)
        job.memory.keep_only(chat.kept_bytes(exchange.n_decoded))
        start(chat, job, _context(body))

    with_chat(served, exchange, request, n_bytes, submit)


def _context(body: OllamaGenerateRequest) -> list[int]:
    """Return the tokens of the conversation so far."""
    context = body.context or []
    if not all(type(one) is int for one in context):
        raise bad('"context" must be an array of token ids')
    return context


def _complete(
    served: ServedModel, exchange: Exchange, body: OllamaGenerateRequest, request: ConvertedChat
) -> None:
    """Complete a prompt without the chat template, or the gap between it and a suffix."""
    model, engine = served.ready()
    if body.think:
        raise bad('"think" cannot be combined with "raw" or "suffix": only chat templates know reasoning')
    refused = fim_prompt.refusal(model.info) if body.suffix else None
    if refused is not None:
        raise ApiError(refused.status, f'"suffix": {refused.message}')
    if body.suffix and (body.images or body.context or body.system):
        raise bad('"suffix" cannot be combined with "images", "context" or "system"')
    n_top = request.top_logprobs if request.logprobs else -1
    constraint = settle(request, served, max(1, n_top) if n_top >= 0 else 0)
    request.drop_documents()
    dialect = TextLines(exchange, body.model or served.name, None, n_top)
    job = Job(served, exchange, request, constraint, model, engine, dialect)
    job.memory.keep_only(0)
    if body.suffix:
        infill = fim_prompt.Infill(served.settings, body.prompt, body.suffix, [], "", request.n_predict)
        built: list[Prompt | Built] = [infill]
    else:
        images = [{"data": one, "id": i} for i, one in enumerate(body.images)]
        built = sent_prompts(Prompts((_tagged(body),)), images, reads_media=served.media is not None)
    prepare(served, exchange, request, constraint, model, built, job.submit)


def _tagged(body: OllamaGenerateRequest) -> str:
    """Return a raw prompt in which `[img-N]` stands for each image; those without a tag come first."""
    tags = [f"[img-{i}]" for i in range(len(body.images))]
    return "".join(tag for tag in tags if tag not in body.prompt) + body.prompt
