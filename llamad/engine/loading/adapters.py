"""Owns the LoRA adapters of a loaded model: which files fit it, and opening them.

Runs in the engine's main thread, and at run time in a thread of its own. Some files load and kill llama.cpp at the next
decode, so every name, shape and type is checked before it sees them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from llamad._llama import lib
from llamad.base import model_file
from llamad.engine.loading.gguf_head import Array, Head, Malformed, Tensor, Value
from llamad.engine.loading.gguf_rules import parts_of
from llamad.protocol.errors import FileRefused
from llamad.protocol.model_info import AdapterInfo

UINT32, FLOAT = 4, 6
INVOCATION_MAX = 1024
TEXT_MAX = 4096
SKIPPED = "_norm.weight"  # llama.cpp leaves these out
TOKENS, OUTPUT = "token_embd.weight", "output.weight"
NOT_FLOATS = frozenset(
    (lib.GGML_TYPE_I8, lib.GGML_TYPE_I16, lib.GGML_TYPE_I32, lib.GGML_TYPE_I64, lib.GGML_TYPE_F64)
)


def model_tensors(path: str) -> tuple[str, dict[str, Tensor]]:
    """The model's architecture and all of its tensors."""
    arch, tensors = "", {}
    for part in parts_of(path):
        head = Head(part)
        arch = arch or _text(head.keys.get("general.architecture"))
        tensors.update(head.tensors)
        head.close()
    return arch, tensors


def open_adapter(handle: Any, model: str, path: str, number: int, is_survey: bool = False) -> AdapterInfo:
    """A survey only checks it. Raises FileRefused, and then nothing has changed."""
    refusal = model_file.refusal(path, "the adapter")
    if refusal is not None:
        raise FileRefused(refusal)
    try:
        info = _vetted(path, number, *model_tensors(model))
    except Malformed as error:
        raise FileRefused(f"{path} cannot be used as a LoRA adapter: it {error}") from None
    except OSError as error:
        raise FileRefused(f"{path}: {error.strerror}") from None
    if not is_survey and lib.llamad_adapter_open(handle, os.fsencode(path), number) != 0:
        raise FileRefused(f"{path} cannot be used as a LoRA adapter; the log above has llama.cpp's reason")
    return info


def close_adapter(number: int) -> None:
    """Nothing computes with it any more."""
    lib.llamad_adapter_close(number)


def _vetted(path: str, number: int, arch: str, tensors: Mapping[str, Tensor]) -> AdapterInfo:
    head = Head(path)
    try:
        _check_keys(head, arch)
        rank = _check_tensors(head, tensors)
        return AdapterInfo(
            id=number,
            digest=hashlib.sha256(head.data).digest(),
            rank=rank,
            task_name=_text(head.keys.get("adapter.lora.task_name"))[:TEXT_MAX],
            prompt_prefix=_text(head.keys.get("adapter.lora.prompt_prefix"))[:TEXT_MAX],
            invocation=_invocation(head),
        )
    finally:
        head.close()


def _text(value: Value | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _check_keys(head: Head, arch: str) -> None:
    for key, wanted in (
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
        ("general.architecture", arch),
    ):
        found = _text(head.keys.get(key))
        if found != wanted:
            raise Malformed(f'has {key} "{found}" and must have "{wanted}"')
    if head.kinds.get("adapter.lora.alpha", FLOAT) != FLOAT:
        raise Malformed("has an adapter.lora.alpha that is no float32")


def _invocation(head: Head) -> tuple[int, ...]:
    """The tokens that switch an activated adapter on; none: it is a plain one."""
    value = head.keys.get("adapter.alora.invocation_tokens")
    if value is None:
        return ()
    if not isinstance(value, Array) or value.kind != UINT32 or not 0 < value.n <= INVOCATION_MAX:
        raise Malformed(
            f"has adapter.alora.invocation_tokens that are no array of 1 to {INVOCATION_MAX} uint32"
        )
    return head.elements(value)


def _check_tensors(head: Head, tensors: Mapping[str, Tensor]) -> int:
    """The largest rank."""
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in head.tensors.items():
        base, _, part = name.rpartition(".")
        if part in ("lora_a", "lora_b"):
            pairs.setdefault(base, {})[part] = tensor
        elif not name.endswith(SKIPPED):
            raise Malformed(f"has the tensor {name}, which is neither .lora_a nor .lora_b")
    rank = 0
    for name, pair in pairs.items():
        if len(pair) != 2:
            raise Malformed(f"has only one of {name}.lora_a and {name}.lora_b")
        if name not in tensors:
            raise Malformed(f"changes {name}, which this model does not have; was it made for another?")
        if name == TOKENS and OUTPUT not in tensors:
            # Its pair stands the other way round, which aborts llama.cpp where the same table gives the logits.
            raise Malformed(f"changes {name}, which this model also uses as its output; train it without")
        rank = max(rank, _check_pair(name, tensors[name], pair["lora_a"], pair["lora_b"]))
    return rank


def _check_pair(name: str, base: Tensor, a: Tensor, b: Tensor) -> int:
    """Its rank."""
    n_in, n_out, n_deep = _sizes(base)
    # Tokens are looked up, so that their tables stand the other way round.
    (a_in, rank, a_deep), (b_in, b_out, b_deep) = _sizes(a), _sizes(b)
    if name.endswith(TOKENS):
        fits = rank == n_out and b_out == n_in and a_in == b_in
        rank = a_in
    else:
        fits = a_in == n_in and b_out == n_out and rank == b_in
    if not fits or a_deep != n_deep or b_deep != n_deep or len(base.dims) > 3:
        raise Malformed(
            f"has {name}.lora_a of shape {a.dims} and .lora_b of {b.dims}, which do not fit this model's {base.dims}"
        )
    for one in (a, b):
        if one.kind in NOT_FLOATS:
            raise Malformed(f"has the tensor {one.name} of a type that is no kind of float")
    return rank


def _sizes(tensor: Tensor) -> tuple[int, int, int]:
    dims = (*tensor.dims, 1, 1, 1)
    return dims[0], dims[1], dims[2] * dims[3]
