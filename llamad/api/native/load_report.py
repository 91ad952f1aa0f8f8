"""GET /v1/loads: how busy the models are, in SGLang's format, for gateways that distribute requests over servers.

Runs on the event loop and answers from what the engine has published; never waits for the engine.
"""

from __future__ import annotations

import time

import msgspec

from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host_state import State


class Load(msgspec.Struct):
    """The load of one model. SGLang lists one for each data-parallel rank; here the rank is always 0."""

    model: str
    num_running_reqs: int
    num_waiting_reqs: int
    num_total_reqs: int
    num_free_slots: int
    max_running_requests: int  # the number of slots
    utilization: float  # the share of slots that are busy
    num_used_tokens: int  # tokens of running requests in the KV cache
    # Tokens of idle slots in the KV cache; a request with this prefix need not compute them.
    num_cached_tokens: int
    max_total_num_tokens: int
    token_usage: float  # the share of tokens that are used
    cache_hit_rate: float  # the share of all prompt tokens since the start that were cached
    dp_rank: int = 0


class Totals(msgspec.Struct):
    total_running_reqs: int
    total_waiting_reqs: int
    total_reqs: int
    total_used_tokens: int
    avg_token_usage: float
    avg_utilization: float


class Loads(msgspec.Struct):
    timestamp: str
    version: str
    loads: list[Load]
    aggregate: Totals
    dp_rank_count: int = 1


def load_of(served: ServedModel) -> Load:
    """Return the load of a model. Raises ApiError if it was never loaded, or has failed."""
    model, engine, embedder = served.described(), served.host.engine, served.host.embedder
    n_slots = served.settings.n_parallel
    if engine is not None:
        slots, stats = engine.slots(), engine.stats()
        n_running, n_waiting, n_free = engine.n_running, engine.n_waiting, served.n_idle_slots
        n_used = sum(slot.n_tokens for slot in slots if slot.is_busy)
        n_cached = sum(slot.n_tokens for slot in slots if not slot.is_busy)
        n_reused, n_computed = stats["n_reused"], stats["n_prompt_tokens"]
    else:  # a model for embeddings only has no slots; its requests count instead
        n_jobs = embedder.n_jobs if embedder is not None else 0
        n_running, n_waiting = min(n_jobs, n_slots), max(0, n_jobs - n_slots)
        n_free = n_slots - n_running
        n_used = n_cached = n_reused = n_computed = 0
    n_waiting += len(served.preparing) + len(served.waiting)
    return Load(
        model=served.name,
        num_running_reqs=n_running,
        num_waiting_reqs=n_waiting,
        num_total_reqs=n_running + n_waiting,
        num_free_slots=n_free,
        max_running_requests=n_slots,
        utilization=(n_slots - n_free) / n_slots,
        num_used_tokens=n_used,
        num_cached_tokens=n_cached,
        max_total_num_tokens=model.n_ctx,
        # A prefix that slots share is held once but counted for each of them.
        token_usage=min(1.0, n_used / model.n_ctx),
        cache_hit_rate=n_reused / max(1, n_reused + n_computed),
    )


def handle(models: ModelTable, exchange: Exchange) -> None:
    """GET /v1/loads."""
    served = [one for one in models if not models.is_router or one.host.state is State.READY]
    loads = [load_of(one) for one in served]
    # Variants of a model share one engine, whose requests must not be added twice.
    each = list({one.host: load for one, load in zip(served, loads, strict=True)}.values())
    n = max(1, len(each))
    totals = Totals(
        total_running_reqs=sum(one.num_running_reqs for one in each),
        total_waiting_reqs=sum(one.num_waiting_reqs for one in each),
        total_reqs=sum(one.num_total_reqs for one in each),
        total_used_tokens=sum(one.num_used_tokens for one in each),
        avg_token_usage=sum(one.token_usage for one in each) / n,
        avg_utilization=sum(one.utilization for one in each) / n,
    )
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    body = Loads(stamp, models.service.build_info, loads, totals)
    exchange.send(Response(200, msgspec.json.encode(body)))
