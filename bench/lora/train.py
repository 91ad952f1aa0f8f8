"""Trains the adapter: reads what `export` wrote, and writes the adapter's matrices for `save`.

It only needs PyTorch and NumPy. Before the training, the forward pass must give the same logprobs as llama.cpp.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.errors import BenchError
from bench.lora import forward

# The allowed mean difference of the logprobs. On a CPU llama.cpp rounds values to 8 bits before it multiplies them with
# quantized weights: 0.09 with SmolLM2 in Q4_1, 0.002 with the same weights in F32. A wrong forward pass differs by more
# than 1.
TOLERANCE = 0.3
REPORT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    rank: int
    alpha: float
    steps: int
    batch: int
    rate: float
    seed: int
    device: str
    threads: int


def chosen_device(name: str) -> str:
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def check_forward(model: forward.Model, arrays: Any, device: str) -> None:
    """Compare the untrained model with llama.cpp's logprobs for the same tokens. Raises BenchError."""
    differences, ours, theirs = [], [], []
    for i in range(int(arrays["n_probes"])):
        tokens = torch.from_numpy(arrays[f"probe_tokens_{i}"]).long().to(device)[None]
        with torch.no_grad():
            own = forward.logprobs(model, None, tokens)[0].cpu().numpy()
        expected = arrays[f"probe_logprobs_{i}"]
        differences += list(np.abs(own - expected))
        ours.append(-own.mean())
        theirs.append(-expected.mean())
    mean, worst = float(np.mean(differences)), float(np.max(differences))
    losses = f"loss {np.mean(ours):.4f}, llama.cpp's {np.mean(theirs):.4f}"
    print(
        f"untrained, {len(differences)} tokens: {losses}; logprobs differ by {mean:.4f}, at most {worst:.4f}"
    )
    if not mean < TOLERANCE:
        raise BenchError(
            f"the forward pass is not llama.cpp's: its logprobs differ by {mean:.3f} in the mean"
        )


def run(source: Path, out: Path, settings: Settings) -> None:
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = chosen_device(settings.device)
    model, arrays = forward.load(source, device)
    print(f"{source}: {model.shape}, PyTorch {torch.__version__} on {device}", flush=True)
    check_forward(model, arrays, device)
    parts = [str(name) for name in arrays["parts"]]
    adapter = forward.new_adapter(model, parts, settings.rank, settings.alpha, settings.seed)
    _learn(model, adapter, arrays, settings, device)
    matrices = {f"{name}.lora_a": one.detach().cpu().numpy() for name, one in adapter.a.items()}
    matrices |= {f"{name}.lora_b": one.detach().cpu().numpy() for name, one in adapter.b.items()}
    matrices["about"] = np.array(json.dumps({"alpha": settings.alpha, "arch": str(arrays["arch"])}))
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, **matrices)
    print(f"{out}: {len(adapter.a)} matrices of rank {settings.rank}")


def _learn(
    model: forward.Model, adapter: forward.Adapter, arrays: Any, settings: Settings, device: str
) -> None:
    """Train the adapter. Only the answers count. The rate rises over a tenth of the steps and then falls to zero."""
    tokens = torch.from_numpy(arrays["tokens"]).long().to(device)
    counts = torch.from_numpy(arrays["counts"]).to(device)  # 1 for tokens of an answer
    optimizer = torch.optim.AdamW(
        [*adapter.a.values(), *adapter.b.values()], lr=settings.rate, weight_decay=0.0
    )
    n_warm = max(1, settings.steps // 10)
    random = np.random.default_rng(settings.seed)
    order: list[int] = []
    t_start = t_printed = time.monotonic()
    for step in range(settings.steps):
        while len(order) < settings.batch:
            order += random.permutation(len(tokens)).tolist()
        some, order = order[: settings.batch], order[settings.batch :]
        left = 1 - (step - n_warm) / max(1, settings.steps - n_warm)
        for group in optimizer.param_groups:
            group["lr"] = settings.rate * min((step + 1) / n_warm, left)
        n = int(counts[some].sum(0).nonzero().max()) + 1  # the length of the longest text
        weights = counts[some, 1:n]
        loss = -(forward.logprobs(model, adapter, tokens[some, :n]) * weights).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (0, settings.steps - 1) or time.monotonic() - t_printed > REPORT_SECONDS:
            t_printed = time.monotonic()
            print(f"step {step + 1}: loss {loss.item():.4f} ({t_printed - t_start:.0f} s)", flush=True)
