"""Limits the length of a text before it is tokenized: a text that cannot fit its context is refused at once.

Pure functions except for tokenizing, which releases the GIL; any thread.
"""

from __future__ import annotations

from llamad.api.request.errors import ApiError, too_long
from llamad.protocol.model_info import Model
from llamad.tokenizer.vocab import TooManyTokens, Vocab

# The longest text that is tokenized on the event loop: half a millisecond at most, because every stream waits for it.
TEXT_INLINE_MAX = 1024
# In these vocabulary types of llama.cpp, every byte of a text is part of a token, and no token is longer than the
# vocabulary's longest one. Others may drop white space, or turn a long word into one unknown token.
_EXACT_TYPES = (1, 2)  # SPM, BPE
_SLACK = 16
# A prompt that is too long is counted up to this many times the context, so that the error can say how long it is.
_COUNTED = 4


def tokens_min(n_bytes: int, vocab: Vocab, vocab_type: int) -> int:
    """Return how many tokens a text of this size has at least."""
    return n_bytes // (vocab.n_token_bytes * (1 if vocab_type in _EXACT_TYPES else _SLACK))


def check_size(n_bytes: int, vocab: Vocab, vocab_type: int, n_ctx: int, *, is_system: bool = False) -> None:
    """Raise ApiError if a text of at least `n_bytes` bytes cannot fit."""
    n_tokens = tokens_min(n_bytes, vocab, vocab_type)
    if n_tokens >= n_ctx:
        raise over_long(n_tokens, n_ctx, is_system)


def over_long(n_tokens: int, n_ctx: int, is_system: bool) -> ApiError:
    """Return the error for a text that was not tokenized to its end."""
    return too_long(n_tokens, n_ctx, n_tokens if is_system else 0, is_more=True)


def limited(text: bytes, add_special: bool, model: Model, *, is_system: bool = False) -> bytes:
    """Return the tokens of a prompt's text, with special tokens parsed. Raises ApiError if there are far too many."""
    check_size(len(text), model.vocab, model.info.vocab_type, model.n_ctx_slot, is_system=is_system)
    try:
        return model.vocab.tokenize(text, add_special, True, _COUNTED * model.n_ctx_slot)
    except TooManyTokens:
        raise over_long(_COUNTED * model.n_ctx_slot, model.n_ctx_slot, is_system) from None
