"""Owns what a chat request says: messages, tools and their choice, reasoning; and the prompt made of them.

Runs on the event loop; rendering is bounded by the template's own limits. Every 400 about these fields is born here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from llamad.api import fields, grammars
from llamad.api.errors import ApiError, bad
from llamad.api.openai import bodies
from llamad.api.service import Service
from llamad.chat.host import ChatHost
from llamad.chat.output import (
    OutputParser,
    Reasoning,
    ToolError,
    ends_in_reasoning,
    make_parser,
    tool_grammar,
)
from llamad.chat.template import TemplateError

REASONING: tuple[Reasoning, ...] = ("none", "auto", "deepseek", "deepseek-legacy")


@dataclass(slots=True)
class Chat:
    """A chat request, understood: its prompt, and how its answer is to be read and told."""

    model: str
    prompt: str
    host: ChatHost
    tools: list[dict[str, Any]]  # those that may be called
    parallel: bool
    reasoning: Reasoning
    include_usage: bool
    logprobs: bool
    n_top: int
    constraint: grammars.Wanted | None

    @property
    def n_probs(self) -> int:
        return max(1, self.n_top) if self.logprobs else 0

    def parser(self) -> OutputParser:
        """One for each completion."""
        return make_parser(
            self.host.format,
            reasoning=self.reasoning,
            tools_on=bool(self.tools),
            parallel=self.parallel,
            starts_in_reasoning=ends_in_reasoning(self.host.format, self.prompt),
            tools=self.tools or None,
        )

    def without_own(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body without what is the chat's own."""
        own = {"messages", "tools", "tool_choice", "functions", "function_call", "model"}
        return {name: value for name, value in body.items() if name not in own}


def parse_chat(body: dict[str, Any], service: Service) -> Chat:
    """Raises ApiError for what cannot be honoured."""
    bodies.check_unsupported(body)
    host = service.chat
    messages = _messages(body)
    tools, choice = _tools(body)
    parallel = fields.flag(body, "parallel_tool_calls", True)
    reasoning = _reasoning(body, service)
    logprobs = fields.flag(body, "logprobs", False)
    n_top = fields.whole(body, "top_logprobs", 0, 0, bodies.TOP_LOGPROBS_MAX)
    if n_top and not logprobs:
        raise bad('"top_logprobs" needs "logprobs": true')
    kwargs = body.get("chat_template_kwargs")
    if not isinstance(kwargs, dict | None):
        raise bad('"chat_template_kwargs" must be an object')
    shown = tools if choice != "none" else []
    try:
        prompt = host.prompt(
            messages,
            tools=shown or None,
            kwargs=kwargs or {},
            add_generation_prompt=fields.flag(body, "add_generation_prompt", True),
        )
        constraint = None
        if shown and choice != "auto":
            text = tool_grammar(
                host.format,
                shown,
                choice=choice,
                parallel=parallel,
                starts_in_reasoning=ends_in_reasoning(host.format, prompt),
            )
            constraint = grammars.Wanted(text)
    except TemplateError as error:
        raise bad(f"The chat template refuses these messages: {error}") from None
    except ToolError as error:
        raise bad(f'"tools": {error}') from None
    return Chat(
        model=fields.text(body, "model", service.model_name),
        prompt=prompt,
        host=host,
        tools=shown,
        parallel=parallel,
        reasoning=reasoning,
        include_usage=bodies.include_usage(body),
        logprobs=logprobs,
        n_top=n_top,
        constraint=constraint,
    )


def _messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad('"messages" must be a non-empty array')
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise bad(f'"messages": number {i} must be an object with a "role"')
        content = message.get("content")
        if isinstance(content, list):
            _check_parts(content, i)
        elif not isinstance(content, str | None):
            raise bad(f'"messages": the content of number {i} must be a string, an array of parts or null')
        elif content is None and message["role"] in ("user", "system", "developer"):
            raise bad(f'"messages": number {i} has no content')
        if not isinstance(message.get("tool_calls"), list | None):
            raise bad(f'"messages": "tool_calls" of number {i} must be an array')
    return messages


def _check_parts(parts: list[Any], i: int) -> None:
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image_url", "input_image", "input_audio", "image", "audio", "file"):
            raise ApiError(
                501, f'"messages": number {i} has a part of type "{kind}"; this model reads text only'
            )
        if kind not in ("text", "input_text", "output_text", "refusal"):
            raise bad(f'"messages": number {i} has a part without a known "type"')
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise bad(f'"messages": number {i} has a part without its text')


def _tools(body: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The tools, and "none", "auto", "required" or a function's name. `functions` are tools in an older form."""
    tools = body.get("tools")
    if tools is None and isinstance(body.get("functions"), list):
        tools = [{"type": "function", "function": one} for one in cast(list[Any], body["functions"])]
    if tools is None:
        tools = []
    if not isinstance(tools, list):
        raise bad('"tools" must be an array')
    for i, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if (
            not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or not function["name"]
        ):
            raise bad(f'"tools": number {i} must be an object with a "function" that has a "name"')
    choice = body.get("tool_choice")
    if choice is None:
        choice = body.get("function_call")
    if isinstance(choice, dict):
        named = choice.get("function", choice)
        choice = named.get("name") if isinstance(named, dict) else None
        if not isinstance(choice, str) or choice not in [tool["function"]["name"] for tool in tools]:
            raise bad('"tool_choice" names a function that is not among the tools')
        return tools, choice
    if choice is None:
        return tools, "auto"
    if choice not in ("none", "auto", "required"):
        raise bad('"tool_choice" must be "none", "auto", "required" or name a function')
    if choice == "required" and not tools:
        raise bad('"tool_choice" is "required", but there are no tools')
    return tools, choice


def _reasoning(body: dict[str, Any], service: Service) -> Reasoning:
    value = body.get("reasoning_format")
    if value is None:
        value = service.settings.reasoning_format
    if value not in REASONING:
        raise bad(f'"reasoning_format" must be one of {", ".join(REASONING)}')
    return cast(Reasoning, value)
