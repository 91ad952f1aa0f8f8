"""Surveys a model without loading its weights: `python -m llamad.engine.survey` reads pickled settings from standard
input and writes a Survey or a Refusal as JSON to standard output.

It is a separate process, because llama.cpp may abort on a file, and the caller must be able to report that.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from llamad._llama import ffi, lib
from llamad.engine.drafts.lookup_files import open_dynamic, open_static
from llamad.engine.fit.measure import Device
from llamad.engine.fit.plan import Planner, UnfitLoadError
from llamad.engine.fit.planned import Plan, summary
from llamad.engine.fit.usage import Usage
from llamad.engine.loading import memory
from llamad.engine.loading.draft import vet_draft
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading, vet
from llamad.engine.loading.threads import compute_threads
from llamad.flags import engine_settings
from llamad.protocol.control_messages import Loaded
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

_LINE_MAX = 8192
_ERROR = 4  # ggml's level


class Cache(msgspec.Struct, frozen=True):
    """The caches of all slots, in bytes."""

    token: int  # for each token of the context
    fixed: int  # bytes that do not grow with the context: sliding windows and recurrent states


class Alternative(msgspec.Struct, frozen=True):
    """Other flags with which the model would fit."""

    flags: str
    n_ctx: int
    usage: Usage


class Survey(msgspec.Struct, frozen=True, tag="survey"):
    """The model that would be served, and the memory that it would take."""

    loaded: Loaded
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_threads_batch: int
    devices: list[Device]  # the devices that it would use in addition to the CPU
    n_layers: int  # including the output layer
    layers_offloaded: int
    usage: Usage
    cache: Cache | None  # None: the model does not generate
    choice: str  # what --fit chose, and why; empty: it chose nothing
    alternatives: list[Alternative]
    prompt_cache_bytes: int  # the limit; -1: no limit
    host_free_bytes: int
    warnings: list[str]  # about flags without effect on this machine, and about memory


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    reason: str
    errors: list[str]  # errors that llama.cpp logged
    alternatives: list[Alternative] = []


def _log(level_min: int = 0) -> str:
    """Return everything that llama.cpp has logged since the last call."""
    buffer, level = ffi.new("char[]", _LINE_MAX), ffi.new("int32_t *")
    logged = bytearray()
    while (n := lib.llamad_log_read(buffer, _LINE_MAX, level)) >= 0:
        if level[0] >= level_min:
            logged += bytes(ffi.buffer(buffer, n))
    return logged.decode("utf-8", "replace")


def _planned(settings: ModelSettings, n_threads: int, host_free: int) -> Plan:
    return Planner(settings, n_threads, always=True, host_free=host_free).plan()


def alternatives(settings: ModelSettings, n_threads: int, host_free: int) -> list[Alternative]:
    """Return flags that would fit instead of the model's whole context, or of the given flags."""
    q8 = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    free = {"fit": "on", "keeps_ctx": False, "n_ctx": 0}
    tries: list[tuple[str, dict[str, object]]] = [("", {**free, "n_gpu_layers": settings.n_gpu_layers})]
    if settings.flash_attn != "off" and settings.cache_type_k == settings.cache_type_v == "f16":
        tries.append(("-ctk q8_0 -ctv q8_0", {**free, **q8}))
    tries.append(("", {"fit": "on", "keeps_ctx": True, "n_gpu_layers": -1}))
    fitting: list[Alternative] = []
    for flags, changes in tries:
        try:
            plan = _planned(msgspec.structs.replace(settings, **changes), n_threads, host_free)
        except LoadError:
            continue
        assert plan.shape is not None
        assert plan.usage is not None
        n_ctx = plan.settings.n_ctx or plan.shape.n_ctx_train
        words = [flags, f"-c {n_ctx}", *([f"-ngl {plan.choice.n_layers}"] if plan.choice.shares else [])]
        text = " ".join(filter(None, words))
        if plan.choice.n_part:
            text += " -ot " + ",".join(f"{one.pattern}={one.buffer}" for one in plan.settings.override_tensor)
        if text not in [one.flags for one in fitting]:
            fitting.append(Alternative(text, n_ctx, plan.usage))
    return fitting


def _cache(settings: ModelSettings, n_threads: int, usage: Usage, n_ctx: int) -> Cache:
    """Return how much of the caches grows with the context, measured with a second context that is twice as long."""
    longer = msgspec.structs.replace(settings, n_ctx=2 * n_ctx, fit="off", keeps_ctx=True)
    try:
        grown = Planner(longer, n_threads, always=True).usage()
    except LoadError:
        return Cache(0, usage.total.cache)
    token = (grown.total.cache - usage.total.cache) // n_ctx
    return Cache(token, usage.total.cache - token * n_ctx)


def survey(settings: ModelSettings, n_threads: int, host_free: int) -> Survey:
    """Survey the model. Raises LoadError."""
    plan = _planned(settings, n_threads, host_free)
    assert plan.usage is not None
    assert plan.shape is not None
    loaded = load(plan.settings, n_threads, Loading(), is_survey=True)
    for open_file in (open_static, open_dynamic):
        open_file(settings, loaded.vocab.n_vocab)
    cache_ram = memory.cache_ram_bytes(settings)
    n_layers = plan.shape.n_layers + 1
    n_gpu_layers = plan.settings.n_gpu_layers
    cache = _cache(plan.settings, n_threads, plan.usage, loaded.n_ctx) if loaded.can_generate else None
    return Survey(
        loaded=loaded.description(),
        n_batch=loaded.n_batch,
        n_ubatch=loaded.n_ubatch,
        n_threads=n_threads,
        n_threads_batch=settings.n_threads_batch or n_threads,
        devices=plan.devices,
        n_layers=n_layers,
        layers_offloaded=(n_layers if n_gpu_layers < 0 else min(n_gpu_layers, n_layers))
        if plan.devices
        else 0,
        usage=plan.usage,
        cache=cache,
        choice=summary(plan),
        alternatives=alternatives(settings, n_threads, host_free) if plan.is_changed else [],
        prompt_cache_bytes=-1 if settings.cache_ram < 0 and cache_ram else cache_ram,
        host_free_bytes=host_free,
        warnings=[*loaded.warnings, *plan.warnings],
    )


def _surveyed(settings: ModelSettings) -> Survey | Refusal:
    lib.llamad_log_open(-1)
    n_threads, host_free = compute_threads(settings.n_threads), memory.host_free()
    try:
        vet(settings, Loading())
        vet_draft(settings)
        return survey(settings, n_threads, host_free)
    except UnfitLoadError as error:
        return Refusal(str(error), [], alternatives(settings, n_threads, host_free))
    except LoadError as error:
        return Refusal(str(error), _log(_ERROR).splitlines())


def main() -> int:
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    settings = engine_settings.unpack(sys.stdin.buffer.read())
    sys.stdout.buffer.write(msgspec.json.encode(_surveyed(settings)))
    sys.stdout.flush()
    os._exit(0)  # freeing a model that was never loaded would be useless


if __name__ == "__main__":
    main()
