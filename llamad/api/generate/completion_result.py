"""The result of a part in the format of /completion; other dialects show it for debugging.

Runs on the event loop, or in a worker once the part is done.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.request import generation as options
from llamad.client.text_event import TextEvent
from llamad.protocol.row_ids import without_rows


def probabilities(job: Job, piece: TextEvent) -> list[msgspec.Raw]:
    return completion_json.probabilities(
        piece.tokens, piece.probs, job.model.vocab, job.generation.post_sampling_probs
    )


def final_json(part: CompletionPart) -> dict[str, Any]:
    """Return the result object. If the text was streamed, it has the tokens that were in no event."""
    job = part.job
    g, pieces = job.generation, part.held if part.job.generation.stream else part.pieces
    constraint = job.ready.constraint if job.ready is not None else None
    whole = completion_json.final(
        part.ended,
        index=part.index,
        content=part.data().decode("utf-8", "replace"),
        tokens=[token for piece in pieces for token in piece.tokens] if g.return_tokens or g.stream else [],
        model=job.served.name,
        settings=options.settings_json(
            g,
            job.constraint,
            job.model.n_ctx_slot,
            job.served.name,
            part.seed,
            constraint.text if constraint else "",
            job.served.eog_tokens() if g.ignore_eos else (),
            job.parsing(),
        ),
        prompt=job.model.vocab.detokenize(without_rows(part.tokens_prompt), True).decode("utf-8", "replace"),
        stops=g.stop,
    )
    if constraint is not None and constraint.warnings:
        whole["warnings"] = list(constraint.warnings)
    probs = [one for piece in pieces if piece.probs for one in probabilities(job, piece)]
    if probs or (g.n_probs and not g.stream):
        whole["completion_probabilities"] = probs
    return completion_json.select(whole, g.response_fields)
