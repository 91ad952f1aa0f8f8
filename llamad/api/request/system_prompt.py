"""Reads system prompts, which are the text before every prompt, from a request's field and from a file.

Runs on the event loop; a worker tokenizes long ones, and the file is read at start-up. A SystemPrompt is immutable;
llamad/api/service/key_state.py holds those in use.
"""

from __future__ import annotations

import json
from pathlib import Path

from llamad.api.request.errors import ApiError, bad, too_long
from llamad.api.request.text_limits import limited
from llamad.flags.settings import ModelSettings
from llamad.options.values import SystemPrompt
from llamad.protocol.model_info import Model

_KEYS = ("prompt", "anti_prompt", "assistant_name")


def tokenized(sent: SystemPrompt, model: Model) -> SystemPrompt:
    """Return the same system prompt with its tokens. Releases the GIL; the caller decides which thread it runs on."""
    if not sent.prompt:
        return sent
    tokens = limited(sent.prompt.encode("utf-8", "replace"), True, model, is_system=True)
    if len(tokens) // 4 >= model.n_ctx_slot:
        raise too_long(len(tokens) // 4, model.n_ctx_slot, len(tokens) // 4)
    return SystemPrompt(sent.prompt, sent.anti_prompt, sent.assistant_name, tokens)


def parse(value: object, settings: ModelSettings) -> SystemPrompt:
    """Return the new system prompt that a request sets."""
    if not settings.system_prompt_field:
        raise ApiError(501, '"system_prompt" cannot be changed: this server runs with --no-system-prompt')
    return from_json(value)


def from_json(value: object) -> SystemPrompt:
    """Return the system prompt of a string, or of an object with three strings."""
    if isinstance(value, str):
        return SystemPrompt(value)
    if not isinstance(value, dict) or value.get("prompt") is None:
        raise bad('"system_prompt" must be a string, or an object with a "prompt"')
    for name in _KEYS:
        if not isinstance(value.get(name), str | None):
            raise bad(f'"system_prompt": "{name}" must be a string')
    prompt, anti_prompt, assistant_name = (value.get(name) or "" for name in _KEYS)
    return SystemPrompt(prompt, anti_prompt, assistant_name)


def read_file(path: str) -> SystemPrompt:
    """Return the system prompt of --system-prompt-file: plain text, or the object of the request field, alone or under
    its name.

    Raises OSError, or ValueError with a message.
    """
    text = Path(path).read_bytes().decode("utf-8-sig")
    is_json = path.lower().endswith(".json")
    try:
        value = json.loads(text) if is_json or text.lstrip().startswith("{") else text
    except (ValueError, RecursionError) as error:
        if is_json:
            raise ValueError(f"the file is not valid JSON: {error}") from None
        value = text
    if isinstance(value, dict) and "system_prompt" in value:
        value = value["system_prompt"]
    elif isinstance(value, dict) and "prompt" not in value and not is_json:
        value = text  # a text that is JSON by coincidence
    try:
        return from_json(value)
    except ApiError as error:
        raise ValueError(error.message) from None
