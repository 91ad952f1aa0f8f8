"""The result of a part in the format of /completion; other dialects show it for debugging.

Runs on the event loop, or in a worker once the part is done.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.request import generation as options
from llamad.client.task import STOP_NAMES
from llamad.client.text_event import TextEvent
from llamad.protocol.row_ids import without_rows

_encode = msgspec.json.Encoder().encode


def piece_timings(part: CompletionPart, piece: TextEvent) -> dict[str, Any]:
    """Return the field `timings` of an event in a stream, or no field if the request does not ask for it."""
    if not part.job.generation.timings_per_token:
        return {}
    times = piece.prompt_us, part.n_decoded, piece.predict_us
    drafts = piece.n_drafted, piece.n_accepted
    return {"timings": completion_json.timings(part.n_prompt, part.n_cached, *times, *drafts)}


def probabilities(job: Job, piece: TextEvent) -> list[msgspec.Raw]:
    """Return `completion_probabilities`, with the new fields and the oldest ones (`content`, `probs`) side by side.
    Each token's entry is encoded immediately, because as objects they would take many times the memory."""
    vocab, is_post = job.model.vocab, job.generation.post_sampling_probs
    name, name_top = ("prob", "top_probs") if is_post else ("logprob", "top_logprobs")
    out = []
    for token, (own, top) in zip(piece.tokens, piece.probs, strict=False):
        item = completion_json.token_json(vocab, token, name, own)
        rows = [completion_json.token_json(vocab, one, name, value) for one, value in top]
        item[name_top] = rows
        item["content"] = item["token"]
        item["probs"] = [
            {"prob": row[name] if is_post else math.exp(row[name]), "tok_str": row["token"]} for row in rows
        ]
        out.append(msgspec.Raw(_encode(item)))
    return out


def final_json(part: CompletionPart) -> dict[str, Any]:
    """Return the result object, with old and new fields side by side. If the text was streamed, it has the tokens that
    were in no event."""
    job, done = part.job, part.ended
    g, pieces = job.generation, part.held if part.job.generation.stream else part.pieces
    constraint = job.ready.constraint if job.ready is not None else None
    prompt = job.model.vocab.detokenize(without_rows(part.tokens_prompt), True)
    stop_type = STOP_NAMES[done.stop_type]
    whole: dict[str, Any] = {
        "index": part.index,
        "content": part.data().decode("utf-8", "replace"),
        "tokens": [token for piece in pieces for token in piece.tokens]
        if g.return_tokens or g.stream
        else [],
        "id_slot": done.slot,
        "stop": True,
        "model": job.served.name,
        "tokens_predicted": done.n_decoded,
        "tokens_evaluated": done.n_prompt,
        "generation_settings": options.settings_json(
            g,
            job.constraint,
            job.model.n_ctx_slot,
            job.served.name,
            part.seed,
            constraint.text if constraint else "",
            job.served.eog_tokens() if g.ignore_eos else (),
            job.parsing(),
            job.served.drafting(),
        ),
        "prompt": prompt.decode("utf-8", "replace"),
        "has_new_line": done.has_new_line,
        "truncated": done.truncated,
        "stop_type": stop_type,
        "stopped_eos": stop_type == "eos",
        "stopped_limit": stop_type == "limit",
        "stopped_word": stop_type == "word",
        "stopping_word": g.stop[done.stop_word] if done.stop_word >= 0 else "",
        "tokens_cached": done.n_slot_tokens,
        "timings": completion_json.ended_timings(done, part.miss),
    }
    if constraint is not None and constraint.warnings:
        whole["warnings"] = list(constraint.warnings)
    probs = [one for piece in pieces if piece.probs for one in probabilities(job, piece)]
    if probs or (g.n_probs and not g.stream):
        whole["completion_probabilities"] = probs
    return completion_json.select(whole, g.response_fields)
