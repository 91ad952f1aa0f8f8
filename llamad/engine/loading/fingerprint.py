"""The fingerprint of what a saved state depends on: the model's files, and the settings that change what a token's keys
and values mean. An engine uses the states of an earlier one only if both have the same.

Runs in the thread that loads. The adapters of a state are not part of it: each state names its own.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec

from llamad.engine.loading.gguf_rules import parts_of

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

SETTINGS = (
    *("cache_type_k", "cache_type_v", "flash_attn", "swa_full", "kv_unified", "n_parallel", "grp_attn_n"),
    *("rope_scaling", "rope_freq_scale", "rope_freq_base", "yarn_orig_ctx"),
    *("yarn_ext_factor", "yarn_attn_factor", "yarn_beta_slow", "yarn_beta_fast"),
    *("override_kv", "control_vector_layer_range"),
)


def fingerprint(settings: ModelSettings, n_ctx_slot: int) -> bytes:
    """Return the fingerprint of an engine with these settings, whose slots have so many tokens: some models choose
    their RoPE by that. Raises OSError if a file is gone."""
    vectors = [(one.scale, *_file(one.path)) for one in settings.control_vector]
    values = [getattr(settings, name) for name in SETTINGS]
    parts = [_file(path) for path in parts_of(settings.model)]
    return hashlib.sha256(msgspec.json.encode([parts, vectors, values, n_ctx_slot], enc_hook=str)).digest()


def _file(path: str) -> tuple[str, int, int]:
    """Return what tells a file from one that replaces it."""
    status = os.stat(path)
    return os.path.realpath(path), status.st_size, status.st_mtime_ns
