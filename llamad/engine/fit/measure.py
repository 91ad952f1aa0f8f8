"""Measures how much memory a model would take, with llama.cpp's own load without allocation.

Runs in the thread that loads the model, before the load. The model stays open between two measurements that place its
tensors in the same way, because measuring only a context takes milliseconds.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import msgspec

from llamad._llama import ffi, lib
from llamad.base import model_file
from llamad.engine.fit.usage import Usage, Use
from llamad.engine.loading.draft import check_vocabulary, draft_settings, open_draft, open_draft_context
from llamad.engine.loading.gguf_head import Head, Malformed, Tensor
from llamad.engine.loading.model import open_contexts
from llamad.engine.loading.opening import Loading, open_model
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

# The settings that decide where the weights are.
PLACEMENT = (
    "n_gpu_layers",
    "tensor_split",
    "override_tensor",
    "cpu_moe",
    "n_cpu_moe",
    "n_cpu_ffn",
    "inputs_on_device",
)
_DEVICES_MAX = 64
_FLASH_ATTN = {
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
}


class Device(msgspec.Struct, frozen=True):
    """A device that the model would use in addition to the CPU."""

    name: str
    description: str
    free: int  # bytes
    total: int


class Shape(msgspec.Struct, frozen=True):
    """What the search must know about a model."""

    n_layers: int
    n_ctx_train: int
    has_experts: bool


def _name(device: Any) -> str:
    return str(ffi.string(lib.ggml_backend_dev_name(device)).decode(errors="replace"))


def _description(device: Any) -> str:
    return str(ffi.string(lib.ggml_backend_dev_description(device)).decode(errors="replace"))


def _described(device: Any) -> Device:
    free, total = ffi.new("size_t *"), ffi.new("size_t *")
    lib.ggml_backend_dev_memory(device, free, total)
    return Device(_name(device), _description(device), free[0], total[0])


def described(name: str) -> Device:
    """Return the device with this name, which llama.cpp must have."""
    return _described(lib.ggml_backend_dev_by_name(name.encode()))


def all_devices() -> list[Device]:
    """Return all devices of this machine and of its RPC workers, without the CPU. Their memory is not read: that would
    open every GPU."""
    devices = [lib.ggml_backend_dev_get(i) for i in range(lib.ggml_backend_dev_count())]
    cpu = lib.GGML_BACKEND_DEVICE_TYPE_CPU
    return [
        Device(_name(one), _description(one), 0, 0)
        for one in devices
        if lib.ggml_backend_dev_type(one) != cpu
    ]


def _read(uses: Any, n: int, kind: str = "") -> Usage:
    """Return llama.cpp's figures; if `kind` is given, all of them count as that kind."""
    if not 0 <= n <= _DEVICES_MAX:
        reason = ffi.string(lib.llamad_last_error()).decode(errors="replace")
        raise LoadError(f"llama.cpp cannot tell the memory that the model takes: {reason or n}")
    devices, host = dict[str, Use](), Use()
    for use in uses[0:n]:
        figures = (
            Use(**{kind: use.weights})
            if kind
            else Use(use.weights, use.cache, use.compute, repacked=use.repacked)
        )
        if use.device == ffi.NULL:
            host += figures
        else:
            devices[_name(use.device)] = figures
    return Usage(devices, host)


def context_usage(context: Any) -> Usage:
    """Return the memory that a context and its model take, or would take if they were opened without allocation."""
    uses = ffi.new("llamad_memory_use[]", _DEVICES_MAX)
    return _read(uses, lib.llamad_context_memory(context, uses, _DEVICES_MAX))


def _without_weights(use: Use) -> Use:
    return msgspec.structs.replace(use, weights=0, repacked=0)


def loaded_usage(contexts: list[Any]) -> Usage:
    """Return the memory that a model and all of its contexts take. The model is counted once."""
    whole, *others = (context_usage(one) for one in contexts)
    for other in others:
        devices = {name: _without_weights(use) for name, use in other.devices.items()}
        whole += Usage(devices, _without_weights(other.host))
    return whole


def projector_usage(settings: ModelSettings) -> Usage:
    """Return the memory that the projector would take. Raises LoadError."""
    if settings.mmproj is None:
        return Usage({}, Use())
    reason = model_file.refusal(settings.mmproj, "--mmproj")
    if reason is not None:
        raise LoadError(reason)
    name = settings.mmproj_device
    device = ffi.NULL if name is None else ffi.new("char[]", name.encode())
    params = ffi.new(
        "llamad_media_params *",
        {
            "n_threads": 1,
            "uses_gpu": settings.mmproj_offload,
            "image_min_tokens": -1 if settings.image_min_tokens is None else settings.image_min_tokens,
            "image_max_tokens": -1 if settings.image_max_tokens is None else settings.image_max_tokens,
            "flash_attn": _FLASH_ATTN[settings.flash_attn],
            "device": device,
        },
    )
    uses = ffi.new("llamad_memory_use[]", _DEVICES_MAX)
    n = lib.llamad_projector_memory(os.fsencode(settings.mmproj), params, uses, _DEVICES_MAX)
    if n < 0:
        raise LoadError(
            f"--mmproj {settings.mmproj}: it is not a projector for this model; the log says more"
        )
    return _read(uses, n, "projector")


