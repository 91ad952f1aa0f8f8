"""Reads what a chat request says about reasoning: whether there is any, how much, and where it is returned.

Pure functions, on the event loop or in a worker. Raises every 400 about these fields.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast, get_args

from llamad.api.openai.request import ChatRequest, Effort
from llamad.api.request.errors import bad
from llamad.chat.host import ChatHost
from llamad.flags.settings import ModelSettings
from llamad.options.option import LEFT_OUT

_NEAREST = {"minimal": "low", "xhigh": "high", "max": "high"}


class Thinking(NamedTuple):
    """What a request says about reasoning. `on` is None if the template decides. `last` is the last text of reasoning
    that is cut off, or all of its text if the budget is 0."""

    on: bool | None
    n_tokens: int  # reasoning budget; -1: no limit
    last: str
    kwargs: dict[str, Any]  # template variables of the request


def effort(value: object, field: str) -> Effort | None:
    """Return OpenAI's reasoning effort, or None if it is not given."""
    efforts = get_args(Effort)
    if value is not None and value not in efforts:
        raise bad(f"{field} must be one of {', '.join(efforts)}")
    return cast("Effort | None", value)


def thinking(request: ChatRequest, settings: ModelSettings, host: ChatHost) -> Thinking:
    """Return what applies to the request. In increasing precedence it comes from the flags (with the template variables
    for every chat), `reasoning_effort`, the request's own template variables, and the budget."""
    own = request.chat_template_kwargs or {}
    on: bool | None = {"on": True, "off": False}.get(settings.reasoning)
    on = _switch(host.kwargs, on)
    level = request.reasoning_effort
    if level is not None:
        on = level != "none"
    on = _switch(own, on)
    kwargs = {"reasoning_effort": _known(level, host), **own} if level and level != "none" else own
    last = request.reasoning_budget_message
    if last is None:
        last = settings.reasoning_budget_message or ""
    n_tokens = _budget(request, settings)
    if n_tokens == 0:
        on = False
    return Thinking(on, n_tokens, last, kwargs)


def _switch(kwargs: dict[str, Any], on: bool | None) -> bool | None:
    value = kwargs.get("enable_thinking")
    if not isinstance(value, bool | None):
        raise bad('"chat_template_kwargs": "enable_thinking" must be true or false')
    return on if value is None else value


def _known(level: str, host: ChatHost) -> str:
    """Return the effort for the template. Few templates know the extreme efforts, and others may fail, so these get the
    nearest effort that all know."""
    if level in _NEAREST and not re.search(f"""['"]{level}['"]""", host.source):
        return _NEAREST[level]
    return level


def _budget(request: ChatRequest, settings: ModelSettings) -> int:
    budget = request.reasoning_budget_tokens
    if budget == LEFT_OUT:
        budget = request.thinking_budget_tokens
    return settings.reasoning_budget if budget < 0 else budget


def has_budget(request: ChatRequest) -> bool:
    """Whether the request itself has a reasoning budget."""
    given = (request.reasoning_budget_tokens, request.thinking_budget_tokens)
    return any(budget not in (LEFT_OUT, 0) for budget in given)
