"""Owns the JSON that OpenAI's endpoints share: ids, usage, finish reasons, logprobs.

Pure functions on the event loop. Must not know how an answer is sent.
"""

from __future__ import annotations

import secrets
from typing import Any

from llamad.api.job import Job, Part, Piece
from llamad.engine.task import STOP_NAMES, TokenProbs
from llamad.engine.vocab import Vocab


def new_id(prefix: str) -> str:
    """Unique: 24 random letters and digits behind the prefix."""
    return prefix + secrets.token_hex(12)


def finish_reason(part: Part) -> str:
    return "length" if STOP_NAMES[part.ended.stop_type] == "limit" else "stop"


def usage(job: Job) -> dict[str, Any]:
    """Of all parts together; a prompt of n completions counts once."""
    n = job.generation.n
    n_prompt = sum(part.ended.n_prompt for part in job.parts[::n])
    n_completion = sum(part.ended.n_decoded for part in job.parts)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": sum(part.ended.n_cached for part in job.parts[::n])},
    }


def _entry(vocab: Vocab, token: int, value: float) -> dict[str, Any]:
    data = vocab.output(token)
    return {"id": token, "token": data.decode("utf-8", "replace"), "bytes": list(data), "logprob": value}


def chat_logprobs(vocab: Vocab, piece: Piece, n_top: int) -> list[dict[str, Any]]:
    """The entries of `logprobs.content` for the tokens of a piece."""
    out = []
    for token, (own, top) in zip(piece.tokens, piece.probs, strict=False):
        item = _entry(vocab, token, own)
        item["top_logprobs"] = [_entry(vocab, *one) for one in top[:n_top]]
        out.append(item)
    return out


def text_logprobs(
    vocab: Vocab, tokens: list[int], probs: list[TokenProbs], n_top: int, offset: int
) -> tuple[dict[str, Any], int]:
    """The older `logprobs` of /v1/completions, and the offset behind these tokens."""
    out: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token, (own, top) in zip(tokens, probs, strict=False):
        text = vocab.output(token).decode("utf-8", "replace")
        out["tokens"].append(text)
        out["token_logprobs"].append(own)
        out["top_logprobs"].append(
            {vocab.output(one).decode("utf-8", "replace"): value for one, value in top[:n_top]}
        )
        out["text_offset"].append(offset)
        offset += len(text)
    return out, offset
