"""Owns what a chat request says about thinking: whether, how hard, and where the thoughts go.

Pure functions, on the event loop or in a worker. Every 400 and 501 about these fields is born here.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

from llamad.api.request import fields
from llamad.api.request.errors import ApiError, bad
from llamad.chat.host import ChatHost
from llamad.chat.parsing import Reasoning
from llamad.flags.settings import Settings

REASONING: tuple[Reasoning, ...] = ("none", "auto", "deepseek", "deepseek-legacy")
BUDGETS = ("reasoning_budget_tokens", "thinking_budget_tokens")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_NEAREST = {"minimal": "low", "xhigh": "high", "max": "high"}


class Thinking(NamedTuple):
    """`on` is None where the template decides; `last` is what a thought says that is ended, or that is none."""

    on: bool | None
    n_tokens: int  # that a thought may have; -1: any number
    last: str
    kwargs: dict[str, Any]  # the request's variables of the template


def effort(value: Any, field: str) -> str | None:
    """How much a model is to think, in OpenAI's words; None where nothing is said."""
    if value is not None and value not in EFFORTS:
        raise bad(f"{field} must be one of {', '.join(EFFORTS)}")
    return cast("str | None", value)


def thinking(body: dict[str, Any], settings: Settings, host: ChatHost) -> Thinking:
    """The flags, among them the template's variables for every chat, then `reasoning_effort`, then the request's own
    variables, then the budget: each above those before."""
    given = body.get("chat_template_kwargs")
    if not isinstance(given, dict | None):
        raise bad('"chat_template_kwargs" must be an object')
    own = dict(given or {})
    on: bool | None = {"on": True, "off": False}.get(settings.reasoning)
    on = _switch(host.kwargs, on)
    wanted = effort(body.get("reasoning_effort"), '"reasoning_effort"')
    if wanted is not None:
        on = wanted != "none"
    on = _switch(own, on)
    kwargs = {"reasoning_effort": _known(wanted, host), **own} if wanted and wanted != "none" else own
    last = fields.text(body, "reasoning_budget_message", settings.reasoning_budget_message or "")
    n_tokens = _budget(body, settings)
    if n_tokens == 0:
        on = False
    if fields.flag(body, "reasoning_control", False):
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


def _budget(body: dict[str, Any], settings: Settings) -> int:
    name = next((name for name in BUDGETS if body.get(name) is not None), "")
    budget = fields.whole(body, name, -1, -1) if name else -1
    return settings.reasoning_budget if budget < 0 else budget


def reasoning_format(body: dict[str, Any], settings: Settings) -> Reasoning:
    value = body.get("reasoning_format")
    if value is None:
        value = settings.reasoning_format
    if value not in REASONING:
        raise bad(f'"reasoning_format" must be one of {", ".join(REASONING)}')
    return cast(Reasoning, value)
