"""Surveys what a model would take, without its weights: `python -m llamad.engine.survey`, with pickled settings on
standard input and a Survey or a Refusal as JSON on standard output.

A process of its own: llama.cpp may abort on a file, and whoever asked must be able to say so.
"""

from __future__ import annotations

import os
import pickle
import re
import sys

import msgspec

from llamad._llama import ffi, lib
from llamad.engine.loading import memory
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.engine.loading.threads import compute_threads
from llamad.flags.settings import Settings
from llamad.protocol.control_messages import Loaded
from llamad.protocol.errors import LoadError

_LINE_MAX = 8192
_ERROR = 4  # ggml's level
_MIB = 1 << 20
# llama.cpp says how much it would allocate in its log only.
_CACHE = re.compile(r"^\w+: size = +([0-9.]+) MiB \(", re.MULTILINE)
_COMPUTE = re.compile(r": +(\S+) compute buffer size = +([0-9.]+) MiB")
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")


class Device(msgspec.Struct, frozen=True):
    name: str
    description: str
    free_bytes: int
    total_bytes: int


class Survey(msgspec.Struct, frozen=True, tag="survey"):
    """What would be served. None: llama.cpp did not say."""

    loaded: Loaded
    n_batch: int
    n_ubatch: int
    n_threads: int
    n_threads_batch: int
    devices: list[Device]  # those it would use beside the CPU
    layers_offloaded: int | None
    weight_bytes: int
    cache_bytes: int | None
    compute_bytes: dict[str, int]  # by device
    prompt_cache_bytes: int  # at most; -1: no limit
    host_free_bytes: int
    warnings: list[str]  # of flags without effect on this machine


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    reason: str
    errors: list[str]  # that llama.cpp logged


def _log(level_min: int = 0) -> str:
    """All that llama.cpp has said since the last call."""
    buffer, level = ffi.new("char[]", _LINE_MAX), ffi.new("int32_t *")
    found = bytearray()
    while (n := lib.llamad_log_read(buffer, _LINE_MAX, level)) >= 0:
        if level[0] >= level_min:
            found += bytes(ffi.buffer(buffer, n))
    return found.decode("utf-8", "replace")


def _devices(settings: Settings) -> list[Device]:
    found = []
    for name in memory.gpus(settings) if settings.n_gpu_layers != 0 and settings.devices != ("none",) else ():
        device = lib.ggml_backend_dev_by_name(name.encode())
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        lib.ggml_backend_dev_memory(device, free, total)
        description = ffi.string(lib.ggml_backend_dev_description(device)).decode(errors="replace")
        found.append(Device(name, description, free[0], total[0]))
    return found


def survey(settings: Settings) -> Survey:
    """Raises LoadError."""
    lib.llamad_log_open(-1)
    n_threads = compute_threads(settings.n_threads)
    loaded = load(settings, n_threads, Loading(), is_survey=True)
    said = _log()
    caches = _CACHE.findall(said)
    compute: dict[str, int] = {}
    for name, mib in _COMPUTE.findall(said):
        compute[name] = compute.get(name, 0) + int(float(mib) * _MIB)
    offloaded = _OFFLOADED.search(said)
    cache_ram = memory.cache_ram_bytes(settings)
    return Survey(
        loaded=loaded.description(),
        n_batch=loaded.n_batch,
        n_ubatch=loaded.n_ubatch,
        n_threads=n_threads,
        n_threads_batch=settings.n_threads_batch or n_threads,
        devices=_devices(settings),
        layers_offloaded=int(offloaded[1]) if offloaded else None,
        weight_bytes=loaded.info.size,
        cache_bytes=int(sum(map(float, caches)) * _MIB) if caches or not loaded.can_generate else None,
        compute_bytes=compute,
        prompt_cache_bytes=-1 if settings.cache_ram < 0 and cache_ram else cache_ram,
        host_free_bytes=memory.host_free(),
        warnings=list(loaded.warnings),
    )


def main() -> int:
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    settings: Settings = pickle.load(sys.stdin.buffer)
    reply: Survey | Refusal
    try:
        reply = survey(settings)
    except LoadError as error:
        reply = Refusal(str(error), _log(_ERROR).splitlines())
    sys.stdout.buffer.write(msgspec.json.encode(reply))
    sys.stdout.flush()
    os._exit(0)  # freeing a model that was never loaded is of no use


if __name__ == "__main__":
    main()
