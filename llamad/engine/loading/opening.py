"""Opens the model file: llama.cpp's parameters from settings, and the progress of the load.

An Opening runs in its own thread, which neither imports nor needs the GIL while llama.cpp reads: the program starts
it first and imports the rest of itself meanwhile. So this module must import little.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from llamad._llama import ffi, lib
from llamad.engine.loading import memory, placement
from llamad.engine.loading.gguf_rules import check_gguf
from llamad.flags.settings import Settings
from llamad.protocol.errors import LoadError


class LoadCancelled(Exception):
    """The daemon is stopping."""


class Loading:
    """The progress of a load, and how to stop it. Any thread."""

    def __init__(self) -> None:
        self._state = ffi.new("llamad_load_state *")

    @property
    def permille(self) -> int:
        return int(self._state.permille)

    def cancel(self) -> None:
        self._state.cancel = 1

    @property
    def is_cancelled(self) -> bool:
        return bool(self._state.cancel)

    @property
    def pointer(self) -> Any:
        return self._state


def _backend(settings: Settings) -> None:
    lib.llama_backend_init()
    strategies = {
        "distribute": lib.GGML_NUMA_STRATEGY_DISTRIBUTE,
        "isolate": lib.GGML_NUMA_STRATEGY_ISOLATE,
        "numactl": lib.GGML_NUMA_STRATEGY_NUMACTL,
    }
    if settings.numa is not None:
        lib.llama_numa_init(strategies[settings.numa])


def _devices(names: tuple[str, ...]) -> Any:
    """A NULL-terminated list, or NULL for all devices."""
    if not names:
        return ffi.NULL
    found = []
    for name in names if names != ("none",) else ():
        device = lib.ggml_backend_dev_by_name(name.encode())
        if device == ffi.NULL:
            known = [
                ffi.string(lib.ggml_backend_dev_name(lib.ggml_backend_dev_get(i))).decode()
                for i in range(lib.ggml_backend_dev_count())
            ]
            raise LoadError(f"--device {name}: there is no such device; this machine has {', '.join(known)}")
        found.append(device)
    return ffi.new("ggml_backend_dev_t[]", [*found, ffi.NULL])


def _overrides(settings: Settings) -> Any:
    """A list that ends with an empty key, or NULL."""
    if not settings.override_kv:
        return ffi.NULL
    rows = ffi.new("struct llama_model_kv_override[]", len(settings.override_kv) + 1)
    for row, override in zip(rows, settings.override_kv, strict=False):
        row.key = override.key.encode()
        if override.type == "int":
            row.tag, row.val_i64 = lib.LLAMA_KV_OVERRIDE_TYPE_INT, override.value
        elif override.type == "float":
            row.tag, row.val_f64 = lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT, override.value
        elif override.type == "bool":
            row.tag, row.val_bool = lib.LLAMA_KV_OVERRIDE_TYPE_BOOL, override.value
        else:
            row.tag, row.val_str = lib.LLAMA_KV_OVERRIDE_TYPE_STR, str(override.value).encode()
    return rows


def _load_mode(settings: Settings) -> int:
    if settings.mmap:
        return int(lib.LLAMA_LOAD_MODE_MMAP_MLOCK if settings.mlock else lib.LLAMA_LOAD_MODE_AUTO)
    return int(lib.LLAMA_LOAD_MODE_MLOCK if settings.mlock else lib.LLAMA_LOAD_MODE_NONE)


def _check_file(path: str) -> None:
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}; -m names a GGUF file") from None
    if magic != b"GGUF":
        raise LoadError(f"{path} is not a GGUF file; convert it with llama.cpp's convert_hf_to_gguf.py")


def open_model(settings: Settings, n_threads: int, loading: Loading) -> Any:
    """The model's handle. Raises LoadError or LoadCancelled."""
    _check_file(settings.model)
    _backend(settings)
    check_gguf(settings, memory.has_gpu() and settings.devices != ("none",))
    # What the parameters point to is kept alive until llama.cpp has read it.
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
    params.kv_overrides = overrides = _overrides(settings)
    params.check_tensors = settings.check_tensors
    try:
        placing = placement.placing(settings)
    except placement.Unplaced as error:
        raise LoadError(str(error)) from None
    params.tensor_buft_overrides = placing.pointer
    loading.pointer.n_threads = n_threads
    loading.pointer.api_only = settings.llama_api_only
    handle = lib.llamad_model_open(os.fsencode(settings.model), params, loading.pointer)
    del devices, split, overrides, placing
    if handle == ffi.NULL:
        if loading.is_cancelled:
            raise LoadCancelled
        reason = ffi.string(lib.llamad_last_error()).decode(errors="replace")
        raise LoadError(
            f"{settings.model} could not be loaded as a GGUF model{': ' + reason if reason else ''};"
            " the log above has llama.cpp's reason"
        )
    return handle


class Opening:
    """A model that is being opened. `loading` has its progress."""

    def __init__(self, settings: Settings, n_threads: int) -> None:
        self.loading = Loading()
        self._settings = settings
        self._n_threads = n_threads
        self._outcome: Any = None
        self._thread = threading.Thread(target=self._run, name="llamad-open", daemon=True)

    def start(self) -> None:
        lib.llamad_log_open(-1)  # llama.cpp's log waits for the event loop
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = open_model(self._settings, self._n_threads, self.loading)
        except BaseException as error:
            self._outcome = error

    def result(self) -> Any:
        """The model's handle; call it once, not on the event loop's thread. Raises what open_model() raises."""
        self._thread.join()
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome
