"""Trains a small adapter that teaches a model of the llama architecture a habit, in steps for one or two machines.

export: reads weights and tokens from the GGUF; llamad must run there. train: only needs PyTorch and NumPy. save: writes
the adapter as a GGUF. show: asks questions that were not taught, with the adapter and without.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from bench.errors import BenchError

SHOWN_TOKENS = 64
LEAST_MET = 0.75  # the share of answers that must have the habit with the adapter; without it none may


def add_flags(parser: argparse.ArgumentParser) -> None:
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    one = steps.add_parser("export", help="the GGUF's weights and the lessons' tokens, for `train`")
    one.add_argument("--model", type=Path, required=True, help="the GGUF")
    one.add_argument("--out", type=Path, required=True, help="the file to write (.npz)")
    one.add_argument("--threads", type=int, default=0, help="of llamad (its own choice)")
    one = steps.add_parser("train", help="with PyTorch")
    one.add_argument("--from", dest="source", type=Path, required=True, help="what `export` wrote")
    one.add_argument("--out", type=Path, required=True, help="the file to write (.npz)")
    one.add_argument("--rank", type=int, default=16)
    one.add_argument("--alpha", type=float, default=32.0)
    one.add_argument("--steps", type=int, default=200)
    one.add_argument("--batch", type=int, default=8)
    one.add_argument("--rate", type=float, default=1e-3, help="the highest learning rate (0.001)")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--device", default="auto", help="cuda, cpu (cuda if there is one)")
    one.add_argument("--threads", type=int, default=0, help="of PyTorch (its own choice)")
    one = steps.add_parser("save", help="the adapter as a GGUF")
    one.add_argument("--from", dest="source", type=Path, required=True, help="what `train` wrote")
    one.add_argument("--out", type=Path, required=True, help="the file to write (.gguf)")
    one = steps.add_parser("show", help="answers without the adapter and with it")
    one.add_argument("--model", type=Path, required=True, help="the GGUF")
    one.add_argument("--adapter", type=Path, required=True, help="what `save` wrote")
    one.add_argument("--threads", type=int, default=0, help="of llamad (its own choice)")
    one.add_argument("--ngl", type=int, default=0, help="layers on the device (0)")


def main(flags: argparse.Namespace) -> int:
    for name in ("model", "source", "adapter"):
        path = getattr(flags, name, None)
        if path is not None and not path.is_file():
            raise BenchError(f"{path} is not a file")
    if flags.step == "export":
        from bench.lora import export

        export.write(flags.model, flags.out, flags.threads)
    elif flags.step == "train":
        _train(flags)
    elif flags.step == "save":
        _save(flags.source, flags.out)
    else:
        return _show(flags)
    return 0


def _train(flags: argparse.Namespace) -> None:
    if min(flags.rank, flags.steps, flags.batch) < 1:
        raise BenchError("--rank, --steps and --batch must be at least 1")
    try:
        from bench.lora import train
    except ModuleNotFoundError as error:
        raise BenchError(
            f"no module {error.name}: run this step with a Python that has PyTorch and NumPy"
        ) from None
    how = {
        name: getattr(flags, name)
        for name in ("rank", "alpha", "steps", "batch", "rate", "seed", "device", "threads")
    }
    train.run(flags.source, flags.out, train.Settings(**how))


def _save(source: Path, out: Path) -> None:
    import numpy as np

    from bench.lora import adapter_file

    arrays = np.load(source)
    about = json.loads(str(arrays["about"]))
    names = [name.removesuffix(".lora_a") for name in arrays.files if name.endswith(".lora_a")]
    pairs = ((name, arrays[f"{name}.lora_a"], arrays[f"{name}.lora_b"]) for name in names)
    adapter_file.write(out, about["arch"], about["alpha"], pairs)
    print(f"{out}: {len(names)} matrices, {out.stat().st_size:,} bytes")


def _show(flags: argparse.Namespace) -> int:
    """Ask the questions. Return 1 if the adapter does not do what it was taught, or the model does it without it."""
    from bench.lora import lessons
    from bench.programs import LLAMAD, Options, Programs

    _, asked = lessons.read()
    n_met = {0.0: 0, 1.0: 0}
    more = ("-ngl", str(flags.ngl), "--lora-init-without-apply", "--lora", str(flags.adapter))
    with tempfile.TemporaryDirectory(prefix="llamad-lora-") as folder:
        program = Programs().start(
            LLAMAD, Options(str(flags.model), 1, 1024, flags.threads or None, 1, more), Path(folder)
        )
        try:
            program.wait_ready()
            for question in asked:
                print(question.text)
                for scale in n_met:
                    body = {"messages": [{"role": "user", "content": question.text}], "temperature": 0}
                    body |= {"max_tokens": SHOWN_TOKENS, "lora": [{"id": 0, "scale": scale}]}
                    answer = program.client.ask("/v1/chat/completions", body)["choices"][0]["message"][
                        "content"
                    ]
                    n_met[scale] += question.is_met(answer)
                    print(f"  {'with   ' if scale else 'without'} {answer!r}", flush=True)
        finally:
            program.stop()
    print(
        f"as taught: {n_met[0.0]} of {len(asked)} without the adapter, {n_met[1.0]} of {len(asked)} with it"
    )
    return 0 if n_met[1.0] >= LEAST_MET * len(asked) and not n_met[0.0] else 1
