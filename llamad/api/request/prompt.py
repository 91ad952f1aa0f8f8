"""Turns the six forms of `prompt` into a list of token sequences.

Tokenizing releases the GIL; the caller decides whether it runs on the event loop or in a worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from llamad.api.request.errors import ApiError, bad, too_long
from llamad.api.request.text_limits import TEXT_INLINE_MAX as TEXT_INLINE_MAX
from llamad.api.request.text_limits import check_size, limited
from llamad.protocol.model_info import Model
from llamad.tokenizer import token_ids


class Built(ABC):
    """A prompt that an endpoint builds itself, from tokens and several texts."""

    __slots__ = ()

    @property
    @abstractmethod
    def n_chars(self) -> int:
        """Return the length of the text to tokenize."""

    @abstractmethod
    def tokens(self, model: Model, system: bytes) -> bytes:
        """Return the token ids as int32, after those of the system prompt. Any thread."""


class IdPrompt(list[int]):
    """A prompt of token ids only. A prompt may have many, so their types are checked once, when it is read."""

    __slots__ = ()


Prompt = str | IdPrompt | list[int | str]  # a text, token ids, or both


class PromptObject(msgspec.Struct, frozen=True):
    """A text with files, as the client sent it; markers in the text stand for the files."""

    text: str
    files: list[Any]


# The types of the elements of an array, as the JSON decoder makes them. A bool is not a token id.
_ID, _TEXT, _ID_OR_TEXT = frozenset({int}), frozenset({str}), frozenset({int, str})


class Prompts(tuple[Prompt | PromptObject, ...]):
    """The prompts of a request, as the client sent them."""

    __slots__ = ()


def split(value: Any, prompts_max: int, n_ctx: int) -> Prompts:
    """Return one or several prompts: each is a string, a list of token ids, or a list of ids and strings.

    Lengths are checked before elements, so that a huge array takes no time on the event loop.
    """
    if isinstance(value, str | dict):
        return Prompts((unwrapped(value, "prompt"),))
    if not isinstance(value, list) or not value:
        raise bad('"prompt" must be a string, or a non-empty array of strings, token ids or such arrays')
    if len(value) >= n_ctx and type(value[0]) is int:
        raise too_long(len(value), n_ctx)
    if len(value) > max(n_ctx, prompts_max):
        raise bad(f'"prompt" may hold at most {prompts_max} prompts (--prompts-max)')
    types = set(map(type, value))
    if types == _ID:
        return Prompts((IdPrompt(value),))
    is_several = list in types or dict in types or types == _TEXT
    prompts = [unwrapped(one, "prompt") for one in value] if is_several else [value]
    if len(prompts) > prompts_max:
        raise bad(f'"prompt" may hold at most {prompts_max} prompts (--prompts-max)')
    return Prompts([_checked(prompt, n_ctx) for prompt in prompts])


def unwrapped(value: Any, field: str) -> Any:
    """Return the text of a prompt object, {"prompt_string": text, "multimodal_data": [...]}, or a PromptObject if it
    has files. Any other value is returned unchanged."""
    if not isinstance(value, dict):
        return value
    text = value.get("prompt_string")
    if not isinstance(text, str):
        raise bad(f'"{field}": an object must have a "prompt_string"')
    files = value.get("multimodal_data")
    if not files:
        return text
    if not isinstance(files, list):
        raise bad(f'"{field}.multimodal_data" must be an array of files in base64')
    return PromptObject(text, files)


def text_alone(value: Any, field: str) -> Any:
    """Do the same as unwrapped(), but raise a 501 for files."""
    prompt = unwrapped(value, field)
    if isinstance(prompt, PromptObject):
        raise ApiError(501, f'"{field}": "multimodal_data" cannot be used here')
    return prompt


def _checked(prompt: Any, n_ctx: int) -> Prompt | PromptObject:
    """Return one of several prompts, or the only one, if it is valid."""
    if isinstance(prompt, (str, PromptObject)):
        return prompt
    if isinstance(prompt, list) and len(prompt) >= n_ctx:
        raise too_long(len(prompt), n_ctx)
    if not isinstance(prompt, list) or not prompt:
        raise bad('"prompt": each prompt must be a string or a non-empty array of token ids and strings')
    types = set(map(type, prompt))
    if not types <= _ID_OR_TEXT:
        raise bad('"prompt": an array may hold token ids and strings only')
    return IdPrompt(prompt) if types == _ID else prompt


def n_chars(prompts: Sequence[Prompt | Built]) -> int:
    """Return the length of the text to tokenize. A token id counts as a character. So does each text of an array once
    the total is above TEXT_INLINE_MAX, because this function must be fast, too."""
    total = 0
    for prompt in prompts:
        if isinstance(prompt, (str, list)):
            total += len(prompt)
            if type(prompt) is list and total <= TEXT_INLINE_MAX:
                total += sum(len(one) for one in prompt if isinstance(one, str))
        else:
            total += prompt.n_chars
    return total


def check_sizes(sent: Sequence[Prompt | Built], model: Model) -> None:
    """Raise ApiError for a text that is too long whatever its tokens are. Nothing is tokenized."""
    for prompt in sent:
        if isinstance(prompt, (str, list)):
            check_size(n_chars([prompt]), model.vocab, model.info.vocab_type, model.n_ctx_slot)


def tokenize(prompt: Prompt | Built, model: Model, system: bytes = b"") -> bytes:
    """Return the token ids as int32, after those of the system prompt.

    BOS is added if the prompt begins with text, the model expects it, and there is no system prompt, which would have
    it already.
    """
    if isinstance(prompt, str):
        tokens = _text(prompt, not system, model)
    elif isinstance(prompt, IdPrompt):
        tokens = _ids(prompt, model)
    elif isinstance(prompt, Built):
        tokens = prompt.tokens(model, system)
    else:
        parts = []
        for i, one in enumerate(prompt):
            parts.append(
                _text(one, i == 0 and not system, model) if isinstance(one, str) else _ids([one], model)
            )
        tokens = b"".join(parts)
    if system and not isinstance(prompt, Built):
        tokens = system + (tokens[4:] if model.info.add_bos and tokens.startswith(_bos(model)) else tokens)
    if not tokens:
        if model.info.bos < 0:
            raise bad('"prompt" is empty and the model has no BOS token')
        tokens = _bos(model)
    n_tokens = len(tokens) // 4
    if n_tokens >= model.n_ctx_slot:
        raise too_long(n_tokens, model.n_ctx_slot, len(system) // 4)
    return tokens


def _bos(model: Model) -> bytes:
    return array("i", [model.info.bos]).tobytes()


def _text(text: str, add_special: bool, model: Model) -> bytes:
    # A lone surrogate (from a \ud800 escape) cannot be encoded; it becomes a question mark.
    return limited(text.encode("utf-8", "replace"), add_special, model)


def _ids(ids: list[int], model: Model) -> bytes:
    n_vocab = model.vocab.n_vocab
    packed = token_ids.pack([*ids], n_vocab)  # it takes no subclass of list
    if packed is None:
        token = next(one for one in (min(ids), max(ids)) if not 0 <= one < n_vocab)
        raise bad(f'"prompt": token id {token} is outside the vocabulary of {n_vocab}')
    return packed
