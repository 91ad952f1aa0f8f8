"""Owns how long a text may be before it is tokenized: what cannot fit its context is refused without that.

Pure but for tokenizing, which lets the GIL go; any thread.
"""

from __future__ import annotations

from llamad.api.request.errors import ApiError, too_long
from llamad.protocol.model_info import Model
from llamad.tokenizer.vocab import TooManyTokens, Vocab

# The longest text tokenized on the event loop: half a millisecond at most, as every stream waits meanwhile.
TEXT_INLINE_MAX = 1024
# llama.cpp's vocabularies in which every byte of a text is in a token, and in none longer than the longest. Others may
# leave out white space, or make one unknown token of a long word.
_EXACT_TYPES = (1, 2)  # SPM, BPE
_SLACK = 16
# A prompt that is too long is counted up to so many times the context, for the error to say how long it is.
_COUNTED = 4


def tokens_min(n_bytes: int, vocab: Vocab, vocab_type: int) -> int:
    """How many tokens a text of this size has at least."""
    return n_bytes // (vocab.n_token_bytes * (1 if vocab_type in _EXACT_TYPES else _SLACK))


def check_size(n_bytes: int, vocab: Vocab, vocab_type: int, n_ctx: int, *, is_system: bool = False) -> None:
    """Raises ApiError if a text of so many bytes, or more, cannot fit."""
    n_tokens = tokens_min(n_bytes, vocab, vocab_type)
    if n_tokens >= n_ctx:
        raise over_long(n_tokens, n_ctx, is_system)


def over_long(n_tokens: int, n_ctx: int, is_system: bool) -> ApiError:
    """The error for a text that was not tokenized to its end."""
    return too_long(n_tokens, n_ctx, n_tokens if is_system else 0, is_more=True)


def limited(text: bytes, add_special: bool, model: Model, *, is_system: bool = False) -> bytes:
    """The tokens of a prompt's text, special ones parsed. Raises ApiError where there are far too many."""
    check_size(len(text), model.vocab, model.info.vocab_type, model.n_ctx_slot, is_system=is_system)
    try:
        return model.vocab.tokenize(text, add_special, True, _COUNTED * model.n_ctx_slot)
    except TooManyTokens:
        raise over_long(_COUNTED * model.n_ctx_slot, model.n_ctx_slot, is_system) from None
