"""Exports the model's weights and the tokens of the lessons for the training, in one file that NumPy reads.

The weights are dequantized, so that PyTorch needs no GGUF. A llamad that is started for this makes the tokens with the
model's own template, and returns logprobs with which the forward pass is checked.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.client import Client
from bench.errors import BenchError
from bench.lora import lessons
from bench.lora.adapter_file import PARTS
from bench.lora.lessons import Lesson
from bench.programs import LLAMAD, Options, Programs

ARCH = "llama"
N_CTX = 1024
N_PROBES = 4


def shape_of(fields: Any) -> dict[str, Any]:
    """Return the fields of forward.Shape."""

    def value(name: str) -> Any:
        return fields[f"{ARCH}.{name}"].contents()

    n_head = int(value("attention.head_count"))
    base = f"{ARCH}.rope.freq_base"
    return {
        "n_layer": int(value("block_count")),
        "n_head": n_head,
        "n_head_kv": int(value("attention.head_count_kv")),
        "n_head_dim": int(value("embedding_length")) // n_head,
        "rms_eps": float(value("attention.layer_norm_rms_epsilon")),
        "rope_base": float(fields[base].contents()) if base in fields else 10_000.0,
    }


def weights_of(reader: Any) -> dict[str, Any]:
    import gguf

    weights = {}
    for one in reader.tensors:
        if not one.name.endswith(".weight") or one.name.startswith("rope_freqs"):
            raise BenchError(f"{one.name} is a tensor that the training does not know: use another model")
        weights[one.name] = gguf.dequantize(one.data, one.tensor_type).astype(np.float16)
    return weights


def ids(client: Client, text: str, add_special: bool) -> list[int]:
    body = {"content": text, "add_special": add_special, "parse_special": True}
    tokens: list[int] = client.ask("/tokenize", body)["tokens"]
    return tokens


def tokens_of(client: Client, lesson: Lesson, eos: int) -> tuple[list[int], int]:
    """Return the tokens of the chat, and where its answer begins. The answer is tokenized alone, as the model will
    generate it."""
    messages = [{"role": "user", "content": lesson.question}]
    prompt = ids(client, client.ask("/apply-template", {"messages": messages})["prompt"], True)
    return [*prompt, *ids(client, lesson.answer, False), eos], len(prompt)


def logprobs(client: Client, tokens: list[int]) -> list[float]:
    """Return llama.cpp's logprobs of each token but the first."""
    body = {"prompt": tokens, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    values = client.ask("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"]
    out: list[float] = values[1 : len(tokens)]
    return out


def filled_up(texts: list[tuple[list[int], int]]) -> dict[str, Any]:
    """Return the texts as rows of the same length; `counts` is 1 for tokens of an answer."""
    n = max(len(tokens) for tokens, _ in texts)
    tokens = np.zeros((len(texts), n), np.int32)
    counts = np.zeros((len(texts), n), np.float32)
    for i, (text, start) in enumerate(texts):
        tokens[i, : len(text)] = text
        counts[i, start : len(text)] = 1
    return {"tokens": tokens, "counts": counts}


def write(model: Path, out: Path, threads: int) -> None:
    import gguf

    reader = gguf.GGUFReader(model)
    arch = str(reader.fields["general.architecture"].contents())
    if arch != ARCH:
        raise BenchError(f"{model} is of the architecture {arch}: only {ARCH} can be trained here")
    arrays = weights_of(reader)
    arrays["shape"] = np.array(json.dumps(shape_of(reader.fields)))
    arrays["arch"], arrays["parts"] = np.array(arch), np.array(PARTS)
    eos = int(reader.fields["tokenizer.ggml.eos_token_id"].contents())
    taught, _ = lessons.read()
    with tempfile.TemporaryDirectory(prefix="llamad-lora-") as folder:
        options = Options(str(model), 1, N_CTX, threads or None, 1)
        program = Programs().start(LLAMAD, options, Path(folder))
        try:
            program.wait_ready()
            texts = [tokens_of(program.client, one, eos) for one in taught]
            arrays |= filled_up(texts)
            arrays["n_probes"] = np.array(N_PROBES)
            for i, (tokens, _) in enumerate(texts[:N_PROBES]):
                arrays[f"probe_tokens_{i}"] = np.array(tokens, np.int32)
                arrays[f"probe_logprobs_{i}"] = np.array(logprobs(program.client, tokens), np.float32)
        finally:
            program.stop()
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, **arrays)
    n_answers = int(arrays["counts"].sum())
    print(f"{out}: {len(taught)} lessons, {n_answers} tokens of answers, {out.stat().st_size:,} bytes")
