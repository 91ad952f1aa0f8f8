"""Lists the devices that llama.cpp can offload to. Runs on the main thread, before there is a model."""

from __future__ import annotations

from collections.abc import Sequence

from llamad._llama import ffi, lib
from llamad.engine.loading.opening import add_workers

MIB = 1024 * 1024


def device_lines(workers: Sequence[str]) -> list[str]:
    """As llama-server prints them: the names that --device takes, without the CPU. The RPC workers must have been
    probed."""
    lib.llamad_log_open(-1)  # llama.cpp says on standard error what it finds; here only the list matters
    lib.llama_backend_init()
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
