"""Chooses the chat template, from the flags or the model.

Runs in the loader thread, before the first request.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from llamad.chat.host import ChatHost
from llamad.chat.template import DROPPING, KEEPING, TemplateError
from llamad.flags.settings import ModelSettings
from llamad.protocol.model_info import Model

log = logging.getLogger("llamad.api")


def make_host(settings: ModelSettings, model: Model) -> ChatHost:
    """Return the chat host with the template of the flags or of the model. Raises ValueError, with a message, for a
    template or variables that cannot be used."""
    source = settings.chat_template
    if source is not None and settings.chat_template_file is not None:
        raise ValueError("--chat-template and --chat-template-file cannot be combined: give one of them")
    if settings.chat_template_file is not None:
        try:
            source = Path(settings.chat_template_file).read_bytes().decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8"
            raise ValueError(f"--chat-template-file {settings.chat_template_file}: {reason}") from None
    try:
        kwargs = msgspec.json.decode(settings.chat_template_kwargs)
    except ValueError as error:
        raise ValueError(f"--chat-template-kwargs is not valid JSON: {error}") from None
    if not isinstance(kwargs, dict):
        raise ValueError("--chat-template-kwargs must be a JSON object")
    kwargs = {**_variables(settings), **kwargs}
    named = model.info.tool_use_template if source is None and settings.jinja else None
    own = model.info.chat_template or named or ""
    try:
        host = _host(own if source is None else source, settings, model, kwargs)
    except TemplateError as error:
        of = "the model's chat template" if source is None else "--chat-template"
        raise ValueError(f"{of}: {error}; give another with --chat-template, for example chatml") from None
    if named:
        try:
            host.for_tools = _host(named, settings, model, kwargs)
        except TemplateError as error:
            log.warning("the model's chat template for tools cannot be used: %s", error)
    return host


def _host(source: str, settings: ModelSettings, model: Model, kwargs: dict[str, Any]) -> ChatHost:
    info = model.info
    return ChatHost(
        source,
        bos=_special(model, info.bos),
        eos=_special(model, info.eos),
        adds_bos=info.add_bos,
        kwargs=kwargs,
        prefill=settings.prefill_assistant,
        jinja=settings.jinja,
    )


def _variables(settings: ModelSettings) -> dict[str, Any]:
    """Return the template variables that the flags set. The switch for earlier reasoning has a different name in each
    template."""
    kept = settings.reasoning_preserve
    variables: dict[str, Any] = {**dict.fromkeys(KEEPING, kept), **dict.fromkeys(DROPPING, not kept)}
    if settings.reasoning_effort != "default":
        variables["reasoning_effort"] = settings.reasoning_effort
    return variables


_TURNS = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]


def turn_end(chat: ChatHost, model: Model) -> int:
    """Return the token that ends a turn: the model's end-of-turn token, else its end-of-sequence token, else -1.

    llama.cpp finds it by known token names, and may take the wrong one if there are several (for SmolLM2 it takes
    "<|endoftext|>" rather than "<|im_end|>"). So the token that the template writes takes precedence.
    """
    info = model.info
    try:
        text = chat.prompt(_TURNS, tools=None, kwargs={})
        tokens = (
            memoryview(model.vocab.tokenize(text.encode("utf-8", "replace"), False, True)).cast("i").tolist()
        )
    except TemplateError:
        tokens = []
    written = [token for token in tokens if model.vocab.is_eog(token)]
    known = [token for token in (info.eot, info.eos) if token >= 0]
    return next((token for token in known if token in written), (written + known + [-1])[0])


def _special(model: Model, token: int) -> str:
    return model.vocab.piece(token, True).decode("utf-8", "replace") if token >= 0 else ""