def draft_usage(context: Any) -> Usage:
    """Return the memory that a draft model with this context takes."""
    usage = context_usage(context)
    devices = {name: Use(draft=use.total) for name, use in usage.devices.items()}
    return Usage(devices, Use(draft=usage.host.total))


class DraftMeasurer:
    """Measures the draft model. Like the served one it stays open between two measurements that place it alike."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._placement: tuple[Any, ...] = ()

    def usage(self, settings: ModelSettings, served: Any) -> Usage:
        """Return the memory that the draft model for a served model would take. Raises LoadError."""
        draft = draft_settings(settings, settings.n_ctx or lib.llama_model_n_ctx_train(served))
        if draft is None or lib.llama_model_is_recurrent(served) or lib.llama_model_is_hybrid(served):
            return Usage({}, Use())
        self._open(draft, served)
        context = open_draft_context(draft, self._handle)
        try:
            return draft_usage(context)
        finally:
            lib.llamad_context_close(context)

    def _open(self, draft: ModelSettings, served: Any) -> None:
        placement = draft.tensor_split, draft.inputs_on_device
        if self._handle is not None and placement == self._placement:
            return
        self.close()
        self._handle = open_draft(draft, Loading(), is_survey=True)
        check_vocabulary(draft, served, self._handle)
        self._placement = placement

    def close(self) -> None:
        if self._handle is not None:
            lib.llamad_model_close(self._handle)
            self._handle = None


def tensor_bytes(tensor: Tensor) -> int:
    return int(lib.ggml_row_size(tensor.kind, tensor.dims[0]) * math.prod(tensor.dims[1:]))


def adapter_bytes(settings: ModelSettings) -> int:
    """Return the bytes of all LoRA tensors. A file that cannot be read counts nothing, because the load will refuse
    it."""
    n = 0
    for file in settings.lora:
        try:
            head = Head(file.path)
            n += sum(tensor_bytes(tensor) for tensor in head.tensors.values())
            head.close()
        except (Malformed, OSError):
            pass
    return n


class Measurer:
    """Measures one model. It must be closed before the model is loaded. Its methods raise LoadError if llama.cpp could
    not load the model."""

    def __init__(self, settings: ModelSettings, n_threads: int) -> None:
        self._n_threads = n_threads
        self._handle: Any = None
        self._placement: tuple[Any, ...] = ()
        self._loading = Loading()
        self._loading.is_vetted = True  # the caller has checked the file
        self._draft = DraftMeasurer()
        self._beside: Usage | None = None  # the projector's memory, which does not depend on the choice
        self._open(settings)

    def _open(self, settings: ModelSettings) -> None:
        placement = tuple(getattr(settings, name) for name in PLACEMENT)
        if self._handle is not None and placement == self._placement:
            return
        self._close_model()
        self._handle = open_model(settings, self._n_threads, self._loading, is_survey=True)
        self._placement = placement

    def _close_model(self) -> None:
        if self._handle is not None:
            lib.llamad_model_close(self._handle)
            self._handle = None

    def close(self) -> None:
        self._close_model()
        self._draft.close()

    def shape(self) -> Shape:
        return Shape(
            lib.llama_model_n_layer(self._handle),
            lib.llama_model_n_ctx_train(self._handle),
            lib.llamad_model_n_expert(self._handle) > 0,
        )

    def devices(self) -> list[Device]:
        """Return the devices that the model would use, in the order in which llama.cpp fills them."""
        devices = ffi.new("ggml_backend_dev_t[]", _DEVICES_MAX)
        n = lib.llamad_model_devices(self._handle, devices, _DEVICES_MAX)
        return [_described(devices[i]) for i in range(max(0, n))]

    def usage(self, settings: ModelSettings) -> Usage:
        """Return the memory that a start with these settings would take. Raises LoadError."""
        self._open(settings)
        context, second = open_contexts(settings, self._handle, self._n_threads, is_survey=True)
        try:
            contexts = [one for one in (context, second.context if second else None) if one is not None]
            usage = loaded_usage(contexts)
        finally:
            if second is not None:
                second.close()
            if context is not None:
                lib.llamad_context_close(context)
        names = [device.name for device in self.devices()]
        # This puts the devices in llama.cpp's order, including those that hold nothing.
        usage = Usage({name: Use() for name in names}, Use()) + usage
        if self._beside is None:
            self._beside = projector_usage(settings)
        usage += _adapters(adapter_bytes(settings), usage)
        return usage + self._beside + self._draft.usage(settings, self._handle)


def _adapters(n_bytes: int, usage: Usage) -> Usage:
    """Return the memory of the adapters, which are on the same devices as the weights that they change."""
    n_weights = max(1, usage.total.weights)
    devices = {name: Use(adapters=n_bytes * use.weights // n_weights) for name, use in usage.devices.items()}
    n_left = n_bytes - sum(use.adapters for use in devices.values())
    return Usage(devices, Use(adapters=n_left))
