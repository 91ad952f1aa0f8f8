"""Reads a chat request (tools and their choice, reasoning, messages by chat_messages.py) and renders its prompt.

Runs on the event loop if the request is small and its template fast, else in a worker, with the template's own limits.
Raises every 400 about these fields. Grammars of forced calls are compiled in api/request/constraints.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from llamad.api.generate.cache_miss import Outline, outline
from llamad.api.generate.job import Job
from llamad.api.generate.prepare import PreparedPrompts, prepare
from llamad.api.generate.thinking_budget import Budget, Watched, with_budget
from llamad.api.openai.chat_messages import current_messages
from llamad.api.openai.chat_replay import ChatReplay, placed
from llamad.api.openai.reasoning import Thinking, has_budget, thinking
from llamad.api.openai.request import ChatRequest, settle
from llamad.api.openai.tool_choice import ToolChoice, read_tools
from llamad.api.request import constraints as grammars
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.generation import PLAIN, Parsing
from llamad.api.request.media import Markers, MediaPrompt, TokenPart
from llamad.api.request.prompt import Built, Prompt
from llamad.api.service.admission import Place
from llamad.api.service.served_model import CHAT_INLINE_MAX, ServedModel
from llamad.api.service.text_workers import LONG_CHARS
from llamad.chat.host import ChatHost
from llamad.chat.parsing import (
    Delta,
    OutputParser,
    PlainParser,
    Reasoning,
    before_answer,
    ends_in_reasoning,
    make_parser,
    new_call_id,
)
from llamad.chat.parsing.lazy_grammar import Lazy
from llamad.chat.replay.memory import Reading, Recalled
from llamad.chat.replay.recorder import Recorder
from llamad.chat.template import QUICK_SECONDS, NotQuick, TemplateError
from llamad.http.exchange import Exchange

# If a worker renders a chat in less than this time, in seconds, it would have been fast enough for the event loop.
QUICK_ENOUGH = QUICK_SECONDS / 4


class Chat(msgspec.Struct):
    """A parsed chat request: its prompt, and how to parse the output and format the response."""

    model: str
    prompt: str
    media: Markers | None  # the files for which the prompt has markers
    host: ChatHost
    tools: list[dict[str, Any]]  # the tools that may be called
    parses_calls: bool
    parses: bool  # if false, all output is content
    parallel: bool
    reasoning: Reasoning
    include_usage: bool
    logprobs: bool
    n_top: int
    calls: grammars.ConstraintSource | None  # the constraint of calls, forced or not
    calls_later: grammars.ConstraintSource | None  # the same constraint after reasoning that was cut
    budget: Budget | None
    is_controlled: bool  # its reasoning may be ended by another request
    starts_in_reasoning: bool  # whether the prompt opens the reasoning
    is_begun: bool  # whether the prompt ends with the beginning of the answer's content
    echo: tuple[Delta, ...]  # the message that the answer continues, if the request asks for it
    replay: ChatReplay | None  # None: its turns are not remembered
    outline: Outline

    @property
    def sent(self) -> Prompt | Built:
        """Return the prompt with its files."""
        if self.media is not None:
            return self.media_prompt(self.media)
        return (self.replay.sent if self.replay is not None else None) or self.prompt

    def media_prompt(self, media: Markers) -> MediaPrompt:
        """Return the prompt of a chat that has files."""
        if self.replay is None:
            return media.prompt(self.prompt)
        pieces = self.replay.pieces
        return media.prompt(*(one if isinstance(one, bytes) else TokenPart(one.tokens) for one in pieces))

    @property
    def n_probs(self) -> int:
        return max(1, self.n_top) if self.logprobs else 0

    def parser(self) -> OutputParser:
        """Return a parser for one completion."""
        parser = _parser(self.host, self.tools, self.reading, self.parses)
        return parser if self.replay is None else Recorder(parser)

    @property
    def reading(self) -> Reading:
        return Reading(
            self.reasoning, self.parses_calls and bool(self.tools), self.parallel, self.starts_in_reasoning
        )

    def parsing(self) -> Parsing:
        """Return how the output is parsed, as results show it."""
        opening = self.host.generation_prompt(self.prompt)
        if not self.parses:
            return msgspec.structs.replace(PLAIN, generation_prompt=opening)
        return Parsing(
            chat_format=self.host.format.name,
            reasoning_format=self.reasoning,
            reasoning_in_content=self.reasoning == "deepseek-legacy",
            generation_prompt=opening,
        )

    @property
    def before(self) -> str:
        """Return the GBNF of what comes before an answer that a schema constrains."""
        return "" if self.is_begun else before_answer(self.host.format, self.starts_in_reasoning)

    def kept_bytes(self, n_decoded: int) -> int:
        """Return the memory that the chat takes; its body took `n_decoded` bytes."""
        return sys.getsizeof(self.prompt) + (n_decoded if self.tools or self.echo else 0)

    def call_id(self, delta: Delta, prefix: str = "call_") -> str:
        """Return the model's own id of a call, or a new one that its template accepts."""
        delta.id = delta.id or new_call_id(self.host.format, delta.name, delta.index, prefix)
        return delta.id


