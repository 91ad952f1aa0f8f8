"""Turns the inputs to embed or score (texts, token ids, texts with images or sound) into lists of int32.

Pure functions except for tokenizing, which releases the GIL; the caller decides whether it runs on the event loop or in
a worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from llamad.api.request.errors import ApiError, bad
from llamad.api.request.media import (
    FILE_PARTS,
    Markers,
    MediaPrompt,
    part_file,
    with_image_data,
    with_markers,
)
from llamad.api.request.prompt import PromptObject, unwrapped
from llamad.api.request.text_limits import tokens_min
from llamad.protocol.model_info import Model, VectorInfo


def split(
    value: str | list[Any] | dict[str, Any],
    name: str,
    inputs_max: int,
    info: VectorInfo,
    images: Sequence[Any] = (),
) -> list[Any]:
    """Return one or several inputs: each is a string, a list of token ids, a list of both, or a MediaPrompt. `images`
    are those that a string refers to as `[img-N]`.

    Lengths and types are checked at C speed, so that a huge array takes no time on the event loop.
    """
    if isinstance(value, str | dict):
        inputs: list[Any] = [_unwrapped(value, name)]
    elif value:
        kinds = set(map(type, value))
        inputs = [value] if int in kinds else value
        if dict in kinds:
            check_count(inputs, name, inputs_max)
            inputs = [_unwrapped(one, name) for one in inputs]
    else:
        raise bad(f'"{name}" must not be empty')
    check_count(inputs, name, inputs_max)
    if images:
        inputs = [with_image_data(one, images) if isinstance(one, str) else one for one in inputs]
    for i, one in enumerate(inputs):
        _check(one, name if len(inputs) == 1 else f"{name}[{i}]", info)
    return inputs


def _unwrapped(value: Any, name: str) -> Any:
    """Return the text of an object with its files. It is a prompt object, or {"content": [...]} with parts as in a
    chat."""
    if not isinstance(value, dict) or "content" not in value:
        prompt = unwrapped(value, name)
        return with_markers(prompt.text, prompt.files, name) if isinstance(prompt, PromptObject) else prompt
    parts = value["content"]
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise bad(f'"{name}.content" must be an array of parts')
    text, media = "", Markers()
    for part in parts:
        kind = part.get("type")
        if kind not in (*FILE_PARTS, "text"):
            raise bad(f'"{name}.content" has a part of unknown "type"')
        one = part.get("text") if kind == "text" else media.add(part_file(part, kind, name))
        if not isinstance(one, str):
            raise bad(f'"{name}.content" has a part without text')
        text += one
    return media.prompt(text) if media.files else text


def with_files(inputs: list[Any]) -> dict[int, MediaPrompt]:
    """Return the inputs with images or sound, by their index."""
    return {i: one for i, one in enumerate(inputs) if isinstance(one, MediaPrompt)}


def check_count(inputs: list[Any], name: str, inputs_max: int) -> None:
    if len(inputs) > inputs_max:
        raise bad(f'"{name}" may hold at most {inputs_max} texts (--inputs-max), not {len(inputs)}')


def _check(one: Any, name: str, info: VectorInfo) -> None:
    if isinstance(one, MediaPrompt):
        return
    if not isinstance(one, (str, list)) or (isinstance(one, list) and not set(map(type, one)) <= {int, str}):
        raise bad(f'"{name}" must be a string or an array of token ids')
    if one == []:
        raise bad(f'"{name}" must not be empty')
    if isinstance(one, list) and len(one) > info.n_text_max:
        raise too_long(name, len(one), info)


def n_chars(inputs: list[Any]) -> int:
    """Return the length of the text to tokenize; a token id counts as a character."""
    return sum(one.n_chars if isinstance(one, MediaPrompt) else len(one) for one in inputs)


def tokenize(
    inputs: list[Any], name: str, model: Model, info: VectorInfo, *, truncates: bool = False
) -> list[bytes]:
    """Return the token ids of each input as int32, with the special tokens that the model expects around a text. With
    `truncates`, texts that are too long lose their end."""
    sequences = []
    for i, one in enumerate(inputs):
        label = name if len(inputs) == 1 else f"{name}[{i}]"
        if isinstance(one, MediaPrompt):
            sequences.append(_mixed(one, label, model, info))
            continue
        if truncates and isinstance(one, str):
            one = _shortened(one, model, info)
        texts = [one] if isinstance(one, str) else [part for part in one if isinstance(part, str)]
        check_length(sum(map(len, texts)), label, model, info)
        tokens = _tokens(one, name, model)
        if not tokens:
            raise bad(f'"{label}" must not be empty')
        if truncates and isinstance(one, str):
            tokens = _truncated(tokens, model, info)
        if len(tokens) // 4 > info.n_text_max:
            raise too_long(label, len(tokens) // 4, info)
        sequences.append(tokens)
    return sequences


def _shortened(text: str, model: Model, info: VectorInfo) -> str:
    """Return the beginning of a text, which has more tokens than can be embedded unless it is the whole text."""
    return text[: 2 * info.n_text_max * model.vocab.n_token_bytes]


def _truncated(tokens: bytes, model: Model, info: VectorInfo) -> bytes:
    """Return at most as many tokens as can be embedded. A special token at the end stays."""
    n_bytes = 4 * info.n_text_max
    if len(tokens) <= n_bytes:
        return tokens
    last = int.from_bytes(tokens[-4:], "little", signed=True)
    n_after = 4 if last in (model.info.sep, model.info.eos) else 0
    return tokens[: n_bytes - n_after] + tokens[len(tokens) - n_after :]


def _mixed(one: MediaPrompt, label: str, model: Model, info: VectorInfo) -> bytes:
    tokens = one.embedded(model)
    if len(tokens) // 4 > info.n_mixed_max:
        raise _over(label, len(tokens) // 4, info.n_mixed_max, "-c")
    return tokens


def check_length(n_chars: int, label: str, model: Model, info: VectorInfo) -> None:
    """Refuse a text that is too long whatever its tokens are, before it is tokenized."""
    n_tokens = tokens_min(n_chars, model.vocab, model.info.vocab_type)
    if n_tokens > info.n_text_max:
        raise too_long(label, n_tokens, info)


def _tokens(one: Any, name: str, model: Model) -> bytes:
    if isinstance(one, str):
        return text_tokens(one, model, special=True)
    if set(map(type, one)) == {int}:
        return _ids(one, name, model)
    return b"".join(
        model.vocab.tokenize(part.encode("utf-8", "replace"), i == 0, True)
        if isinstance(part, str)
        else _ids([part], name, model)
        for i, part in enumerate(one)
    )


def text_tokens(text: str, model: Model, *, special: bool) -> bytes:
    """Return the tokens of a text. `special`: add the special tokens around it, and parse special tokens in it."""
    return model.vocab.tokenize(text.encode("utf-8", "replace"), special, special)


def _ids(ids: list[int], name: str, model: Model) -> bytes:
    for token in (min(ids), max(ids)):
        if not 0 <= token < model.vocab.n_vocab:
            raise bad(f'"{name}": token id {token} is outside the vocabulary of {model.vocab.n_vocab}')
    return array("i", ids).tobytes()


def too_long(name: str, n_tokens: int, info: VectorInfo) -> ApiError:
    return _over(name, n_tokens, info.n_text_max, "-c" if info.is_split else "-ub and -b")


def _over(name: str, n_tokens: int, n_max: int, flags: str) -> ApiError:
    return ApiError(
        400,
        f'"{name}" is too large: it has {n_tokens} tokens, but at most {n_max} are allowed; shorten it,'
        f" or start llamad with a larger {flags}, if the model allows it.",
        type="exceed_context_size_error",
        extra={"n_prompt_tokens": n_tokens, "n_ctx": n_max},
    )
