"""Builds the infilling prompt from the texts around the gap and the vocabulary's FIM tokens.

Pure functions except for tokenizing, which releases the GIL; long texts belong on a worker.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from llamad.api.request.errors import ApiError, bad
from llamad.api.request.prompt import Built
from llamad.api.request.text_limits import check_size
from llamad.flags.settings import ModelSettings
from llamad.protocol.model_info import Model, ModelInfo

_NEEDED = (("fim_pre", "prefix"), ("fim_suf", "suffix"), ("fim_mid", "middle"))

# Names for what a request does not name, and the separator of texts if the vocabulary has no token for it.
REPOSITORY, FILE, FILE_EXTRA = "myproject", "filename", "tmp"
# A text that is cut is tokenized for this many times the characters that the context can hold. This is more than can be
# kept, so the place of the cut makes no difference.
_KEPT = 2
SNIPPET = "\n\n--- snippet ---\n\n"


class Extra(Struct):
    """A text from another file, and the name of the file."""

    text: str
    filename: str | None = None

    @property
    def name(self) -> str:
        return FILE_EXTRA if self.filename is None else self.filename


@dataclass(frozen=True, slots=True)
class Infill(Built):
    """An infilling prompt that is not tokenized yet."""

    settings: ModelSettings
    prefix: str | list[Any]
    suffix: str | list[Any]
    extra: list[Extra]
    prompt: str
    n_predict: int

    @property
    def n_chars(self) -> int:
        texts = len(self.prefix) + len(self.suffix) + len(self.prompt)
        for side in (self.prefix, self.suffix):
            if isinstance(side, list):
                texts += sum(len(one) for one in side if isinstance(one, str))
        return texts + sum(len(one.name) + len(one.text) for one in self.extra)

    def tokens(self, model: Model, system: bytes) -> bytes:
        n_system = len(system) // 4
        return system + infill_tokens(
            model, self.settings, self.prefix, self.suffix, self.extra, self.prompt, self.n_predict, n_system
        )


def infill_tokens(
    model: Model,
    settings: ModelSettings,
    prefix: str | list[Any],
    suffix: str | list[Any],
    extra: list[Extra],
    prompt: str,
    n_predict: int,
    n_system: int = 0,
) -> bytes:
    """Return the prompt as token ids, the same as llama-server's. It is truncated further if it does not fit the
    context after `n_system` other tokens.

    Prefix and suffix are texts, or arrays of texts and token ids. `prompt` is the text before the cursor in its line,
    and stands at the end of the prefix. Special tokens are parsed only there, and it is never truncated. Releases the
    GIL. The model must have the FIM tokens (see `refusal`).
    """
    info, n_ctx = model.info, model.n_ctx_slot
    chars_max = _KEPT * n_ctx * model.vocab.n_token_bytes
    before = _mixed(_end(prefix, chars_max), "input_prefix", model)
    after = _mixed(_beginning(suffix, chars_max), "input_suffix", model)
    around = _around(extra, model)
    check_size(len(prompt), model.vocab, info.vocab_type, n_ctx)
    line = _text(prompt, model, True)
    bos = _ids(info.bos) if info.add_bos and not n_system else b""
    n_answer = max(1, min(n_predict if n_predict >= 0 else n_ctx, n_ctx // 4))
    n_before, n_after, n_around = shares(
        len(before) // 4,
        len(after) // 4,
        len(around) // 4,
        len(line) // 4,
        room=n_ctx - n_system - len(bos) // 4 - len(_NEEDED),
        n_answer=n_answer,
        n_ctx=n_ctx,
        n_batch=settings.n_batch,
        n_predict=settings.options.n_predict,
    )
    first = _ids(info.fim_pre) + before[len(before) - 4 * n_before :] + line
    second = _ids(info.fim_suf) + after[: 4 * n_after]
    if settings.spm_infill:
        first, second = second, first
    kept = around[len(around) - 4 * n_around :]
    return b"".join((kept, bos, first, second, _ids(info.fim_mid)))


def shares(
    n_prefix: int,
    n_suffix: int,
    n_extra: int,
    n_prompt: int,
    *,
    room: int,
    n_answer: int,
    n_ctx: int,
    n_batch: int,
    n_predict: int,
) -> tuple[int, int, int]:
    """Return how many tokens of prefix, suffix and extra texts are kept. These are llama-server's shares if they leave
    at least one token of the room. Otherwise llama-server would refuse the request; here they are the shares of a
    smaller batch, which leave `n_answer` tokens.

    The prefix gets three quarters of a batch. The suffix gets one quarter, which includes the prompt and two more
    tokens. The extra texts get the context minus a batch and twice the server's own n_predict, whose -1 counts as a
    number.
    """
    n_extra = max(0, min(n_extra, n_ctx - n_batch - 2 * n_predict))
    quarter = n_batch // 4
    kept = min(n_prefix, 3 * quarter), max(0, min(n_suffix, quarter - 2 - n_prompt)), n_extra
    if sum(kept) + n_prompt < room:
        return kept
    room -= n_answer
    quarter = max(0, min(n_batch, room)) // 4
    n_prefix = max(0, min(n_prefix, 3 * quarter, room - n_prompt))
    n_suffix = max(0, min(n_suffix, quarter - 2 - n_prompt))
    return n_prefix, n_suffix, max(0, min(n_extra, room - n_prompt - n_prefix - n_suffix))


def _around(extra: list[Extra], model: Model) -> bytes:
    """Return the tokens of the repository's name, the extra texts with their file names, and the name of the file to
    fill in."""
    info, parts = model.info, []
    if info.fim_rep >= 0:
        parts.append(_ids(info.fim_rep) + _text(f"{REPOSITORY}\n", model))
    for one in _last(extra, _KEPT * model.n_ctx_slot * model.vocab.n_token_bytes):
        if info.fim_sep >= 0:
            parts.append(_ids(info.fim_sep) + _text(f"{one.name}\n", model))
        else:
            parts.append(_text(SNIPPET, model))
        parts.append(_text(one.text, model))
    if info.fim_sep >= 0:
        parts.append(_ids(info.fim_sep) + _text(f"{FILE}\n", model))
    return b"".join(parts)


def _end(value: str | list[Any], n_max: int) -> str | list[Any]:
    """Return the end of a text that may be kept; an array is limited elsewhere, by its number of tokens."""
    return value[-n_max:] if isinstance(value, str) else value


def _beginning(value: str | list[Any], n_max: int) -> str | list[Any]:
    return value[:n_max] if isinstance(value, str) else value


def _last(extra: list[Extra], n_max: int) -> list[Extra]:
    """Return the last extra texts, so that at most `n_max` characters are tokenized."""
    kept: list[Extra] = []
    for one in reversed(extra):
        if n_max <= 0:
            break
        kept.append(Extra(one.text[-n_max:], one.filename))
        n_max -= len(one.text)
    return kept[::-1]


def _ids(*tokens: int) -> bytes:
    return array("i", tokens).tobytes()


def _text(text: str, model: Model, parse_special: bool = False) -> bytes:
    # A lone surrogate (from a \ud800 escape) cannot be encoded; it becomes a question mark.
    return model.vocab.tokenize(text.encode("utf-8", "replace"), False, parse_special)


def _mixed(value: str | list[Any], name: str, model: Model) -> bytes:
    if isinstance(value, str):
        return _text(value, model)
    parts = []
    for one in value:
        if isinstance(one, str):
            parts.append(_text(one, model))
        elif type(one) is not int:
            raise bad(f'"{name}": an array may hold token ids and strings only')
        elif not 0 <= one < model.vocab.n_vocab:
            raise bad(f'"{name}": token id {one} is outside the vocabulary of {model.vocab.n_vocab}')
        else:
            parts.append(_ids(one))
    return b"".join(parts)


def refusal(info: ModelInfo) -> ApiError | None:
    """Return the error if this model cannot infill, else None."""
    missing = [f"{word} ({name.upper()})" for name, word in _NEEDED if getattr(info, name) < 0]
    if not missing:
        return None
    return ApiError(
        501,
        f"This model cannot infill: its vocabulary has no token for {', '.join(missing)};"
        " use a code model that has them",
    )