def _parser(host: ChatHost, tools: list[dict[str, Any]], reading: Reading, parses: bool) -> OutputParser:
    if not parses:
        return PlainParser()
    return make_parser(
        host.format,
        reasoning=reading.reasoning,
        tools_on=reading.tools_on,
        parallel=reading.parallel,
        starts_in_reasoning=reading.starts_in_reasoning,
        tools=tools or None,
    )


def settle_chat(chat: Chat, request: ChatRequest, served: ServedModel) -> grammars.ConstraintSource:
    """Call settle() for a chat whose messages are rendered, and return the constraint."""
    constraint = settle(request, served, chat.n_probs, chat.calls)
    request.drop_documents()
    if constraint.lazy is not None:
        constraint = msgspec.structs.replace(constraint, lazy=_beside_thought(constraint.lazy, chat))
    elif constraint.schema is not None and constraint.tools is None:
        constraint = msgspec.structs.replace(constraint, before=chat.before)
    return constraint


def _beside_thought(lazy: Lazy, chat: Chat) -> Lazy:
    """Return the triggers, which do not count within reasoning."""
    opens, ends, _ = chat.host.format.calls.thought_tags
    if not ends:
        return lazy
    return msgspec.structs.replace(lazy, thought=(opens, ends), is_open=chat.starts_in_reasoning)


def _rest(chat: Chat, constraint: grammars.ConstraintSource) -> grammars.ConstraintSource | None:
    """Return the constraint after reasoning that was cut; None means that it stays the same."""
    lazy, later = constraint.lazy, chat.calls_later
    if lazy is not None:
        return msgspec.structs.replace(constraint, lazy=msgspec.structs.replace(lazy, is_open=False))
    if constraint.tools is not None and later is not None:
        return msgspec.structs.replace(constraint, tools=later.tools)
    if constraint.schema is not None:
        return msgspec.structs.replace(constraint, before=before_answer(chat.host.format, False))
    return None


def start(chat: Chat, job: Job, before: Sequence[int] = ()) -> None:
    """Prepare a chat's job and submit it to the engine. Its prompt follows the tokens of `before`."""
    served, exchange, generation, model = job.served, job.exchange, job.generation, job.model
    job.parsing = chat.parsing
    budget = chat.budget
    job.is_controlled = chat.is_controlled
    job.outline = chat.outline
    if chat.replay is not None:
        job.remember = chat.replay.remember
    if budget is not None:
        job.watch = partial(Watched, budget)
        budget.rest = _rest(chat, job.constraint)

    def submit(ready: PreparedPrompts) -> None:
        with_budget(served, exchange, budget, lambda: job.submit(ready))

    sent, chat.media = chat.sent, None  # its files may be large, and the chat lives as long as its job
    if isinstance(sent, MediaPrompt):
        job.outline = msgspec.structs.replace(chat.outline, spans=sent.spans)
    if before:
        sent = [*before, chat.prompt]
    if chat.replay is not None:
        chat.replay = msgspec.structs.replace(chat.replay, pieces=[])
    prepare(served, exchange, generation, job.constraint, model, [sent], submit)


def with_chat(
    served: ServedModel,
    exchange: Exchange,
    request: ChatRequest,
    n_bytes: int,
    then: Callable[[Chat], None],
    media: Markers | None = None,
) -> None:
    """Call `then` with the parsed chat: now, or, if that takes long, later unless the client has disconnected by then.
    `media` holds files for which the messages have markers already.

    How long rendering takes depends on the template, so each rendering on the event loop may take a few milliseconds.
    One that takes longer is started again in a worker, and from then on only smaller chats are tried on the event loop.
    """
    key = exchange.request.key_name
    if n_bytes <= served.chat_inline_max:
        try:
            chat = parse_chat(request, served, key, quick=True, media=media)
        except NotQuick:
            served.chat_inline_max = n_bytes // 2
        else:
            then(chat)
            return
    counted = served.enter_preparing(exchange)
    work = partial(parse_chat, request, served, key, media=media)
    served.service.spawn(exchange, _parse_later(served, counted, exchange, work, n_bytes, then), counted)


