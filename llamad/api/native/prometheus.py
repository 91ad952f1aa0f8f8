"""Owns GET /metrics: all counters in Prometheus's text format.

Runs on the event loop; reads the engine's counters without waiting for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from llamad.api.request.errors import ApiError
from llamad.api.service.service import Service
from llamad.base.clock import clock_us
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host import State

# Of speculative decoding, which llamad does not have: always 0.
SPECULATIVE = (
    ("llamacpp:spec_decode_num_draft_tokens_total", "Draft tokens generated.", 0),
    ("llamacpp:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.", 0),
    ("llamacpp:spec_decode_num_drafts_total", "Drafts verified.", 0),
)


def _plain(kind: str, name: str, help: str, value: float) -> Iterable[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    yield f"{name} {value:.9g}" if isinstance(value, float) else f"{name} {value}"


def _engine_lines(service: Service) -> Iterable[str]:
    model, engine = service.host.model, service.host.engine
    if model is None or engine is None:
        return
    stats = engine.stats()
    slots = engine.slots()
    n_tokens = sum(slot[1] for slot in slots)
    prompt_s, predict_s = stats["prompt_us"] / 1e6, stats["predict_us"] / 1e6
    n_prompt, n_predicted = stats["n_prompt_tokens"], stats["n_predicted"]
    n_running = sum(slot[0] != 0 for slot in slots)
    counters = (
        ("llamacpp:prompt_tokens_total", "Number of prompt tokens processed.", n_prompt),
        (
            "llamacpp:prompt_tokens_cached_total",
            "Number of prompt tokens reused from the cache.",
            stats["n_reused"],
        ),
        ("llamacpp:prompt_seconds_total", "Time spent on prompts.", prompt_s),
        ("llamacpp:tokens_predicted_total", "Number of generation tokens processed.", n_predicted),
        ("llamacpp:tokens_predicted_seconds_total", "Time spent generating.", predict_s),
        ("llamacpp:n_decode_total", "Number of llama_decode() calls.", stats["n_decodes"]),
        ("llamacpp:n_tokens_max", "Largest observed sequence length.", stats["n_tokens_max"]),
        *SPECULATIVE,
        (
            "llamad:aborted_total",
            "Tasks dropped: client gone or server stopped.",
            stats["n_aborted"],
        ),
        ("llamad:evicted_tokens_total", "Cached tokens dropped for another prompt.", stats["n_evicted"]),
        ("llamad:reused_tokens_total", "Prompt tokens taken from the prefix cache.", stats["n_reused"]),
        (
            "llamad:decode_failures_total",
            "Decodes that failed for another reason than room.",
            stats["n_decode_failures"],
        ),
        (
            "llamad:decodes_refused_total",
            "Decodes repeated because the KV cache had no room for them.",
            stats["n_refused"],
        ),
        (
            "llamad:deferred_picks_total",
            "Picks that a grammar took out of their step.",
            stats["n_deferred"],
        ),
        (
            "llamad:deferred_pick_seconds_total",
            "Time that their streams sat out.",
            stats["deferred_us"] / 1e6,
        ),
        (
            "llamad:suspensions_total",
            "Running requests suspended because the shared KV cache was full.",
            stats["n_suspensions"],
        ),
        (
            "llamad:recomputed_tokens_total",
            "Their tokens that had no room in host memory and were computed again.",
            stats["n_recomputed"],
        ),
        ("llamad:steps_total", "Engine steps.", stats["n_steps"]),
        (
            "llamad:steps_landed_total",
            "Engine steps that sampled while logits were still arriving.",
            stats["n_landed"],
        ),
        ("llamad:step_plan_seconds_total", "Engine time: admitting and planning.", stats["plan_us"] / 1e6),
        ("llamad:step_decode_seconds_total", "Engine time: decoding.", stats["decode_us"] / 1e6),
        ("llamad:step_wait_seconds_total", "Engine time: waiting for the device.", stats["wait_us"] / 1e6),
        ("llamad:step_sample_seconds_total", "Engine time: sampling.", stats["sample_us"] / 1e6),
        ("llamad:step_emit_seconds_total", "Engine time: detokenizing and events.", stats["emit_us"] / 1e6),
        ("llamad:wakes_total", "Wake-ups of the event loop.", stats["n_wakes"]),
        (
            "llamad:step_wake_seconds_total",
            "Time from the engine's wake-up until the event loop took its events.",
            stats["wake_us"] / 1e6,
        ),
        (
            "llamad:step_write_seconds_total",
            "Event loop time: writing responses.",
            stats["write_us"] / 1e6,
        ),
    )
    gauges = (
        (
            "llamacpp:prompt_tokens_seconds",
            "Average prompt throughput in tokens/s.",
            n_prompt / (prompt_s or 1.0),
        ),
        (
            "llamacpp:predicted_tokens_seconds",
            "Average generation throughput in tokens/s.",
            n_predicted / (predict_s or 1.0),
        ),
        (
            "llamacpp:kv_cache_usage_ratio",
            "KV-cache usage. 1 means 100 percent usage.",
            n_tokens / model.n_ctx,
        ),
        ("llamacpp:kv_cache_tokens", "KV-cache tokens.", n_tokens),
        (
            "llamad:kv_cache_running_ratio",
            "KV-cache usage of running requests; what idle slots keep is free for others.",
            # Slots that share a prefix hold it once and count it twice.
            min(1.0, sum(slot[1] for slot in slots if slot[0] != 0) / model.n_ctx),
        ),
        ("llamacpp:requests_processing", "Number of requests processing.", n_running),
        ("llamacpp:requests_deferred", "Number of requests deferred.", engine.n_waiting),
        ("llamad:requests_suspended", "Number of requests suspended.", stats["n_suspended"]),
        (
            "llamacpp:n_busy_slots_per_decode",
            "Average number of busy slots per llama_decode() call.",
            stats["n_busy"] / max(stats["n_decodes"], 1),
        ),
        (
            "llamad:last_step_age_seconds",
            "Time since the engine's last step; grows while it is idle, or stuck.",
            (clock_us() - stats["t_last_step_us"]) / 1e6,
        ),
    )
    for name, help, value in counters:
        yield from _plain("counter", name, help, value)
    for name, help, value in gauges:
        yield from _plain("gauge", name, help, value)


def _adapter_lines(service: Service) -> Iterable[str]:
    """The adapters that requests use, in vLLM's form, which endpoint pickers read. The value is the time, so that of
    two such lines the newer one counts."""
    engine = service.host.engine
    names = {one.info.id: one.file.name for one in service.host.adapters.list() if one.file.name}
    if engine is None or not names:
        return
    running: set[str] = set()
    waiting: set[str] = set()
    for one in engine.tasks.values():
        used = {names[number] for number, _ in one.task.adapters.uses if number in names}
        (running if one.slot >= 0 else waiting).update(used)
    name = "llamad:lora_requests_info"
    labels = (
        f'max_lora="{engine.n_slots}"',
        f'running_lora_adapters="{",".join(sorted(running))}"',
        f'waiting_lora_adapters="{",".join(sorted(waiting))}"',
    )
    yield f"# HELP {name} Named adapters of running and waiting requests."
    yield f"# TYPE {name} gauge"
    yield f"{name}{{{','.join(labels)}}} {time.time():.3f}"


def _life_lines(service: Service) -> Iterable[str]:
    """Of the engine process."""
    host = service.host
    yield from _plain(
        "gauge", "llamad:engine_up", "1 while an engine serves.", int(host.state is State.READY)
    )
    yield from _plain(
        "gauge",
        "llamad:engine_failed",
        "1 once the engine is not started again.",
        int(host.state is State.FAILED),
    )
    yield from _plain(
        "counter", "llamad:engine_restarts_total", "Engines started again.", host.restarts.n_total
    )


def _memory_lines(service: Service) -> Iterable[str]:
    """What requests hold (--bodies-max-bytes)."""
    budget = service.budget
    yield from _plain(
        "gauge",
        "llamad:request_memory_bytes",
        "Memory that requests hold: bodies, decoded values, prompts, grammars.",
        budget.n_bytes,
    )
    yield from _plain(
        "gauge", "llamad:request_memory_max_bytes", "Its limit (--bodies-max-bytes).", budget.bytes_max
    )
    yield from _plain(
        "counter",
        "llamad:request_memory_refused_total",
        "Requests refused because others held the memory.",
        budget.n_refused,
    )


def _cache_lines(service: Service) -> Iterable[str]:
    """The prompt cache in host memory (--cache-ram)."""
    if service.host.engine is None or service.settings.cache_ram == 0:
        return
    stats = service.host.engine.stats()
    for name, help, value in (
        (
            "llamad:prompt_cache_saves_total",
            "Prompts saved when their slot was needed.",
            stats["cache_saves"],
        ),
        ("llamad:prompt_cache_hits_total", "Prompts restored to a slot.", stats["cache_hits"]),
        ("llamad:prompt_cache_dropped_total", "Prompts evicted.", stats["cache_dropped"]),
        (
            "llamad:prompt_cache_restored_tokens_total",
            "Prompt tokens restored instead of computed.",
            stats["cache_restored"],
        ),
        (
            "llamad:prompt_cache_seconds_total",
            "Engine time: saving and restoring prompts.",
            stats["cache_us"] / 1e6,
        ),
    ):
        yield from _plain("counter", name, help, value)
    for name, help, value in (
        ("llamad:prompt_cache_entries", "Prompts in host memory.", stats["cache_entries"]),
        ("llamad:prompt_cache_bytes", "Their size.", stats["cache_bytes"]),
        (
            "llamad:prompt_cache_seconds_max",
            "The longest single save or restore.",
            stats["cache_us_max"] / 1e6,
        ),
    ):
        yield from _plain("gauge", name, help, value)


def _checkpoint_lines(service: Service) -> Iterable[str]:
    """Context checkpoints (--ctx-checkpoints)."""
    if service.host.engine is None or service.settings.ctx_checkpoints == 0:
        return
    stats = service.host.engine.stats()
    for name, help, value in (
        ("llamad:checkpoints_made_total", "Context checkpoints made.", stats["checkpoint_made"]),
        (
            "llamad:checkpoints_restored_total",
            "Checkpoints that a prompt went on from.",
            stats["checkpoint_used"],
        ),
        (
            "llamad:checkpoints_dropped_total",
            "Checkpoints dropped to make room.",
            stats["checkpoint_dropped"],
        ),
        (
            "llamad:checkpoint_seconds_total",
            "Engine time: making and restoring checkpoints.",
            stats["checkpoint_us"] / 1e6,
        ),
    ):
        yield from _plain("counter", name, help, value)
    for name, help, value in (
        ("llamad:checkpoints", "Context checkpoints held.", stats["checkpoints"]),
        ("llamad:checkpoint_bytes", "Their size.", stats["checkpoint_bytes"]),
        (
            "llamad:checkpoint_seconds_max",
            "The longest single one made or restored.",
            stats["checkpoint_us_max"] / 1e6,
        ),
    ):
        yield from _plain("gauge", name, help, value)


def _vector_lines(service: Service) -> Iterable[str]:
    embedder = service.host.embedder
    if embedder is None:
        return
    counts = embedder.counts
    for name, help, value in (
        ("llamad:vector_texts_total", "Texts embedded, ranked or classified.", counts.n_texts),
        ("llamad:vector_tokens_total", "Tokens of those texts.", counts.n_tokens),
        ("llamad:vector_batches_total", "Batches of those texts.", counts.n_batches),
        ("llamad:vector_failures_total", "Batches that failed.", counts.n_failures),
        ("llamad:vector_seconds_total", "Time spent computing them.", counts.seconds),
    ):
        yield from _plain("counter", name, help, value)
    yield from _plain(
        "gauge",
        "llamad:vector_requests",
        "Embedding, rerank and classify requests in progress.",
        embedder.n_jobs,
    )
    yield from _plain(
        "gauge", "llamad:vector_texts_waiting", "Texts not yet started.", embedder.n_texts_waiting
    )


def _stall_lines(service: Service) -> Iterable[str]:
    """What saving and restoring states costs the other streams."""
    engine = service.host.engine
    if engine is None:
        return
    stats = engine.stats()
    for name, help, value in (
        ("llamad:state_saves_total", "Slot states saved.", stats["n_saves"]),
        ("llamad:state_restores_total", "Slot states restored.", stats["n_restores"]),
        (
            "llamad:state_stall_seconds_total",
            "Time that other streams stood still for them.",
            stats["state_us"] / 1e6,
        ),
    ):
        yield from _plain("counter", name, help, value)
    longest = stats["state_us_max"] / 1e6
    yield from _plain("gauge", "llamad:state_stall_seconds_max", "The longest single stall.", longest)


def _state_lines(service: Service) -> Iterable[str]:
    sessions, room = service.sessions, service.room
    yield from _stall_lines(service)
    for name, help, value in (
        ("llamad:session_saves_total", "Sessions saved.", sessions.n_saves),
        ("llamad:session_restores_total", "Sessions restored, also from files.", sessions.n_restores),
        ("llamad:session_refused_total", "Saves rejected for lack of room.", sessions.n_refused),
        ("llamad:session_evicted_total", "Sessions evicted.", sessions.n_evicted),
        (
            "llamad:state_refused_total",
            "States rejected because others were in transit.",
            room.n_refused,
        ),
    ):
        yield from _plain("counter", name, help, value)
    for name, help, value in (
        ("llamad:sessions", "Sessions held.", len(sessions)),
        ("llamad:session_bytes", "Size of all sessions, with those being saved.", sessions.n_bytes),
        ("llamad:state_bytes", "Bytes of states in transit: request bodies, files, responses.", room.n_bytes),
        (
            "llamad:state_actions",
            "State actions running or waiting for their slot.",
            len(service.state_actions),
        ),
        ("llamad:counted_texts", "Long texts of /tokenize running or waiting.", len(service.texts.counted)),
    ):
        yield from _plain("gauge", name, help, value)


def _reload_lines(service: Service) -> Iterable[str]:
    reloads = service.metrics.reloads
    yield from _plain("counter", "llamad:reloads_total", "Reloads (SIGHUP).", reloads.n_total)
    yield from _plain(
        "counter",
        "llamad:reload_failures_total",
        "Reloads that kept an old setting.",
        reloads.n_failures,
    )
    if reloads.items:
        name = "llamad:reload_ok"
        yield f"# HELP {name} 0: the last reload kept the old one of this item."
        yield f"# TYPE {name} gauge"
        for item in reloads.items:
            yield f'{name}{{item="{item}"}} {int(item not in reloads.failed)}'
    if reloads.certificate_expiry is not None:
        yield from _plain(
            "gauge",
            "llamad:certificate_expiry_timestamp_seconds",
            "When the first certificate of the chain expires.",
            int(reloads.certificate_expiry),
        )


def handle(service: Service, exchange: Exchange) -> None:
    """GET /metrics."""
    if not service.settings.endpoint_metrics:
        raise ApiError(501, "This server does not support metrics endpoint. Start it with `--metrics`")
    metrics = service.metrics
    lines = [
        *_life_lines(service),
        *_memory_lines(service),
        *_engine_lines(service),
        *_adapter_lines(service),
        *_cache_lines(service),
        *_checkpoint_lines(service),
        *_vector_lines(service),
        *_state_lines(service),
        *_reload_lines(service),
    ]
    name = "llamad:requests_total"
    lines += [
        f"# HELP {name} Responses by endpoint and status; 499: the client left.",
        f"# TYPE {name} counter",
    ]
    for (route, status), n in sorted(metrics.requests.items()):
        lines.append(f'{name}{{endpoint="{route}",status="{status}"}} {n}')
    lines += _plain(
        "counter", "llamad:clients_gone_total", "Requests whose client left early.", metrics.n_client_gone
    )
    for histogram in metrics.histograms:
        lines += histogram.lines()
    text = "\n".join(lines) + "\n"
    started = ("Process-Start-Time-Unix", str(service.t_created))
    exchange.send(
        Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8", headers=(started,))
    )
