"""Tiny GGUFs with seeded random weights and a token for each byte, one for each kind of memory that llama.cpp has: for
tests of what becomes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

N_EMBD, N_LAYER, N_HEAD, N_HEAD_KV, N_FF = 64, 2, 2, 1, 64
N_HEAD_DIM = N_EMBD // N_HEAD
N_VOCAB = 259
BOS, EOS, FIRST_BYTE = 1, 2, 3
WINDOW = 12
D_INNER, D_STATE, D_CONV, DT_RANK = 2 * N_EMBD, 8, 4, 4
L_CACHE = 3
N_NETS, N_NET_KEYS, NET_DIM = 4, 2, 16  # heads of a delta net, heads of its keys, and their size
N_EXPERTS = 2

KINDS = ("llama", "gemma3", "mamba", "jamba", "qwen2vl")
HYBRID_WINDOW = "lfm2"  # recurrent, and attends through a window, unless that is 0
DELTA_NET = "qwen35"  # a gated delta net, and attention
SINKS = "gpt-oss"  # every second layer attends through a window, all of them with sinks

# Flags with which the caches store exactly what is computed.
EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")


def tokens_of(text: str) -> list[int]:
    """Returns the tokens of a prompt."""
    return [BOS, *(FIRST_BYTE + byte for byte in f"\u2581{text}".replace(" ", "\u2581").encode())]


@dataclass(frozen=True)
class Weights:
    """Factors of random matrices. The default ones suit tests that compare logits: many texts repeat one token."""

    embedding: float = 4.0
    attention: float = 4.0  # of queries and keys
    mixed: float = 1.0  # of what layers add to a token from the tokens before it
    slowest: float = 1 / 8  # how fast the slowest part of a recurrent state fades
    is_tied: bool = True  # the output matrix is the embedding


# Texts depend on all tokens of their prompts, and on the order of those.
SENSITIVE = Weights(embedding=0.2, attention=3.0, mixed=4.0, slowest=1 / 400, is_tied=False)


MatrixType = type[np.floating] | gguf.GGMLQuantizationType


class _Maker:
    def __init__(self, path: Path, kind: str, matrix_type: MatrixType, weights: Weights) -> None:
        self.matrix_type = matrix_type
        self.weights = weights
        self.writer = gguf.GGUFWriter(path, kind)
        self.random = np.random.default_rng(7)

    def matrix(self, name: str, rows: int, columns: int, scale: float = 1.0) -> None:
        values = self.random.standard_normal((rows, columns), dtype=np.float32) * scale / np.sqrt(columns)
        self._add(name, values)

    def matrices(self, name: str, n: int, rows: int, columns: int) -> None:
        values = self.random.standard_normal((n, rows, columns), dtype=np.float32) / np.sqrt(columns)
        self._add(name, values)

    def _add(self, name: str, values: np.ndarray) -> None:
        kind = self.matrix_type
        if isinstance(kind, gguf.GGMLQuantizationType):
            self.writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
        else:
            self.writer.add_tensor(name, values.astype(kind))

    def vector(self, name: str, values: np.ndarray) -> None:
        self.writer.add_tensor(name, values.astype(np.float32))

    def ones(self, name: str, n: int) -> None:
        self.vector(name, np.ones(n, np.float32))

    def noise(self, name: str, *shape: int) -> None:
        self.vector(name, self.random.standard_normal(shape, dtype=np.float32))

    def tokenizer(self) -> None:
        kind = gguf.TokenType
        tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
        self.writer.add_tokenizer_model("llama")
        self.writer.add_token_list(tokens)
        self.writer.add_token_scores([0.0] * len(tokens))
        self.writer.add_token_types([kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256)
        self.writer.add_bos_token_id(BOS)
        self.writer.add_eos_token_id(EOS)
        self.writer.add_unk_token_id(0)

    def attention(self, at: str, is_gated: bool = False) -> None:
        n_queries = (2 if is_gated else 1) * N_HEAD * N_HEAD_DIM
        self.matrix(f"{at}.attn_q.weight", n_queries, N_EMBD, self.weights.attention)
        self.matrix(f"{at}.attn_k.weight", N_HEAD_KV * N_HEAD_DIM, N_EMBD, self.weights.attention)
        self.matrix(f"{at}.attn_v.weight", N_HEAD_KV * N_HEAD_DIM, N_EMBD)
        self.matrix(f"{at}.attn_output.weight", N_EMBD, N_HEAD * N_HEAD_DIM, self.weights.mixed)

    def ffn(self, at: str, has_norm: bool) -> None:
        if has_norm:
            self.ones(f"{at}.ffn_norm.weight", N_EMBD)
        self.matrix(f"{at}.ffn_gate.weight", N_FF, N_EMBD)
        self.matrix(f"{at}.ffn_up.weight", N_FF, N_EMBD)
        self.matrix(f"{at}.ffn_down.weight", N_EMBD, N_FF)

    def experts(self, at: str) -> None:
        """All of them are used, so that no rounding chooses another one."""
        self.matrix(f"{at}.ffn_gate_inp.weight", N_EXPERTS, N_EMBD)
        self.noise(f"{at}.ffn_gate_inp.bias", N_EXPERTS)
        for part, rows, columns in (
            ("ffn_gate_exps", N_FF, N_EMBD),
            ("ffn_up_exps", N_FF, N_EMBD),
            ("ffn_down_exps", N_EMBD, N_FF),
        ):
            self.matrices(f"{at}.{part}.weight", N_EXPERTS, rows, columns)
            self.noise(f"{at}.{part}.bias", N_EXPERTS, rows)

    def ssm(self, at: str) -> None:
        self.matrix(f"{at}.ssm_in.weight", 2 * D_INNER, N_EMBD)
        self.noise(f"{at}.ssm_conv1d.weight", D_INNER, D_CONV)
        self.noise(f"{at}.ssm_conv1d.bias", D_INNER)
        self.matrix(f"{at}.ssm_x.weight", DT_RANK + 2 * D_STATE, D_INNER)
        self.matrix(f"{at}.ssm_dt.weight", D_INNER, DT_RANK)
        self.noise(f"{at}.ssm_dt.bias", D_INNER)
        self.vector(f"{at}.ssm_a", -np.tile(np.linspace(self.weights.slowest, 1, D_STATE), (D_INNER, 1)))
        self.ones(f"{at}.ssm_d", D_INNER)
        self.matrix(f"{at}.ssm_out.weight", N_EMBD, D_INNER, self.weights.mixed)

    def delta_net(self, at: str) -> None:
        n_keys, n_values = N_NET_KEYS * NET_DIM, N_NETS * NET_DIM
        self.matrix(f"{at}.attn_qkv.weight", 2 * n_keys + n_values, N_EMBD)
        self.matrix(f"{at}.attn_gate.weight", n_values, N_EMBD)
        self.noise(f"{at}.ssm_conv1d.weight", 2 * n_keys + n_values, D_CONV)
        self.noise(f"{at}.ssm_dt.bias", N_NETS)
        self.vector(f"{at}.ssm_a", -np.linspace(self.weights.slowest, 0.1, N_NETS))
        for part in ("ssm_beta", "ssm_alpha"):
            self.matrix(f"{at}.{part}.weight", N_NETS, N_EMBD)
        self.ones(f"{at}.ssm_norm.weight", NET_DIM)
        self.matrix(f"{at}.ssm_out.weight", N_EMBD, n_values, self.weights.mixed)

    def shortconv(self, at: str) -> None:
        self.noise(f"{at}.shortconv.conv.weight", N_EMBD, L_CACHE)
        self.matrix(f"{at}.shortconv.in_proj.weight", 3 * N_EMBD, N_EMBD)
        self.matrix(f"{at}.shortconv.out_proj.weight", N_EMBD, N_EMBD, self.weights.mixed)


def _numbers(writer: gguf.GGUFWriter, kind: str, window: int) -> None:
    writer.add_name(f"tiny {kind}")
    writer.add_context_length(4096)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_vocab_size(N_VOCAB)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_feed_forward_length(0 if kind == "mamba" else N_FF)
    writer.add_head_count(0 if kind == "mamba" else N_HEAD)
    if kind != "mamba":
        # A hybrid's first layer is recurrent, its second attends.
        writer.add_head_count_kv([0, N_HEAD_KV] if kind in ("jamba", "lfm2") else N_HEAD_KV)
    if kind in ("llama", "gemma3", "qwen2vl", "lfm2", "gpt-oss", "qwen35"):
        writer.add_key_length(N_HEAD_DIM)
        writer.add_value_length(N_HEAD_DIM)
        writer.add_rope_dimension_count(N_HEAD_DIM)
    if kind == "gemma3":
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 2)
    if kind == "gpt-oss":
        writer.add_expert_count(N_EXPERTS)
        writer.add_expert_used_count(N_EXPERTS)
        writer.add_expert_feed_forward_length(N_FF)
    if kind in ("gemma3", "gpt-oss", "lfm2"):
        writer.add_sliding_window(window)
    if kind == "lfm2":
        writer.add_shortconv_l_cache(L_CACHE)
    if kind in ("qwen2vl", "qwen35"):
        writer.add_rope_dimension_sections([8, 4, 4, 0])
    if kind == "qwen35":
        writer.add_full_attention_interval(N_LAYER)
        writer.add_ssm_conv_kernel(D_CONV)
        writer.add_ssm_inner_size(N_NETS * NET_DIM)
        writer.add_ssm_state_size(NET_DIM)
        writer.add_ssm_time_step_rank(N_NETS)
        writer.add_ssm_group_count(N_NET_KEYS)
    if kind in ("mamba", "jamba"):
        writer.add_ssm_conv_kernel(D_CONV)
        writer.add_ssm_inner_size(D_INNER)
        writer.add_ssm_state_size(D_STATE)
        writer.add_ssm_time_step_rank(DT_RANK)


def _layer(maker: _Maker, kind: str, i: int) -> None:
    at = f"blk.{i}"
    maker.ones(f"{at}.attn_norm.weight", N_EMBD)
    if kind == "mamba" or (kind == "jamba" and i == 0):
        maker.ssm(at)
        if kind == "jamba":
            maker.ones(f"{at}.ssm_dt_norm.weight", DT_RANK)
            maker.ones(f"{at}.ssm_b_norm.weight", D_STATE)
            maker.ones(f"{at}.ssm_c_norm.weight", D_STATE)
    elif kind == "lfm2" and i == 0:
        maker.shortconv(at)
    elif kind == "qwen35" and i == 0:
        maker.delta_net(at)
    else:
        maker.attention(at, is_gated=kind == "qwen35")
    if kind == "gemma3" or (kind in ("lfm2", "qwen35") and i > 0):
        for part in ("attn_q_norm", "attn_k_norm"):
            maker.ones(f"{at}.{part}.weight", N_HEAD_DIM)
    if kind == "gemma3":
        for part in ("post_attention_norm", "post_ffw_norm"):
            maker.ones(f"{at}.{part}.weight", N_EMBD)
    if kind in ("qwen2vl", "gpt-oss"):
        for part, heads in (("q", N_HEAD), ("k", N_HEAD_KV), ("v", N_HEAD_KV)):
            maker.noise(f"{at}.attn_{part}.bias", heads * N_HEAD_DIM)
    if kind == "qwen35":
        maker.ones(f"{at}.post_attention_norm.weight", N_EMBD)
    if kind == "gpt-oss":
        maker.noise(f"{at}.attn_output.bias", N_EMBD)
        maker.noise(f"{at}.attn_sinks.weight", N_HEAD)
        maker.ones(f"{at}.post_attention_norm.weight", N_EMBD)
        maker.experts(at)
    elif kind != "mamba":
        maker.ffn(at, has_norm=kind != "qwen35")


def write_model(
    path: Path,
    kind: str,
    matrix_type: MatrixType = np.float16,
    window: int = WINDOW,
    weights: Weights = Weights(),
) -> str:
    """With np.float32 logits hardly depend on the shapes in which they are computed."""
    maker = _Maker(path, kind, matrix_type, weights)
    _numbers(maker.writer, kind, window)
    maker.tokenizer()
    maker.matrix("token_embd.weight", N_VOCAB, N_EMBD, weights.embedding)
    maker.ones("token_embd_norm.weight" if kind == "lfm2" else "output_norm.weight", N_EMBD)
    if kind == "gpt-oss" or not weights.is_tied:
        maker.matrix("output.weight", N_VOCAB, N_EMBD, 4.0)
    for i in range(N_LAYER):
        _layer(maker, kind, i)
    maker.writer.write_header_to_file()
    maker.writer.write_kv_data_to_file()
    maker.writer.write_tensors_to_file()
    maker.writer.close()
    return str(path)


def write_models(
    folder: Path, kinds: Iterable[str], matrix_type: type[np.floating] = np.float32
) -> dict[str, str]:
    """Write a model of each kind and return the paths."""
    return {kind: write_model(folder / f"{kind}.gguf", kind, matrix_type) for kind in kinds}
