"""Reads what a lazy grammar waits for: `grammar_lazy`, `grammar_triggers`, `preserved_tokens`.

Pure functions on the event loop. Raises the 400s about these fields; patterns are checked where they are converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llamad.api.request import checks
from llamad.api.request.errors import bad
from llamad.api.request.ignored_fields import LeftOut
from llamad.chat.parsing.lazy_grammar import Lazy
from llamad.protocol.model_info import Model

TRIGGERS_MAX = 64
TRIGGER_CHARS_MAX = 1024
PRESERVED_MAX = 256

# llama-server's numbers for the types of triggers.
_TOKEN, _WORD, _PATTERN, _WHOLE_PATTERN = range(4)


class Waits:
    """What a request's grammar waits for, and whether its text shows the special tokens that mark calls and reasoning,
    as a chat's text always does. A client cannot send this type."""

    __slots__ = ("lazy", "shows_markers")

    def __init__(self, lazy: Lazy | None = None, shows_markers: bool = False) -> None:
        self.lazy = lazy
        self.shows_markers = shows_markers


def read(
    is_lazy: bool, triggers: Sequence[Any], preserved: Sequence[str], model: Model, left_out: LeftOut
) -> Waits | None:
    """Return what the fields ask for, or None if they ask for nothing. Triggers of a grammar that is not lazy are
    ignored."""
    if not is_lazy and triggers:
        left_out.add("grammar_triggers")
    if not is_lazy and not preserved:
        return None
    waits = Waits(shows_markers=_shows_markers(preserved, model, left_out))
    if is_lazy:
        _take_triggers(triggers, model, waits)
    return waits


def _take_triggers(triggers: Sequence[Any], model: Model, waits: Waits) -> None:
    if not triggers:
        raise bad('"grammar_lazy" needs "grammar_triggers": no triggers are set for the lazy grammar')
    if len(triggers) > TRIGGERS_MAX:
        raise bad(f'"grammar_triggers" may have at most {TRIGGERS_MAX} entries, not {len(triggers)}')
    words: list[str] = []
    patterns: list[str] = []
    for i, one in enumerate(triggers):
        name = f"grammar_triggers[{i}]"
        if not isinstance(one, dict):
            raise bad(f'"{name}" must be an object with a "type" and a "value"')
        kind = checks.whole(f"{name}.type", one.get("type"), _TOKEN, _WHOLE_PATTERN)
        if kind == _TOKEN:
            words.append(_of_token(f"{name}.token", one.get("token"), model, waits))
            continue
        value = checks.text(f"{name}.value", one.get("value"))
        if not value or len(value) > TRIGGER_CHARS_MAX:
            raise bad(f'"{name}.value" must have 1 to {TRIGGER_CHARS_MAX} characters')
        if kind == _WORD:
            token = _special_token(value, model)
            words.append(value if token < 0 else _of_token(f"{name}.value", token, model, waits))
        else:
            patterns.append(value if kind == _PATTERN else _anchored(value))
    waits.lazy = Lazy(tuple(dict.fromkeys(words)), tuple(dict.fromkeys(patterns)))


def _anchored(pattern: str) -> str:
    return pattern if pattern.startswith("^") and pattern.endswith("$") else f"^(?:{pattern})$"


def _of_token(name: str, value: Any, model: Model, waits: Waits) -> str:
    """Return the text of a token that can be visible. Raises a 400 if it cannot."""
    token = checks.whole(name, value, 0, model.info.n_vocab - 1)
    vocab = model.vocab
    if not vocab.marked_output(token):
        raise bad(f'"{name}": token {token} is never a part of this model\'s text')
    waits.shows_markers = waits.shows_markers or not vocab.output(token)
    try:
        return vocab.marked_output(token).decode()
    except UnicodeDecodeError:
        raise bad(f'"{name}": token {token} is not valid UTF-8 by itself') from None


def _special_token(text: str, model: Model) -> int:
    """Return the token that the whole text is, if it is visible only in texts that show special tokens; else -1."""
    try:
        tokens = memoryview(model.vocab.tokenize(text.encode("utf-8", "replace"), False, True)).cast("i")
    except ValueError:
        return -1
    return tokens[0] if len(tokens) == 1 and not model.vocab.output(tokens[0]) else -1


def _shows_markers(preserved: Sequence[str], model: Model, left_out: LeftOut) -> bool:
    """Whether special tokens must be shown. Texts of several tokens, or of ordinary ones, are always visible."""
    if len(preserved) > PRESERVED_MAX:
        raise bad(f'"preserved_tokens" may have at most {PRESERVED_MAX} entries, not {len(preserved)}')
    special = [_special_token(text[:TRIGGER_CHARS_MAX], model) for text in preserved]
    shown = [bool(model.vocab.marked_output(token)) for token in special if token >= 0]
    if not all(shown):
        left_out.add("preserved_tokens")
    return any(shown)


def shown_triggers(lazy: Lazy) -> list[dict[str, Any]]:
    """Return the triggers for `generation_settings`."""
    words = [{"type": _WORD, "value": word} for word in lazy.words]
    return words + [{"type": _PATTERN, "value": pattern} for pattern in lazy.patterns]
