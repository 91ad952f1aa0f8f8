"""GET /slots: what each slot is doing, and the JSON of a slot, which /health and /props show as well.

Runs on the event loop and answers from what the engine has published; never waits for the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from llamad.api.generate.job import CompletionPart
from llamad.api.request import generation as options
from llamad.api.request.errors import ApiError
from llamad.api.request.parse import UINT32_MAX
from llamad.api.service.served_model import ServedModel
from llamad.client.engine_client import NO_COUNTS, EngineClient
from llamad.client.events import SlotCounts
from llamad.client.task import STOP_NAMES, Ended
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response
from llamad.options.table import Options
from llamad.protocol.row_ids import without_rows

# The most tokens in all slots whose text is encoded in one turn of the event loop.
TOKENS_INLINE_MAX = 16384


def _next_token(
    counts: SlotCounts, n_remain: int, ended: Ended | None, *, has_next: bool, shows_text: bool
) -> dict[str, Any]:
    stop_type = "none" if ended is None else STOP_NAMES[ended.stop_type]
    word = b"" if ended is None or not shows_text else ended.stop_word
    return {
        "has_next_token": has_next,
        "has_new_line": counts.has_new_line,
        "n_remain": n_remain,
        "n_decoded": counts.n_decoded,
        "stopped_eos": stop_type == "eos",
        "stopped_limit": stop_type == "limit",
        "stopped_word": stop_type == "word",
        "stopping_word": word.decode("utf-8", "replace"),
    }


def _as_defaults(params: dict[str, Any]) -> dict[str, Any]:
    """Return the server's options as in llama-server's documentation, when there is no request: a random seed is the
    largest number, and `stream` is true."""
    seed = params["seed"]
    return {**params, "seed": seed if 0 <= seed < UINT32_MAX else UINT32_MAX, "stream": True}


def _params(served: ServedModel, shown: Options, part: CompletionPart | None) -> dict[str, Any]:
    """Return the options as a slot shows them, with the constraint of the part or, without one, the server's."""
    ready = None if part is None else part.job.ready
    grammar = served.grammars.own_text
    if ready is not None:
        grammar = "" if ready.constraint is None else ready.constraint.text
    return options.settings_json(
        shown,
        served.constraint if part is None else part.job.constraint,
        served.described().n_ctx_slot,
        served.name,
        grammar=grammar,
        eog_tokens=served.eog_tokens() if shown.ignore_eos else (),
        parsing=options.PLAIN if part is None else part.job.parsing(),
        drafting=served.drafting(),
    )


def _prompt(served: ServedModel, part: CompletionPart) -> str:
    vocab = served.described().vocab
    return vocab.detokenize(without_rows(part.tokens_prompt), True).decode("utf-8", "replace")


def slot_json(
    served: ServedModel,
    index: int,
    generation: Options,
    part: CompletionPart | None,
    counts: SlotCounts = NO_COUNTS,
    ended: Ended | None = None,
    *,
    shows_text: bool = True,
) -> dict[str, Any]:
    """Return a slot in llama-server's current format, with the flat fields of older versions: its task, or the server's
    options and how its last task ended. Without `shows_text` it has the server's own options, because stop strings,
    grammars and biases would also reveal something about the prompt."""
    shown = part if shows_text else None
    params = _params(served, generation if shows_text else served.defaults.options, shown)
    if part is None:
        params = _as_defaults(params)
    task_id = -1 if part is None else part.task_id
    n_remain = (
        generation.n_predict - counts.n_decoded if part is not None and generation.n_predict >= 0 else -1
    )
    has_next = part is not None or counts.n_tokens == 0
    if part is None:
        counts = msgspec.structs.replace(counts, n_decoded=0)  # as in llama-server
    return {
        **params,
        "id": index,
        "id_task": task_id,
        "task_id": task_id,
        "n_ctx": served.described().n_ctx_slot,
        "speculative": bool(served.host.spec_types),
        "draft_n": counts.n_drafted,
        "draft_n_accepted": counts.n_accepted,
        "is_processing": part is not None,
        "is_suspended": part is not None and counts.is_suspended,
        "state": int(part is not None),
        "n_tokens": counts.n_tokens,
        "n_prompt_tokens": counts.n_tokens,
        "n_prompt_tokens_processed": counts.n_processed,
        "n_prompt_tokens_cache": counts.n_cached,
        "params": params,
        "prompt": "" if shown is None else _prompt(served, shown),
        "next_token": _next_token(counts, n_remain, ended, has_next=has_next, shows_text=shows_text),
    }


def _last_miss(served: ServedModel, request: Request, index: int) -> dict[str, Any]:
    """Return the `cache_miss` of the last request in a slot, if it had one; other keys do not see its texts."""
    key, miss = served.known.misses.get(index, ("", {}))
    if key != request.key_name:
        miss = {name: value for name, value in miss.items() if name not in ("was", "is")}
    return {"cache_miss": miss} if miss else {}


def _engine(served: ServedModel) -> EngineClient:
    """Return the client of the model's engine, which may be asleep. Raises ApiError if the model was never loaded, or
    generates no text."""
    served.described_text()
    engine = served.host.engine
    assert engine is not None
    return engine


def _slots(served: ServedModel, request: Request) -> Iterator[msgspec.Raw]:
    """Yield the JSON of each slot as the request's key may see it: only state and numbers if the task belongs to
    another key."""
    engine = _engine(served)
    busy = {running.slot: running.sink for running in engine.tasks.values() if running.slot >= 0}
    idle = served.defaults.options
    for index, counts in enumerate(engine.slots()):
        part = busy.get(index)
        part = part if isinstance(part, CompletionPart) else None
        generation = idle if part is None else part.job.generation
        ended = engine.ended.get(index) if part is None else None
        owner = 0 if ended is None else ended.owner
        if part is not None:
            owner = served.owner(part.job.exchange.request)
        is_own = owner in (0, served.owner(request))
        slot = slot_json(served, index, generation, part, counts, ended, shows_text=is_own)
        slot |= _last_miss(served, request, index)
        yield msgspec.Raw(msgspec.json.encode(slot))


def with_slots(served: ServedModel, exchange: Exchange, send: Callable[[list[msgspec.Raw]], None]) -> None:
    """Call `send` with the JSON of all slots: now, or, if their prompts are long, slot by slot, so that other requests
    are served in between."""
    engine = _engine(served)
    slots = _slots(served, exchange.request)
    if sum(counts.n_tokens for counts in engine.slots()) <= TOKENS_INLINE_MAX:
        send(list(slots))
    else:
        served.service.spawn(exchange, _collect(slots, send))


async def _collect(slots: Iterator[msgspec.Raw], send: Callable[[list[msgspec.Raw]], None]) -> None:
    entries = []
    for slot in slots:
        entries.append(slot)
        await asyncio.sleep(0)
    send(entries)


def listing(served: ServedModel, exchange: Exchange) -> None:
    """GET /slots. It does not wake a model that sleeps, whose slots are idle and empty, because pages that show it poll
    it all the time."""
    if not served.service.settings.endpoint_slots:
        raise ApiError(501, "This server does not support slots endpoint. Start it with `--slots`")
    if not served.accepts:
        raise served.not_ready()
    _engine(served)
    if exchange.request.query.get("fail_on_no_slot", "0") not in ("", "0") and served.n_idle_slots == 0:
        raise ApiError(503, "no slot available")
    with_slots(served, exchange, lambda entries: exchange.send(Response(200, msgspec.json.encode(entries))))
