"""The LoRA adapters of a loaded model: checks which files fit it, and opens them.

Runs in the engine's main thread, and at run time in a separate thread. Some files load and then crash llama.cpp at the
next decode, so every name, shape and type is checked before llama.cpp sees them.
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
SKIPPED = "_norm.weight"  # llama.cpp ignores these tensors
TOKENS, OUTPUT = "token_embd.weight", "output.weight"
NOT_FLOATS = frozenset(
    (lib.GGML_TYPE_I8, lib.GGML_TYPE_I16, lib.GGML_TYPE_I32, lib.GGML_TYPE_I64, lib.GGML_TYPE_F64)
)


def model_tensors(path: str) -> tuple[str, dict[str, Tensor]]:
    """Return the model's architecture and all of its tensors."""
    arch, tensors = "", {}
    for file in parts_of(path):
        head = Head(file)
        arch = arch or _text(head.keys.get("general.architecture"))
        tensors.update(head.tensors)
        head.close()
    return arch, tensors


def open_adapter(handle: Any, model: str, path: str, number: int, is_survey: bool = False) -> AdapterInfo:
    """Check and open an adapter; a survey only checks it. If it raises FileRefused, nothing has changed."""
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
    """Close an adapter that nothing computes with any more."""
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
    for key, expected in (
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
        ("general.architecture", arch),
    ):
        value = _text(head.keys.get(key))
        if value != expected:
            raise Malformed(f'has {key} "{value}" and must have "{expected}"')
    if head.kinds.get("adapter.lora.alpha", FLOAT) != FLOAT:
        raise Malformed("has an adapter.lora.alpha that is not a float32")


def _invocation(head: Head) -> tuple[int, ...]:
    """Return the tokens that switch an activated adapter on, or none for a plain one."""
    value = head.keys.get("adapter.alora.invocation_tokens")
    if value is None:
        return ()
    if not isinstance(value, Array) or value.kind != UINT32 or not 0 < value.n <= INVOCATION_MAX:
        raise Malformed(
            f"has adapter.alora.invocation_tokens that are not an array of 1 to {INVOCATION_MAX} uint32"
        )
    return head.elements(value)


def _check_tensors(head: Head, tensors: Mapping[str, Tensor]) -> int:
    """Check the adapter's tensors against the model's; return the largest rank."""
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in head.tensors.items():
        base, _, side = name.rpartition(".")
        if side in ("lora_a", "lora_b"):
            pairs.setdefault(base, {})[side] = tensor
        elif not name.endswith(SKIPPED):
            raise Malformed(f"has the tensor {name}, which is neither .lora_a nor .lora_b")
    rank = 0
    for name, pair in pairs.items():
        if len(pair) != 2:
            raise Malformed(f"has only one of {name}.lora_a and {name}.lora_b")
        if name not in tensors:
            raise Malformed(f"changes {name}, which this model does not have; was it made for another?")
        if name == TOKENS and OUTPUT not in tensors:
            # Its pair is transposed, so llama.cpp aborts if the same table also computes the logits.
            raise Malformed(f"changes {name}, which this model also uses as its output; train it without")
        rank = max(rank, _check_pair(name, tensors[name], pair["lora_a"], pair["lora_b"]))
    return rank


def _check_pair(name: str, base: Tensor, a: Tensor, b: Tensor) -> int:
    """Check a pair of tensors against the model's tensor; return its rank."""
    n_in, n_out, n_deep = _sizes(base)
    # Tokens are looked up in their table, so its pair is transposed.
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
            raise Malformed(f"has the tensor {one.name} of a type that is not a float")
    return rank


def _sizes(tensor: Tensor) -> tuple[int, int, int]:
    dims = (*tensor.dims, 1, 1, 1)
    return dims[0], dims[1], dims[2] * dims[3]
