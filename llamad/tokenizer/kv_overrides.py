"""Converts `--override-kv` to llama.cpp's form; a model and its vocabulary are opened with the same overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llamad._llama import ffi, lib
from llamad.flags.types.values import KvOverride


def kv_overrides(overrides: Sequence[KvOverride]) -> Any:
    """Return an array that ends with an empty key, or NULL if there are none. Keep it until llama.cpp has read it."""
    if not overrides:
        return ffi.NULL
    rows = ffi.new("struct llama_model_kv_override[]", len(overrides) + 1)
    for row, override in zip(rows, overrides, strict=False):
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
