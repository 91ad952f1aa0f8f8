"""The table of all metrics except histograms: name, kind, help text, and the source of the value.

Pure data over a model's Snapshot, or over the Service; prometheus.py writes it, and adds the label of the model. A
source returns a number, or a number for each set of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from llamad.api.native.snapshot import Labels, Snapshot
from llamad.api.service.known_prompts import REASONS as MISS_REASONS
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.base.clock import clock_us
from llamad.models.host_state import State

S = TypeVar("S", contravariant=True)


def reloaded_items(service: Service) -> dict[Labels, int]:
    reloads = service.metrics.reloads
    return {(("item", item),): int(item not in reloads.failed) for item in reloads.items}


def certificate_expiry(service: Service) -> dict[Labels, int]:
    expiry = service.metrics.reloads.certificate_expiry
    return {} if expiry is None else {(): int(expiry)}


def requests(service: Service) -> dict[Labels, int]:
    counts = sorted(service.metrics.requests.items())
    return {(("endpoint", route), ("status", str(status))): n for (route, status), n in counts}


Value = float | Mapping[Labels, float]


class Metric(NamedTuple, Generic[S]):
    kind: Literal["counter", "gauge"]
    name: str
    help: str
    read: Callable[[S], Value]


class ModelSection:
    """Metrics of each model for which a condition holds."""

    def __init__(self, is_there: Callable[[ServedModel], bool], *metrics: Metric[Snapshot]) -> None:
        self.is_there = is_there
        self.metrics = metrics


class SharedSection:
    """Metrics of all models together, if a condition holds."""

    def __init__(
        self, *metrics: Metric[Service], is_there: Callable[[Service], bool] = lambda service: True
    ) -> None:
        self.is_there = is_there
        self.metrics = metrics


def _reader(source: str | Callable[[S], Value]) -> Callable[[Any], Value]:
    """Return the function that reads a source. A text with a dot is the path of an attribute of the snapshot, or of the
    service. Other texts are counters of the engine; those of microseconds are read in seconds."""
    if not isinstance(source, str):
        return source
    if "." in source:
        return attrgetter(source)
    if source.endswith(("_us", "_us_max")):
        return lambda one: one.seconds(source)
    return lambda one: one.stats[source]


def counter(name: str, help: str, source: str | Callable[[S], Value]) -> Metric[S]:
    return Metric("counter", name, help, _reader(source))


def gauge(name: str, help: str, source: str | Callable[[S], Value]) -> Metric[S]:
    return Metric("gauge", name, help, _reader(source))


def _generates(served: ServedModel) -> bool:
    return served.host.model is not None and served.host.engine is not None


ENGINE_STATE = ModelSection(
    lambda served: True,
    gauge("llamad:engine_up", "1 while an engine serves.", lambda one: int(one.host.state is State.READY)),
    gauge(
        "llamad:engine_failed",
        "1 if the engine has failed and is not started again.",
        lambda one: int(one.host.state is State.FAILED),
    ),
    gauge(
        "llamad:engine_sleeping",
        "1 while the model sleeps, until a request wakes it.",
        lambda one: int(one.host.state is State.SLEEPING),
    ),
    gauge(
        "llamad:requests_waking",
        "Requests that wait until the model is loaded again.",
        lambda one: len(one.served.waiting),
    ),
    counter("llamad:engine_restarts_total", "Restarts of the engine.", "host.restarts.n_total"),
    counter(
        "llamad:requests_resumed_total",
        "Requests that went on in another engine, because theirs had ended unexpectedly.",
        lambda one: one.host.engine.resumption.n_resumed if one.host.engine is not None else 0,
    ),
)

MEMORY = SharedSection(
    gauge(
        "llamad:request_memory_bytes",
        "Memory that requests hold: bodies, decoded values, prompts, grammars.",
        "budget.n_bytes",
    ),
    gauge(
        "llamad:request_memory_max_bytes",
        "The limit of the memory that requests hold (--bodies-max-bytes).",
        "budget.bytes_max",
    ),
    counter(
        "llamad:request_memory_refused_total",
        "Requests refused because others held the memory.",
        "budget.n_refused",
    ),
)

# Embedded texts are prompts, too.
COMPUTED = ModelSection(
    lambda served: _generates(served) or served.host.embedder is not None,
    counter(
        "llamacpp:prompt_tokens_total",
        "Number of prompt tokens processed.",
        lambda one: one.generated("n_prompt_tokens") + one.embedded.n_tokens,
    ),
    counter(
        "llamacpp:prompt_tokens_cached_total",
        "Number of prompt tokens reused from the cache.",
        lambda one: one.generated("n_reused"),
    ),
    counter(
        "llamacpp:prompt_seconds_total",
        "Time spent on prompts.",
        lambda one: one.generated("prompt_us") + one.embedded.seconds,
    ),
    counter(
        "llamacpp:tokens_predicted_total",
        "Number of generation tokens processed.",
        lambda one: one.generated("n_predicted"),
    ),
    counter(
        "llamacpp:tokens_predicted_seconds_total",
        "Time spent generating.",
        lambda one: one.generated("predict_us"),
    ),
    counter(
        "llamacpp:n_decode_total",
        "Number of llama_decode() calls.",
        lambda one: one.generated("n_decodes") + one.embedded.n_batches,
    ),
)

ENGINE = ModelSection(
    _generates,
    counter("llamacpp:n_tokens_max", "Largest observed sequence length.", "n_tokens_max"),
    counter("llamacpp:spec_decode_num_draft_tokens_total", "Drafted tokens that were verified.", "n_drafted"),
    counter(
        "llamacpp:spec_decode_num_accepted_tokens_total", "Drafted tokens that were right.", "n_accepted"
    ),
    counter("llamacpp:spec_decode_num_drafts_total", "Drafts verified.", "n_drafts"),
    counter(
        "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
        "Drafted tokens that were right, by their position in the draft.",
        Snapshot.accepted_at,
    ),
    counter("llamad:loops_total", "Answers that the loop guard has ended.", "n_loops"),
    counter("llamad:aborted_total", "Tasks aborted because the client or server stopped.", "n_aborted"),
    counter("llamad:evicted_tokens_total", "Cached tokens dropped for another prompt.", "n_evicted"),
    counter(
        "llamad:decode_failures_total",
        "Decodes that failed, except those without room in the KV cache.",
        "n_decode_failures",
    ),
    counter(
        "llamad:decodes_refused_total",
        "Decodes repeated because the KV cache had no room for them.",
        "n_refused",
    ),
    counter(
        "llamad:deferred_picks_total",
        "Tokens sampled after their step, because their grammar was slow.",
        "n_deferred",
    ),
    counter(
        "llamad:deferred_pick_seconds_total",
        "Time that streams with slow grammars did not decode.",
        "deferred_us",
    ),
    counter(
        "llamad:suspensions_total",
        "Running requests suspended because the shared KV cache was full.",
        "n_suspensions",
    ),
    counter(
        "llamad:recomputed_tokens_total",
        "Tokens of suspended requests that had no room in host memory and were computed again.",
        "n_recomputed",
    ),
    counter("llamad:steps_total", "Engine steps.", "n_steps"),
    counter(
        "llamad:steps_landed_total", "Engine steps that sampled while logits were still arriving.", "n_landed"
    ),
    counter("llamad:step_plan_seconds_total", "Engine time: admitting and planning.", "plan_us"),
    counter("llamad:step_decode_seconds_total", "Engine time: decoding.", "decode_us"),
    counter("llamad:step_wait_seconds_total", "Engine time: waiting for the device.", "wait_us"),
    counter("llamad:step_sample_seconds_total", "Engine time: sampling.", "sample_us"),
    counter("llamad:step_emit_seconds_total", "Engine time: detokenizing and events.", "emit_us"),
    counter("llamad:wakes_total", "Wake-ups of the event loop.", "n_wakes"),
    counter(
        "llamad:step_wake_seconds_total",
        "Time from the engine's wake-up until the event loop took its events.",
        "wake_us",
    ),
    counter("llamad:step_write_seconds_total", "Event loop time: writing responses.", "write_us"),
    gauge(
        "llamacpp:prompt_tokens_seconds",
        "Average prompt throughput in tokens/s.",
        lambda one: one.stats["n_prompt_tokens"] / (one.seconds("prompt_us") or 1.0),
    ),
    gauge(
        "llamacpp:predicted_tokens_seconds",
        "Average generation throughput in tokens/s.",
        lambda one: one.stats["n_predicted"] / (one.seconds("predict_us") or 1.0),
    ),
    gauge(
        "llamacpp:kv_cache_usage_ratio",
        "KV-cache usage. 1 means 100 percent usage.",
        lambda one: one.n_cached() / one.n_ctx,
    ),
    gauge("llamacpp:kv_cache_tokens", "KV-cache tokens.", lambda one: one.n_cached()),
    gauge(
        "llamad:kv_cache_running_ratio",
        "KV-cache usage of running requests; what idle slots keep is free for others.",
        lambda one: min(1.0, one.n_cached(only_running=True) / one.n_ctx),
    ),
    gauge(
        "llamacpp:requests_processing",
        "Number of requests processing.",
        lambda one: sum(slot.is_busy for slot in one.slots),
    ),
    gauge("llamacpp:requests_deferred", "Number of requests deferred.", "engine.n_waiting"),
    gauge("llamad:requests_suspended", "Number of requests suspended.", "n_suspended"),
    gauge(
        "llamacpp:n_busy_slots_per_decode",
        "Average number of busy slots per llama_decode() call.",
        lambda one: one.stats["n_busy"] / max(one.stats["n_decodes"], 1),
    ),
    gauge(
        "llamad:last_step_age_seconds",
        "Time since the engine's last step; grows while it is idle, or stuck.",
        lambda one: (clock_us() - one.stats["t_last_step_us"]) / 1e6,
    ),
    gauge(
        "llamad:lora_requests_info",
        "Named adapters of running and waiting requests.",
        Snapshot.adapters_in_use,
    ),
    counter("llamad:state_saves_total", "Slot states saved.", "n_saves"),
    counter("llamad:state_restores_total", "Slot states restored.", "n_restores"),
    counter(
        "llamad:state_stall_seconds_total",
        "Time that streams waited while the states of other slots were saved or restored.",
        "state_us",
    ),
    gauge("llamad:state_stall_seconds_max", "Longest wait for one saved or restored state.", "state_us_max"),
)

PROMPT_CACHE = ModelSection(
    lambda served: _generates(served) and served.settings.cache_ram != 0,
    counter("llamad:prompt_cache_saves_total", "Prompts saved to host memory.", "cache_saves"),
    counter("llamad:prompt_cache_hits_total", "Prompts restored to a slot.", "cache_hits"),
    counter("llamad:prompt_cache_dropped_total", "Prompts evicted.", "cache_dropped"),
    counter(
        "llamad:prompt_cache_restored_tokens_total",
        "Prompt tokens restored instead of computed.",
        "cache_restored",
    ),
    counter("llamad:prompt_cache_seconds_total", "Engine time: saving and restoring prompts.", "cache_us"),
    gauge("llamad:prompt_cache_entries", "Prompts in host memory.", "cache_entries"),
    gauge("llamad:prompt_cache_bytes", "Size of the prompts in host memory.", "cache_bytes"),
    gauge("llamad:prompt_cache_buffer_bytes", "Size of the buffer for whole states.", "cache_buffer"),
    gauge("llamad:prompt_cache_seconds_max", "Longest save or restore of a prompt.", "cache_us_max"),
    counter("llamad:prompt_cache_device_hits_total", "Prompts restored from a device.", "device_hits"),
    gauge("llamad:prompt_cache_device_bytes", "Size of the copies of prompts on devices.", "device_bytes"),
)

CHECKPOINTS = ModelSection(
    lambda served: _generates(served) and served.settings.ctx_checkpoints != 0,
    counter("llamad:checkpoints_made_total", "Context checkpoints made.", "checkpoint_made"),
    counter(
        "llamad:checkpoints_restored_total",
        "Context checkpoints from which a prompt was continued.",
        "checkpoint_used",
    ),
    counter(
        "llamad:checkpoints_dropped_total", "Context checkpoints dropped to make room.", "checkpoint_dropped"
    ),
    counter(
        "llamad:checkpoint_seconds_total", "Engine time: making and restoring checkpoints.", "checkpoint_us"
    ),
    gauge("llamad:checkpoints", "Context checkpoints held.", "checkpoints"),
    gauge("llamad:checkpoint_bytes", "Size of the context checkpoints.", "checkpoint_bytes"),
    gauge(
        "llamad:checkpoint_seconds_max", "Longest time to make or restore a checkpoint.", "checkpoint_us_max"
    ),
)

DISK = SharedSection(
    counter("llamad:disk_cache_writes_total", "Prompts written to --cache-disk.", "disk.counts.n_writes"),
    counter(
        "llamad:disk_cache_written_bytes_total",
        "Bytes written to --cache-disk.",
        "disk.counts.n_bytes_written",
    ),
    counter("llamad:disk_cache_hits_total", "Prompts read from --cache-disk.", "disk.counts.n_reads"),
    counter(
        "llamad:disk_cache_read_tokens_total",
        "Tokens of the prompts read from --cache-disk.",
        "disk.counts.n_tokens_read",
    ),
    counter(
        "llamad:disk_cache_late_total",
        "Prompts that were computed because reading them took too long.",
        "disk.counts.n_late",
    ),
    counter(
        "llamad:disk_cache_removed_total", "Prompts removed to make room for others.", "disk.counts.n_evicted"
    ),
    counter("llamad:disk_cache_broken_total", "Broken files removed.", "disk.counts.n_broken"),
    counter(
        "llamad:disk_cache_faults_total",
        "Times that the folder could not be read or written.",
        "disk.n_faults",
    ),
    gauge("llamad:disk_cache_entries", "Prompts in --cache-disk.", "disk.n_entries"),
    gauge("llamad:disk_cache_bytes", "Size of the prompts in --cache-disk.", "disk.index.n_bytes"),
    is_there=lambda service: service.disk is not None,
)

VECTORS = ModelSection(
    lambda served: served.host.embedder is not None,
    counter("llamad:vector_texts_total", "Texts embedded, ranked or classified.", "embedder.counts.n_texts"),
    counter("llamad:vector_tokens_total", "Tokens embedded or scored.", "embedder.counts.n_tokens"),
    counter("llamad:vector_batches_total", "Batches embedded or scored.", "embedder.counts.n_batches"),
    counter("llamad:vector_failures_total", "Batches of texts that failed.", "embedder.counts.n_failures"),
    counter("llamad:vector_seconds_total", "Time spent on embeddings and scores.", "embedder.counts.seconds"),
    gauge(
        "llamad:vector_requests", "Embedding, rerank and classify requests in progress.", "embedder.n_jobs"
    ),
    gauge("llamad:vector_texts_waiting", "Texts to embed or score that wait.", "embedder.n_texts_waiting"),
)


def by_reason(counts: Mapping[str, int]) -> dict[Labels, int]:
    return {(("reason", reason),): counts.get(reason, 0) for reason in MISS_REASONS}


MISSES = ModelSection(
    lambda served: served.host.engine is not None,
    counter(
        "llamad:cache_misses_total",
        "Requests that computed at least 64 tokens again that their key knows.",
        lambda one: by_reason(one.served.metrics.cache_misses),
    ),
    counter(
        "llamad:cache_missed_tokens_total",
        "Known tokens that were computed again.",
        lambda one: by_reason(one.served.metrics.cache_missed_tokens),
    ),
)

STATES = ModelSection(
    lambda served: True,
    counter("llamad:session_saves_total", "Sessions saved.", "served.sessions.n_saves"),
    counter(
        "llamad:session_restores_total", "Sessions restored, also from files.", "served.sessions.n_restores"
    ),
    counter(
        "llamad:session_refused_total",
        "Sessions not saved because there was no room.",
        "served.sessions.n_refused",
    ),
    counter("llamad:session_evicted_total", "Sessions evicted.", "served.sessions.n_evicted"),
    counter(
        "llamad:state_refused_total",
        "States rejected because the room for states in transit was full.",
        "served.room.n_refused",
    ),
    gauge("llamad:sessions", "Sessions held.", lambda one: len(one.served.sessions)),
    gauge(
        "llamad:session_bytes",
        "Size of all sessions, including those being saved.",
        "served.sessions.n_bytes",
    ),
    gauge(
        "llamad:state_bytes",
        "Bytes of states in transit: request bodies, files, responses.",
        "served.room.n_bytes",
    ),
    gauge(
        "llamad:state_actions",
        "State actions running or waiting for their slot.",
        lambda one: len(one.served.state_actions),
    ),
    gauge(
        "llamad:counted_texts",
        "Long texts of /tokenize running or waiting.",
        lambda one: len(one.served.counted),
    ),
)

REQUESTS = SharedSection(
    counter("llamad:reloads_total", "Reloads (SIGHUP).", "metrics.reloads.n_total"),
    counter(
        "llamad:reload_failures_total", "Reloads that kept an old setting.", "metrics.reloads.n_failures"
    ),
    gauge("llamad:reload_ok", "0 if the last reload kept the old version of this item.", reloaded_items),
    gauge(
        "llamad:certificate_expiry_timestamp_seconds",
        "When the first certificate of the chain expires.",
        certificate_expiry,
    ),
    counter(
        "llamad:requests_total", "Responses by endpoint and status; 499: the client disconnected.", requests
    ),
    counter(
        "llamad:clients_gone_total", "Requests whose client disconnected early.", "metrics.n_client_gone"
    ),
)

SECTIONS = (
    ENGINE_STATE,
    MEMORY,
    COMPUTED,
    ENGINE,
    PROMPT_CACHE,
    DISK,
    CHECKPOINTS,
    VECTORS,
    MISSES,
    STATES,
    REQUESTS,
)