async def _parse_later(
    served: ServedModel,
    counted: Place,
    exchange: Exchange,
    work: Callable[[], Chat],
    n_bytes: int,
    then: Callable[[Chat], None],
) -> None:
    # A small chat is here because its template may be slow, so it waits with the long texts.
    n_chars = n_bytes if n_bytes > CHAT_INLINE_MAX else LONG_CHARS + 1
    with counted as client:
        chat, seconds = await served.service.texts.run(client, n_chars, partial(_timed, work))
    if seconds < QUICK_ENOUGH and n_bytes <= CHAT_INLINE_MAX:
        served.chat_inline_max = max(served.chat_inline_max, n_bytes)
    served.described_text()
    if not exchange.closed:
        then(chat)


def _timed(work: Callable[[], Chat]) -> tuple[Chat, float]:
    t_start = time.thread_time()
    chat = work()
    return chat, time.thread_time() - t_start


def parse_chat(
    request: ChatRequest, served: ServedModel, key: str, quick: bool = False, media: Markers | None = None
) -> Chat:
    """Return the parsed chat, and leave the request unchanged. Raises ApiError for what is not supported, and
    NotQuick."""
    _check_supported(request)
    media = media or Markers()
    messages = current_messages(request.messages, media if served.media is not None else None)
    tools = read_tools(request)
    host = _host(served, tools)
    parallel = tools.is_parallel(request.parallel_tool_calls, host)
    wish = thinking(request, served.settings, host)
    begins, prefill = _ending(request, messages)
    goes_on = host.continued(messages, prefill, begins)
    recalled, messages = _recalled(served, key, messages, media, bool(goes_on))
    render = partial(
        host.prompt,
        messages,
        tools=tools.shown or None,
        kwargs=wish.kwargs,
        last_thought=wish.last if wish.n_tokens == 0 else "",
        prefill=prefill,
        add_generation_prompt=begins,
        quick=quick,
    )
    prompt = _rendered(render, wish.on, request, served, host)
    starts_in_reasoning = ends_in_reasoning(host.format, prompt) or goes_on == "reasoning_content"
    parses = not served.settings.skip_chat_parsing
    calls, calls_later = None, None
    if tools.shown and (tools.is_forced or (parses and request.parse_tool_calls)):
        may_be_cut = wish.n_tokens > 0 or request.reasoning_control
        calls, calls_later = _calls(tools, host, parallel, starts_in_reasoning, may_be_cut)
    chat = Chat(
        model=served.name if request.model is None else request.model,
        prompt=prompt,
        media=media if media.files else None,
        host=host,
        tools=tools.shown,
        parses_calls=request.parse_tool_calls,
        parses=parses,
        parallel=parallel,
        reasoning=request.reasoning_format or served.settings.reasoning_format,
        include_usage=request.include_usage,
        logprobs=_has_logprobs(request),
        n_top=request.top_logprobs or request.n_probs,
        calls=calls,
        calls_later=calls_later,
        budget=_budget(request, served, host, wish, starts_in_reasoning),
        is_controlled=request.reasoning_control,
        starts_in_reasoning=starts_in_reasoning,
        is_begun=goes_on == "content",
        echo=host.echo(messages[-1], goes_on) if request.echo else (),
        replay=None,
        outline=outline(prompt, messages, tools.shown, media.ends(prompt)),
    )
    if recalled is not None:
        chat.replay = _placed(served, key, chat, recalled, host.echo(messages[-1], goes_on), media)
    return chat


def _host(served: ServedModel, tools: ToolChoice) -> ChatHost:
    host = served.chat.serving(bool(tools.shown))
    if tools.offered and not host.has_tools:
        raise ApiError(501, '"tools" needs a Jinja template: start the server without --no-jinja')
    return host


def _has_logprobs(request: ChatRequest) -> bool:
    logprobs = request.logprobs or request.n_probs > 0  # n_probs is the name of this option in /completion
    if request.top_logprobs and not logprobs:
        raise bad('"top_logprobs" needs "logprobs": true')
    return logprobs


