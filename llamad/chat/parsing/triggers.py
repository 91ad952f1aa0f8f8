"""What begins a call in each format: where free text ends and a grammar holds the rest.

Any thread; pure functions. A mark is as long as it needs to be not to occur in ordinary text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from llamad.chat.parsing.formats import Format
from llamad.chat.parsing.harmony import CHANNEL, START
from llamad.chat.parsing.literal_calls import GEMMA_CALL, PYTHON_CALLS
from llamad.chat.parsing.parameter_calls import FUNCTION, HUNYUAN
from llamad.chat.parsing.syntax.free_text import BLANKS, Mark, mark
from llamad.chat.parsing.tag_calls import SPELLINGS
from llamad.chat.parsing.token_calls import (
    APERTUS_CALLS,
    DEEPSEEK_CALL,
    DEEPSEEK_CALLS,
    KIMI_CALL,
    KIMI_CALLS,
    MISTRAL_CALLS,
    PYTHON_TAG,
    RECIPIENT,
    SOLAR_CALL,
    SOLAR_CALLS,
)

TO = " to=functions."
HEADERS = (f"{CHANNEL}commentary{TO}", f"{CHANNEL}analysis{TO}", f"{START}assistant{TO}")


def triggers(format: Format, names: Sequence[str]) -> list[Mark]:
    """The marks of calls of these functions."""
    match format.name:
        case "glm" if format.variant == "hunyuan":
            return [mark(f"<tool_calls{HUNYUAN}>"), mark(f"<tool_call{HUNYUAN}>")]
        case "qwen3-coder":
            seed = "seed:" if format.variant == "seed" else ""
            return [mark(f"<{seed}tool_call>"), *(mark(f"{FUNCTION}{name}>") for name in names)]
        case "hermes" | "glm":
            return [mark("<tool_call>")]
        case "llama3":
            tagged = [mark(f"{FUNCTION}{name}>") for name in names]
            return [mark(PYTHON_TAG, BLANKS, "{"), *tagged, *_objects(names)]
        case "mistral":
            return [mark(MISTRAL_CALLS)]
        case "deepseek":
            return [mark(text) for text in (*DEEPSEEK_CALLS, DEEPSEEK_CALL)]
        case "kimi-k2":
            return [mark(KIMI_CALLS), mark(KIMI_CALL)]
        case "granite":
            return [mark("<|tool_call|>"), mark("<tool_call>")]
        case "list" if format.variant == "fenced":
            return [mark(format.open, BLANKS, "```")]
        case "list" if not format.close and not format.variant:
            return [mark(format.open + "[")]
        case "list" | "command-r":
            return [mark(format.open)]
        case "invoke":
            one = SPELLINGS[format.variant]
            return [mark(text) for text in (one.open, one.call) if text]
        case "gemma":
            return [mark(GEMMA_CALL)]
        case "python":
            return [mark(PYTHON_CALLS[0])]
        case "apertus":
            return [mark(APERTUS_CALLS[0])]
        case "solar":
            return [mark(SOLAR_CALLS), mark(SOLAR_CALL)]
        case "functionary":
            bare = [mark(f"{name}\n", at_start=True) for name in names]
            return [*bare, *(mark(f"{RECIPIENT}{name}\n") for name in names)]
        case "gpt-oss":
            return [mark(TO, at_start=True), *map(mark, HEADERS)]
    keys = ('"tool_call"', '"tool_calls"')
    return [*(mark(BLANKS, "{", BLANKS, key, at_start=True) for key in keys), *_objects(names, "", "[")]


def _objects(names: Sequence[str], *opens: str) -> list[Mark]:
    """Calls as bare objects: only those of known functions are calls."""
    found = []
    typed = ('"type"', BLANKS, ":", BLANKS, '"function"', BLANKS, ",", BLANKS)
    for name in names:
        named = ('"name"', BLANKS, ":", BLANKS, json.dumps(name, ensure_ascii=False))
        for before in ((), typed):
            for opened in opens or ("",):
                bracket = (opened, BLANKS) if opened else ()
                found.append(mark(BLANKS, *bracket, "{", BLANKS, *before, *named, at_start=True))
    return found
