"""Checks the head of a GGUF for values on which llama.cpp would abort, or which llamad cannot serve: sizes, vocabulary,
tensors.

Runs in the opening thread, after the head is read (gguf_head.py) and before llama.cpp reads the file. It repeats no
check for which llama.cpp reports an error itself, unless that error does not name the key. A rule applies to every
architecture, or says to which.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from llamad._llama import lib
from llamad.engine.loading.gguf_archs import (
    DOUBLE_INNER,
    EQUAL_HEADS,
    NO_MODELS,
    SQUARE_QUERIES,
    WHOLE_ROPE,
    WITH_EXPERTS,
)
from llamad.engine.loading.gguf_head import ARRAY, STRING, Array, Head, Malformed, Value, read_head
from llamad.options.model_keys import SAMPLING_PREFIX
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

log = logging.getLogger("llamad.engine")

LAYERS_MAX = 512  # LLAMA_MAX_LAYERS
EXPERTS_MAX = 1024  # LLAMA_MAX_EXPERTS
SIZE_MAX = 1 << 24  # the largest embedding, and the most heads
CONTEXT_MAX = (1 << 31) - 1
TOKENS_MAX = 1 << 22
TOKEN_BYTES_MAX = 1 << 16
TEMPLATE_BYTES_MAX = 1 << 22
PARTS_MAX = 1024

ROPE_SCALINGS = (b"none", b"linear", b"yarn", b"longrope")
NUMBERS, FLOAT, BOOL, INT32 = (0, 1, 2, 3, 4, 5, 10, 11), 6, 7, 5
BYTE_TOKEN = 6  # the type of byte tokens

# Tensors that contain indices instead of weights.
INTEGER_TENSORS = re.compile(r"(^|\.)(ffn_gate_tid2eid\.weight|d2t(\.weight)?|t2d(\.weight)?)$")
STATE_TENSORS = re.compile(r"\.ssm_(conv1d(_[a-z]+)?\.weight|a|d)$")
PART_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


class _Model:
    """The values that llama.cpp will see: those of the file, except for those that --override-kv replaces."""

    def __init__(self, head: Head, settings: ModelSettings) -> None:
        self.head = head
        self.keys: dict[str, Value] = dict(head.keys)
        for one in settings.override_kv:
            self.keys[one.key] = one.value.encode() if isinstance(one.value, str) else one.value
        arch = self.keys.get("general.architecture")
        if not isinstance(arch, bytes) or not arch or not arch.isascii():
            raise Malformed("has no general.architecture: it is not a model")
        self.arch = arch.decode()
        if self.arch in NO_MODELS:
            raise LoadError(
                f"{settings.model} is {NO_MODELS[self.arch]}, not a model; give the model with -m"
            )

    def number(self, key: str, n_min: int, n_max: int, default: int | None = None) -> int | None:
        """Return the architecture's value, or the largest if there is one for each layer. Return None if it is not
        given or has another type, which llama.cpp reports. Raises Malformed if it is out of range."""
        name = f"{self.arch}.{key}"
        value = self.keys.get(name, default)
        values: tuple[int, ...] = ()
        if isinstance(value, Array):
            if value.kind not in (4, INT32):
                return None
            if not 0 < value.n <= LAYERS_MAX:
                raise Malformed(f"has {name} with {value.n:,} elements: 1 to {LAYERS_MAX} are possible")
            values, n_min = self.head.elements(value), 0  # it may be 0 for some layers
        elif isinstance(value, int) and not isinstance(value, bool):
            values = (value,)
        for one in values:
            if not n_min <= one <= n_max:
                raise Malformed(f"has {name} of {one}: {n_min} to {n_max} are possible")
        return max(values, default=None)

    def first(self, key: str) -> int | None:
        """Return the value, or that of the first layer, which llama.cpp uses for the whole model."""
        value = self.keys.get(f"{self.arch}.{key}")
        if isinstance(value, Array):
            return (
                int(self.head.elements(value._replace(n=1))[0])
                if value.kind in (4, INT32) and value.n
                else None
            )
        return value if isinstance(value, int) else None

    def has(self, prefix: str) -> bool:
        return any(name.startswith(f"{self.arch}.{prefix}") for name in self.keys)


def _warn_of_arrays(model: _Model) -> None:
    """Warn about sampling defaults that are arrays, because llama.cpp does not show their values."""
    for name, value in model.keys.items():
        if name.startswith(SAMPLING_PREFIX) and isinstance(value, Array):
            log.warning("the model's %s is ignored: it is an array", name)


# --- sizes ------------------------------------------------------------------------------------------------------


def _check_sizes(model: _Model) -> None:
    n_layer = model.number("block_count", 1, LAYERS_MAX)
    model.number("context_length", 1, CONTEXT_MAX)
    model.number("embedding_length", 1, SIZE_MAX)
    model.number("feed_forward_length", 0, SIZE_MAX)
    model.number("attention.head_count", 0, SIZE_MAX)
    model.number("attention.head_count_kv", 0, SIZE_MAX)
    model.number("nextn_predict_layers", 0, n_layer or LAYERS_MAX)
    for key in (
        "attention.layer_norm_rms_epsilon",
        "attention.layer_norm_epsilon",
        "attention.group_norm_epsilon",
    ):
        value = model.keys.get(f"{model.arch}.{key}")
        if isinstance(value, float) and not 0 <= value < math.inf:
            raise Malformed(f"has {model.arch}.{key} of {value}: it must be a positive number")
    n_embd, n_inner = model.first("embedding_length"), model.first("ssm.inner_size")
    if model.arch in DOUBLE_INNER and n_embd and n_inner is not None and n_inner != 2 * n_embd:
        raise Malformed(f"has {model.arch}.ssm.inner_size of {n_inner} for an embedding_length of {n_embd}")
    scaling = model.keys.get(f"{model.arch}.rope.scaling.type")
    if isinstance(scaling, bytes) and scaling not in ROPE_SCALINGS:
        raise Malformed(f"has {model.arch}.rope.scaling.type {scaling[:40]!r}, which llama.cpp does not know")
    if (
        model.number("attention.sliding_window", 0, CONTEXT_MAX)
        and model.first("attention.sliding_window_pattern") == 1
    ):
        raise Malformed(f"has {model.arch}.attention.sliding_window_pattern of 1: no layer has the window")


def _check_heads(model: _Model) -> None:
    """Check the heads of the first layer; llama.cpp compares the shapes of tensors in the others."""
    n_embd, n_head, n_kv = (
        model.first(key) for key in ("embedding_length", "attention.head_count", "attention.head_count_kv")
    )
    if not n_embd or not n_head:
        return
    if n_kv and n_head % n_kv:
        raise Malformed(
            f"has {model.arch}.attention.head_count {n_head}, no multiple of head_count_kv {n_kv}"
        )
    n_key = model.number("attention.key_length", 1, SIZE_MAX, n_embd // n_head)
    n_value = model.number("attention.value_length", 1, SIZE_MAX, n_embd // n_head)
    if model.arch in EQUAL_HEADS and n_key != n_value:
        raise Malformed(
            f"has {model.arch}.attention.key_length {n_key} and value_length {n_value}: they must be equal"
        )
    if model.arch in SQUARE_QUERIES and n_key is not None and n_head * n_key != n_embd:
        raise Malformed(
            f"has {model.arch}.attention.head_count {n_head} with heads of {n_key} for an embedding_length of {n_embd}"
        )
    _check_rope(model, n_key, n_value)


def _check_rope(model: _Model, n_key: int | None, n_value: int | None) -> None:
    """Check that the rotated dimensions are pairs within a head."""
    sections = model.keys.get(f"{model.arch}.rope.dimension_sections")
    if isinstance(sections, Array) and sections.kind in (4, INT32) and sections.n <= LAYERS_MAX:
        sizes = model.head.elements(sections)
        if min(sizes, default=0) < 0 or not 0 < sum(sizes) <= (n_key or SIZE_MAX):
            raise Malformed(f"has {model.arch}.rope.dimension_sections of {sizes}")
    elif isinstance(sections, int) and sections <= 0:
        raise Malformed(f"has {model.arch}.rope.dimension_sections of {sections}")
    n_rot = model.first("rope.dimension_count")
    if n_rot is None or (n_rot == 0 and model.has("ssm.")):
        return
    if n_rot % 2 or not 0 < n_rot <= (n_key or n_rot) or (model.arch in WHOLE_ROPE and n_rot != n_value):
        raise Malformed(
            f"has {model.arch}.rope.dimension_count of {n_rot}, which heads of {n_key} and {n_value} cannot have"
        )


def _check_experts(model: _Model) -> None:
    n = model.number("expert_count", 0, EXPERTS_MAX, 0)
    if n is None or (model.arch.startswith("hunyuan") and n <= 1):
        return
    if n == 0 and model.arch in WITH_EXPERTS:
        raise Malformed(f"has no {model.arch}.expert_count")
    model.number("expert_used_count", int(n > 0), n, 0)
    n_groups = model.number("expert_group_count", 0, max(0, n - 1), 0)
    if n_groups and n_groups > 1:
        if n % n_groups:
            raise Malformed(
                f"has {model.arch}.expert_count {n}, no multiple of expert_group_count {n_groups}"
            )
        model.number("expert_group_used_count", 1, n_groups - 1, 0)


# --- vocabulary -------------------------------------------------------------------------------------------------


def _array(model: _Model, key: str, kinds: tuple[int, ...], n_min: int) -> Array | None:
    """Return the array, or None if there is none. Raises Malformed if it has another type or too few elements."""
    value = model.keys.get(key)
    if value is None:
        return None
    if not isinstance(value, Array) or value.kind not in kinds:
        raise Malformed(
            f"has {key} of the wrong type: it must be an array of {' or '.join(map(_type_name, kinds))}"
        )
    if value.n < n_min:
        raise Malformed(f"has {key} with {value.n:,} elements for {n_min:,} tokens")
    return value


def _type_name(kind: int) -> str:
    return {STRING: "strings", FLOAT: "float32", INT32: "int32", ARRAY: "arrays"}[kind]


def _check_vocabulary(model: _Model) -> None:
    name = model.keys.get("tokenizer.ggml.model")
    if not isinstance(name, bytes):
        raise Malformed("has no tokenizer.ggml.model: llamad needs a model with a vocabulary")
    if name in (b"no_vocab", b"none"):
        raise Malformed(f"has tokenizer.ggml.model {name.decode()}: llamad needs a model with a vocabulary")
    tokens = _array(model, "tokenizer.ggml.tokens", (STRING,), 1)
    if tokens is None:
        raise Malformed("has no tokenizer.ggml.tokens: llamad needs a model with a vocabulary")
    if tokens.n > TOKENS_MAX:
        raise Malformed(f"has tokenizer.ggml.tokens with {tokens.n:,} tokens: {TOKENS_MAX:,} are possible")
    summary = model.head.strings(tokens, is_set=True)
    if summary.twice >= 0:
        raise Malformed(
            f"has a token in tokenizer.ggml.tokens twice: {summary.twice} has the text of an earlier one"
        )
    if not 0 < summary.n_longest <= TOKEN_BYTES_MAX:
        raise Malformed(f"has tokens of up to {summary.n_longest:,} bytes in tokenizer.ggml.tokens")
    _array(model, "tokenizer.ggml.scores", (FLOAT, INT32), tokens.n)
    kinds = _array(model, "tokenizer.ggml.token_type", (INT32,), tokens.n)
    if name == b"bert" and kinds is not None and _has(model.head, kinds, BYTE_TOKEN):
        raise Malformed("has byte tokens in tokenizer.ggml.token_type, which a BERT vocabulary cannot have")
    merges = _array(model, "tokenizer.ggml.merges", (STRING,), 0)
    if merges is not None:
        if merges.n > 4 * TOKENS_MAX:
            raise Malformed(f"has tokenizer.ggml.merges with {merges.n:,} elements")
        at = model.head.strings(merges).unsplit
        if at >= 0:
            raise Malformed(
                f"has tokenizer.ggml.merges where element {at} is not two pieces with a space between them"
            )
    _check_templates(model)


def _has(head: Head, array: Array, value: int) -> bool:
    with memoryview(head.data) as raw, raw[array.at : array.at + 4 * array.n] as elements:
        needle = value.to_bytes(4, "little")
        data, at = bytes(elements), -1
    while (at := data.find(needle, at + 1)) >= 0:
        if at % 4 == 0:
            return True
    return False


def _check_templates(model: _Model) -> None:
    for key, value in model.keys.items():
        if not key.startswith("tokenizer.chat_template") or not isinstance(value, bytes):
            continue
        if len(value) > TEMPLATE_BYTES_MAX:
            raise Malformed(f"has {key} of {len(value):,} bytes: {TEMPLATE_BYTES_MAX:,} are possible")
        try:
            value.decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"has {key} that is not UTF-8, from byte {error.start} on") from None


# --- tensors ----------------------------------------------------------------------------------------------------


def _check_tensors(head: Head, has_gpu: bool) -> None:
    """Raise Malformed for types that no operation accepts. Vectors must be F32, as every converter writes them, because
    CPUs add and multiply by nothing else; GPUs also accept F16 and BF16."""
    integers = (lib.GGML_TYPE_I8, lib.GGML_TYPE_I16, lib.GGML_TYPE_I32, lib.GGML_TYPE_I64, lib.GGML_TYPE_F64)
    halves = (lib.GGML_TYPE_F16, lib.GGML_TYPE_BF16) if has_gpu else ()
    for tensor in head.tensors.values():
        if INTEGER_TENSORS.search(tensor.name) or tensor.kind == lib.GGML_TYPE_F32:
            continue
        if tensor.kind in integers:
            raise Malformed(
                f"has the tensor {tensor.name} of type {tensor.kind}, which is not a type for weights"
            )
        is_vector = len(tensor.dims) == 1 and tensor.kind not in halves
        if is_vector or STATE_TENSORS.search(tensor.name):
            raise Malformed(f"has the tensor {tensor.name} of type {tensor.kind}: it must be F32")


# --- the file, and its other parts ------------------------------------------------------------------------------


def other_parts(path: str, head: Head) -> list[str]:
    """Return the other files of a split model, by the names that llama.cpp gives them."""
    n = head.keys.get("split.count", 0)
    if isinstance(n, Array) or not isinstance(n, int) or n <= 1:
        return []
    if n > PARTS_MAX:
        raise Malformed(f"has split.count of {n}: {PARTS_MAX} are possible")
    if head.keys.get("split.no") != 0:
        raise LoadError(
            f"{path} is not the first part of its model; give the one that ends in -00001-of-{n:05}.gguf"
        )
    match = PART_NAME.fullmatch(path)
    if match is None or int(match[2]) != 1 or int(match[3]) != n:
        raise LoadError(
            f"{path} is the first of {n} parts of a model; name it ...-00001-of-{n:05}.gguf, as it was"
        )
    return [f"{match[1]}-{i:05}-of-{n:05}.gguf" for i in range(2, n + 1)]


def parts_of(path: str) -> list[str]:
    """Return all files of a model that was checked."""
    head = read_head(path)
    try:
        return [path, *other_parts(path, head)]
    finally:
        head.close()


def check_gguf(
    settings: ModelSettings, has_gpu: Callable[[], bool], on_vocabulary: Callable[[], None] = lambda: None
) -> None:
    """Check all files of the model. Call `on_vocabulary` once the vocabulary is safe to read, and only then `has_gpu`,
    which takes long. Raises LoadError with a sentence that names what is wrong."""
    path = settings.model
    head = read_head(path)
    try:
        parts = other_parts(path, head)
        model = _Model(head, settings)
        _check_sizes(model)
        _check_heads(model)
        _check_experts(model)
        _check_vocabulary(model)
        _warn_of_arrays(model)
        if not parts:
            on_vocabulary()
        _check_tensors(head, has_gpu())
    except Malformed as error:
        raise error.at(path) from None
    finally:
        head.close()
    for file in parts:
        if not os.path.exists(file):
            raise LoadError(
                f"{path} is one of {len(parts) + 1} parts of a model, and {file} is missing; put it there"
            )
        head = read_head(file)
        try:
            _check_tensors(head, has_gpu())
        except Malformed as error:
            raise error.at(file) from None
        finally:
            head.close()
