"""Opens the model file: makes llama.cpp's parameters from the settings, and shows the progress of the load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from llamad._llama import ffi, lib
from llamad.base import model_file
from llamad.engine.loading import memory, placement
from llamad.engine.loading.gguf_rules import check_gguf
from llamad.protocol.errors import SEE_LOG, LoadError
from llamad.tokenizer.kv_overrides import kv_overrides

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings


class Loading:
    """The progress of a load. If another one follows it, both are shown as one. Any thread."""

    def __init__(self) -> None:
        self._state = ffi.new("llamad_load_state *")
        self._state.permille = -1
        self._next: tuple[Loading, float] | None = None  # the load that follows, and its part of both
        self.is_vetted = False  # set once the file is checked

    @property
    def permille(self) -> int:
        """Return the progress in thousandths, or -1 until the vocabulary is known to be safe to read."""
        permille = int(self._state.permille)
        if permille < 0 or self._next is None:
            return permille
        following, part = self._next
        return round(permille * (1 - part) + max(0, following.permille) * part)

    def followed_by(self, part: float) -> Loading:
        """Return the progress of another load, which begins after this one and is this part of both."""
        following = Loading()
        self._next = following, part
        return following

    def begin(self) -> None:
        self._state.permille = 0

    @property
    def pointer(self) -> Any:
        return self._state


def open_backends() -> None:
    """Open llama.cpp's backends, which are the devices of this machine. Raises LoadError."""
    if lib.llamad_backends_open() != 0:
        reason = ffi.string(lib.llamad_last_error()).decode(errors="replace")
        raise LoadError(f"{reason}: install llamad again")


def add_workers(endpoints: Sequence[str]) -> None:
    """Add the devices of RPC workers to this process. The workers must have been probed, because llama.cpp aborts if
    one cannot be used. Raises LoadError."""
    for endpoint in endpoints:
        if lib.llamad_rpc_add(endpoint.encode()) < 1:
            reason = ffi.string(lib.llamad_last_error()).decode(errors="replace")
            raise LoadError(f"--rpc {endpoint}: llama.cpp cannot use it{': ' + reason if reason else ''}")


@cache
def _open_backend(numa: str | None, workers: tuple[str, ...]) -> None:
    """Open llama.cpp's backends once per process, because a second call would add the workers' devices again."""
    open_backends()
    strategies = {
        "distribute": lib.GGML_NUMA_STRATEGY_DISTRIBUTE,
        "isolate": lib.GGML_NUMA_STRATEGY_ISOLATE,
        "numactl": lib.GGML_NUMA_STRATEGY_NUMACTL,
    }
    if numa is not None:
        lib.llama_numa_init(strategies[numa])
    add_workers(workers)


def _devices(names: tuple[str, ...]) -> Any:
    """Return a NULL-terminated list of devices, or NULL for all devices."""
    if not names:
        return ffi.NULL
    devices = []
    for name in names if names != ("none",) else ():
        device = lib.ggml_backend_dev_by_name(name.encode())
        if device == ffi.NULL:
            known = [
                ffi.string(lib.ggml_backend_dev_name(lib.ggml_backend_dev_get(i))).decode()
                for i in range(lib.ggml_backend_dev_count())
            ]
            raise LoadError(f"--device {name}: there is no such device; this machine has {', '.join(known)}")
        devices.append(device)
    return ffi.new("ggml_backend_dev_t[]", [*devices, ffi.NULL])


def _load_mode(settings: ModelSettings) -> int:
    if settings.load_mode != "auto":
        modes = {
            "none": lib.LLAMA_LOAD_MODE_NONE,
            "mmap": lib.LLAMA_LOAD_MODE_MMAP,
            "mlock": lib.LLAMA_LOAD_MODE_MLOCK,
            "mmap+mlock": lib.LLAMA_LOAD_MODE_MMAP_MLOCK,
            "dio": lib.LLAMA_LOAD_MODE_DIRECT_IO,
        }
        return int(modes[settings.load_mode])
    if settings.mmap:
        return int(lib.LLAMA_LOAD_MODE_MMAP_MLOCK if settings.mlock else lib.LLAMA_LOAD_MODE_AUTO)
    return int(lib.LLAMA_LOAD_MODE_MLOCK if settings.mlock else lib.LLAMA_LOAD_MODE_NONE)


def vet(settings: ModelSettings, loading: Loading) -> None:
    """Check the model's file before llama.cpp reads it, and find the devices. Raises LoadError."""
    refusal = model_file.refusal(settings.model)
    if refusal is not None:
        raise LoadError(refusal)
    _open_backend(settings.numa, tuple(settings.rpc))
    check_gguf(settings, lambda: settings.devices != ("none",) and memory.has_gpu(), loading.begin)
    loading.is_vetted = True


def open_model(settings: ModelSettings, n_threads: int, loading: Loading, is_survey: bool = False) -> Any:
    """Return the model's handle. The model of a survey has no weights: its contexts allocate nothing and cannot
    compute. Raises LoadError."""
    if not loading.is_vetted:
        vet(settings, loading)
    # The variables keep alive what the parameters point to, until llama.cpp has read it.
    params = lib.llama_model_default_params()
    params.devices = devices = _devices(settings.devices)
    params.n_gpu_layers = settings.n_gpu_layers
    params.split_mode = {
        "none": lib.LLAMA_SPLIT_MODE_NONE,
        "layer": lib.LLAMA_SPLIT_MODE_LAYER,
        "row": lib.LLAMA_SPLIT_MODE_ROW,
        "tensor": lib.LLAMA_SPLIT_MODE_TENSOR,
    }[settings.split_mode]
    params.main_gpu = settings.main_gpu
    split = ffi.NULL
    if settings.tensor_split:
        n_max = lib.llama_max_devices()
        if len(settings.tensor_split) > n_max:
            raise LoadError(f"--tensor-split has {len(settings.tensor_split)} values; use at most {n_max}")
        split = ffi.new("float[]", [*settings.tensor_split, *[0.0] * (n_max - len(settings.tensor_split))])
    params.tensor_split = split
    params.load_mode = _load_mode(settings)
    params.lazy_mode = {
        "off": lib.LLAMA_LAZY_MODE_OFF,
        "auto": lib.LLAMA_LAZY_MODE_AUTO,
        "on": lib.LLAMA_LAZY_MODE_ON,
    }[settings.lazy_mode]
    if is_survey:
        params.load_mode, params.lazy_mode = lib.LLAMA_LOAD_MODE_NONE, lib.LLAMA_LAZY_MODE_OFF
        params.no_alloc = True
    params.use_extra_bufts = settings.repack
    params.no_host = settings.no_host
    params.kv_overrides = overrides = kv_overrides(settings.override_kv)
    params.check_tensors = settings.check_tensors
    try:
        placing = placement.placing(settings)
    except placement.Unplaced as error:
        raise LoadError(str(error)) from None
    params.tensor_buft_overrides = placing.pointer
    loading.pointer.n_threads = n_threads
    loading.pointer.api_only = True  # the front tokenizes
    handle = lib.llamad_model_open(os.fsencode(settings.model), params, loading.pointer)
    del devices, split, overrides, placing
    if handle == ffi.NULL:
        reason = ffi.string(lib.llamad_last_error()).decode(errors="replace")
        raise LoadError(
            f"{settings.model} could not be loaded as a GGUF model{': ' + reason if reason else ''}; {SEE_LOG}"
        )
    return handle
