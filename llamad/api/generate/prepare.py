"""Prepares what the tasks of a request need: tokens, the system prompt, the compiled grammar, DRY's sequence breakers.

Runs on the event loop. Short or cached work is done immediately; the rest goes to workers, so that it delays no other
request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from llamad.api.request import prompt as prompts
from llamad.api.request.constraints import Constraint, ConstraintSource
from llamad.api.request.errors import ApiError
from llamad.api.request.generation import needs_breakers
from llamad.api.request.media import MediaPrompt
from llamad.api.request.prompt import Built, Prompt
from llamad.api.request.structured_options import penalty_tokens
from llamad.api.request.system_prompt import tokenized
from llamad.api.service.admission import Place
from llamad.api.service.served_model import ServedModel
from llamad.client.media_embeddings import MediaEmbeddings
from llamad.http.exchange import Exchange
from llamad.options.table import Options
from llamad.options.values import SystemPrompt, UntokenizedText
from llamad.protocol.errors import EngineEnded
from llamad.protocol.model_info import Model


class PreparedPrompts(msgspec.Struct, frozen=True):
    """What was prepared for the tasks of a request."""

    tokens: list[bytes]  # the tokens of each prompt, after those of the system prompt
    system: SystemPrompt
    constraint: Constraint | None
    breakers: bytes  # the table of DRY's sequence breakers
    # The images and sound of each prompt; empty if there are none.
    rows: list[MediaEmbeddings | None] = msgspec.field(default_factory=list)


def prepare(
    served: ServedModel,
    exchange: Exchange,
    generation: Options,
    source: ConstraintSource,
    model: Model,
    sent: Sequence[Prompt | Built],
    then: Callable[[PreparedPrompts], None],
) -> None:
    """Call `then` once everything is prepared: now, or later unless the client has disconnected by then."""
    new = generation.system_prompt
    constraint = None if source.is_none else served.grammars.known(source)
    breakers: bytes | None = b""
    if needs_breakers(generation):
        breakers = served.breakers.find(model.vocab, generation.dry_sequence_breakers)
    n_chars = prompts.n_chars(sent) + (len(new.prompt) if new else 0)
    prompts.check_sizes(sent, model)
    penalty = generation.penalty_prompt
    is_known = not isinstance(penalty, UntokenizedText) and not any(
        isinstance(one, MediaPrompt) for one in sent
    )
    is_known = is_known and breakers is not None and (constraint is not None or source.is_none)
    if breakers is None or not is_known or n_chars > prompts.TEXT_INLINE_MAX:
        counted = served.enter_preparing(exchange)
        work = _prepare_later(served, counted, exchange, generation, source, model, sent, then)
        served.service.spawn(exchange, work, counted)
        return
    if constraint is not None:
        exchange.claim.use(constraint.memory)
    system = served.key_states.system(exchange.request.key_name) if new is None else tokenized(new, model)
    tokens = [prompts.tokenize(one, model, system.tokens) for one in sent]
    then(PreparedPrompts(tokens, system, constraint, breakers))


async def _prepare_later(
    served: ServedModel,
    counted: Place,
    exchange: Exchange,
    generation: Options,
    source: ConstraintSource,
    model: Model,
    sent: Sequence[Prompt | Built],
    then: Callable[[PreparedPrompts], None],
) -> None:
    system, workers = served.key_states.system(exchange.request.key_name), served.service.texts
    new, penalty = generation.system_prompt, generation.penalty_prompt
    constraint = None
    breakers = b""
    tokens: list[bytes] = []
    rows: list[MediaEmbeddings | None] = []
    with counted as client:
        if not source.is_none:
            constraint = await served.grammars.find(client, source, served.ready()[1])
            exchange.claim.use(constraint.memory)
        if needs_breakers(generation):
            make = partial(served.breakers.make, model.vocab, generation.dry_sequence_breakers)
            breakers = await workers.run(client, 0, make)
        if isinstance(penalty, UntokenizedText):
            work = partial(penalty_tokens, penalty.text, model)
            generation.penalty_prompt = await workers.run(client, len(penalty.text), work)
        if new is not None:
            system = await workers.run(client, len(new.prompt), partial(tokenized, new, model))
        for one in sent:
            if isinstance(one, MediaPrompt):
                one.encode(await served.encode_media(exchange.request, one.files))
            tokenize = partial(prompts.tokenize, one, model, system.tokens)
            tokens.append(await workers.run(client, prompts.n_chars([one]), tokenize))
            rows.append(await _lent(served, one) if isinstance(one, MediaPrompt) else None)
    served.ready()
    if not exchange.closed:
        then(PreparedPrompts(tokens, system, constraint, breakers, rows))


async def _lent(served: ServedModel, prompt: MediaPrompt) -> MediaEmbeddings:
    try:
        return await served.ready()[1].lend_rows(*prompt.rows())
    except MemoryError:
        raise ApiError(503, "There is not enough memory for the prompt's images") from None
    except EngineEnded:
        raise served.not_ready() from None
