"""Owns what a chat request says about thinking: whether, how hard, and where the thoughts go.

Pure functions, on the event loop or in a worker. Every 400 and 501 about these fields is born here.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast, get_args

from llamad.api.openai.request import ChatRequest, Effort
from llamad.api.request.errors import ApiError, bad
from llamad.chat.host import ChatHost
from llamad.flags.settings import Settings
from llamad.options.option import LEFT_OUT

_NEAREST = {"minimal": "low", "xhigh": "high", "max": "high"}


class Thinking(NamedTuple):
    """`on` is None where the template decides; `last` is what a thought says that is ended, or that is none."""

    on: bool | None
    n_tokens: int  # that a thought may have; -1: any number
    last: str
    kwargs: dict[str, Any]  # the request's variables of the template


def effort(value: object, field: str) -> Effort | None:
    """How much a model is to think, in OpenAI's words; None where nothing is said."""
    efforts = get_args(Effort)
    if value is not None and value not in efforts:
        raise bad(f"{field} must be one of {', '.join(efforts)}")
    return cast("Effort | None", value)


def thinking(request: ChatRequest, settings: Settings, host: ChatHost) -> Thinking:
    """The flags, among them the template's variables for every chat, then `reasoning_effort`, then the request's own
    variables, then the budget: each above those before."""
    own = request.chat_template_kwargs or {}
    on: bool | None = {"on": True, "off": False}.get(settings.reasoning)
    on = _switch(host.kwargs, on)
    wanted = request.reasoning_effort
    if wanted is not None:
        on = wanted != "none"
    on = _switch(own, on)
    kwargs = {"reasoning_effort": _known(wanted, host), **own} if wanted and wanted != "none" else own
    last = request.reasoning_budget_message
    if last is None:
        last = settings.reasoning_budget_message or ""
    n_tokens = _budget(request, settings)
    if n_tokens == 0:
        on = False
    if request.reasoning_control:
        raise ApiError(501, '"reasoning_control" is not supported; leave it out')
    return Thinking(on, n_tokens, last, kwargs)


def _switch(kwargs: dict[str, Any], on: bool | None) -> bool | None:
    value = kwargs.get("enable_thinking")
    if not isinstance(value, bool | None):
        raise bad('"chat_template_kwargs": "enable_thinking" must be true or false')
    return on if value is None else value


def _known(wanted: str, host: ChatHost) -> str:
    """Few templates know the outer words, and one that does not may fail: it gets the nearest that all know."""
    if wanted in _NEAREST and not re.search(f"""['"]{wanted}['"]""", host.source):
        return _NEAREST[wanted]
    return wanted


def _budget(request: ChatRequest, settings: Settings) -> int:
    budget = request.reasoning_budget_tokens
    if budget == LEFT_OUT:
        budget = request.thinking_budget_tokens
    return settings.reasoning_budget if budget < 0 else budget


def has_budget(request: ChatRequest) -> bool:
    """Whether the request itself limits its thoughts."""
    given = (request.reasoning_budget_tokens, request.thinking_budget_tokens)
    return any(budget not in (LEFT_OUT, 0) for budget in given)
