"""Lists the devices that llama.cpp can offload to. Runs on the main thread, before there is a model."""

from __future__ import annotations

from collections.abc import Sequence

from llamad._llama import ffi, lib
from llamad.engine.loading.opening import add_workers, open_backends

MIB = 1024 * 1024


def device_lines(workers: Sequence[str]) -> list[str]:
    """Return the devices as llama-server prints them, with the names that --device takes and without the CPU. The RPC
    workers must have been probed."""
    lib.llamad_log_open(-1)  # keeps llama.cpp from printing what it finds; only the list matters here
    open_backends()
    add_workers(workers)
    lines = []
    for index in range(lib.ggml_backend_dev_count()):
        device = lib.ggml_backend_dev_get(index)
        if lib.ggml_backend_dev_type(device) == lib.GGML_BACKEND_DEVICE_TYPE_CPU:
            continue
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        lib.ggml_backend_dev_memory(device, free, total)
        name, what = (
            ffi.string(text).decode(errors="replace")
            for text in (lib.ggml_backend_dev_name(device), lib.ggml_backend_dev_description(device))
        )
        lines.append(f"  {name}: {what} ({total[0] // MIB} MiB, {free[0] // MIB} MiB free)")
    return ["Available devices:", *(lines or ["  (none)"])]
