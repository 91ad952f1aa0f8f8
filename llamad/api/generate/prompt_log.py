"""Writes prompts to the log and to files for --log-prompts and --log-prompts-dir. Without them no prompt is logged.

Runs on the event loop; a thread of its own writes the files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from llamad.api.service.service import Service
from llamad.protocol.model_info import Model
from llamad.protocol.row_ids import without_rows

log = logging.getLogger("llamad.prompts")

# The longest prompt in the log, in tokens and in characters; the pieces of tokenizers are a few characters long.
TOKENS_MAX = 4096
CHARS_MAX = 4096


def show(service: Service, model: Model, request_id: str, prompts: Iterable[bytes]) -> None:
    """Write the prompts to the log and to files, if the flags say so. They are token ids, which include the system
    prompt."""
    if not service.settings.log_prompts and service.prompt_files is None:
        return
    for tokens in prompts:
        ids = without_rows(tokens)
        if service.settings.log_prompts:
            text = model.vocab.detokenize(ids[: TOKENS_MAX * 4], True).decode("utf-8", "replace")
            more = "..." if len(text) > CHARS_MAX or len(ids) > TOKENS_MAX * 4 else ""
            log.info(
                "request %s: prompt of %d tokens: %r%s", request_id, len(tokens) // 4, text[:CHARS_MAX], more
            )
        if service.prompt_files is not None:
            service.prompt_files.write(partial(model.vocab.detokenize, ids, True))