def _recalled(
    served: ServedModel, key: str, messages: list[dict[str, Any]], media: Markers, goes_on: bool
) -> tuple[Recalled | None, list[dict[str, Any]]]:
    """Return the turns that the server has generated, and the messages with these turns. A message that the answer
    continues is none of them."""
    if not served.settings.replay:
        return None, messages
    own = messages[:-1] if goes_on else messages
    recalled = served.turns.memory.recall(key, own, media.stable)
    return recalled, [*recalled.messages, *messages[len(own) :]]


def _placed(
    served: ServedModel, key: str, chat: Chat, recalled: Recalled, begun: tuple[Delta, ...], media: Markers
) -> ChatReplay:
    parser_of = partial(_parser, chat.host, chat.tools, parses=chat.parses)
    args = served.turns, key, chat.host, recalled, chat.prompt, begun, chat.reading, parser_of
    return placed(*args, media.stable)


def _calls(
    tools: ToolChoice, host: ChatHost, parallel: bool, starts_in_reasoning: bool, may_be_cut: bool
) -> tuple[grammars.ConstraintSource, grammars.ConstraintSource | None]:
    """Return the constraint of calls, and the one after reasoning that was cut, if it may be."""
    calls = tools.constraint(host.format, parallel, starts_in_reasoning)
    if not may_be_cut:
        return calls, None
    thoughtless = msgspec.structs.replace(host.format, think=None)
    return calls, tools.constraint(thoughtless, parallel, False)


def _rendered(
    render: Callable[..., str],
    thinking: bool | None,
    request: ChatRequest,
    served: ServedModel,
    host: ChatHost,
) -> str:
    """Return the prompt. If it opens reasoning but a grammar forbids reasoning, it is rendered without."""
    try:
        prompt = render(thinking=thinking)
        if ends_in_reasoning(host.format, prompt) and _leaves_no_thought(request, served, host):
            prompt = render(thinking=False)
        return prompt
    except TemplateError as error:
        # The text of the error may quote the messages.
        said = "The chat template rejected the messages"
        raise ApiError(400, f"{said}: {error}", reason=said) from None


def _check_supported(request: ChatRequest) -> None:
    """Raise a 400 for what this server cannot do."""
    if request.audio is not None:
        raise bad('"audio" is not supported: this server generates text only')
    if request.modalities not in (None, ["text"]):
        raise bad('"modalities" must be ["text"]: this server generates text only')


def _budget(
    request: ChatRequest, served: ServedModel, host: ChatHost, wish: Thinking, is_open: bool
) -> Budget | None:
    """Return the reasoning budget, or None if no reasoning has to be limited or can be ended."""
    opens, ends, after = host.format.calls.thought_tags
    if wish.n_tokens == 0 or (wish.n_tokens < 0 and not request.reasoning_control):
        return None
    if not ends or (wish.on is False and not is_open):
        return None
    if request.whole_text or (request.whole_text is None and served.constraint.grammar):
        if has_budget(request) or request.reasoning_control:
            named = '"reasoning_control"' if request.reasoning_control else "a reasoning budget"
            raise bad(
                f'"grammar" covers the whole text, reasoning included: it cannot be combined with {named}'
            )
        return None
    return Budget(wish.n_tokens, opens.encode(), ends.encode(), is_open, wish.last + ends + after)


def _leaves_no_thought(request: ChatRequest, served: ServedModel, host: ChatHost) -> bool:
    """Whether a grammar forbids reasoning: it covers the whole text, and does not contain the tag that ends
    reasoning."""
    grammar = served.constraint.grammar if request.whole_text is None else request.whole_text
    end = host.format.think[1] if host.format.think else ""
    return bool(grammar and end) and end not in grammar


def _ending(request: ChatRequest, messages: list[dict[str, Any]]) -> tuple[bool, bool | str | None]:
    """Return whether to add a generation prompt, and whether to continue the last message, or which part of it; None:
    as the flags say."""
    begins, goes_on = request.add_generation_prompt is not False, request.continue_final_message
    if goes_on is None:
        return begins, None
    if isinstance(goes_on, str) and goes_on not in ("content", "reasoning_content"):
        raise bad('"continue_final_message" must be a boolean, "content" or "reasoning_content"')
    if goes_on and request.add_generation_prompt:
        raise bad('"continue_final_message" and "add_generation_prompt" cannot both be true')
    if goes_on and messages[-1]["role"] != "assistant":
        raise bad('"continue_final_message" needs a final assistant message')
    if goes_on and messages[-1].get("tool_calls"):
        raise bad('"continue_final_message": the final message has tool calls and cannot be continued')
    return begins or bool(goes_on), goes_on
