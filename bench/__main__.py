"""`python -m bench COMMAND`: runs the command, prints errors as one line, and ends its child processes when stopped.

It imports a command only when it is needed, because `build` runs where no package is installed yet. Exit status 75
means that the time is up; run the same command again.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import children
from bench.deadline import RUN_AGAIN, OutOfTimeError
from bench.errors import BenchError

VENV_PYTHON = Path(__file__).parents[1] / ".venv" / "bin" / "python"

# Each module has add_flags(parser) and main(flags), which returns an exit status.
COMMANDS = {
    "run": ("bench.run", "measure servers: tokens/s, first tokens, gaps, small requests, start-up, memory"),
    "attacks": ("bench.attacks.command", "how much a hostile client slows down the others"),
    "memory-budget": (
        "bench.memory_budget",
        "memory of requests at their limits, and after all clients have disconnected",
    ),
    "agents": ("bench.agents", "what is computed again when more agents than slots take turns"),
    "cache-gaps": ("bench.cache_gaps", "gaps of streams while conversations are saved and restored"),
    "same-text": ("bench.same_text", "check that llamad generates the same text as llama-server"),
    "conversation": ("bench.conversation", "how much of a growing conversation is prefilled again"),
    "cold-models": ("bench.cold_models", "first token of a model that is not loaded, two models at once"),
    "estimates": ("bench.fit.estimates", "the memory that is estimated for models, and what they take"),
    "fit": ("bench.fit.command", "what --fit chooses, compared with llama-server"),
    "fleet": (
        "bench.fleet.command",
        "simulate many machines behind a gateway: recomputed tokens, first tokens",
    ),
    "gateways": (
        "bench.gateways.command",
        "how HAProxy, nginx and smg work in front of several llamads, and their cost",
    ),
    "idle-prefixes": ("bench.idle_prefixes", "a stream beside idle conversations, and one that returns"),
    "installed": ("bench.installed", "CPU time of another installation of llamad, such as a wheel's"),
    "media": ("bench.media", "first tokens of chats with images, and gaps of streams while images arrive"),
    "speculation": ("bench.speculation", "tokens/s with drafts and without, text by text"),
    "state": ("bench.state", "saving and restoring slots"),
    "tiers": (
        "bench.tiers",
        "first tokens of a conversation in its slot, in host memory, on disk, or nowhere",
    ),
    "state-interop": ("bench.state_interop", "check that each program can read the other's slot files"),
    "loop-guard": (
        "bench.micro.loop_guard",
        "check that the loop guard ends none of the texts and code files in folders",
    ),
    "sampler": ("bench.micro.sampler", "µs per token, compared with llama.cpp's sampler chain"),
    "step": ("bench.micro.step", "µs that the engine adds to a step of a GPU, over a fake one, by part"),
    "grammar": (
        "bench.micro.grammar",
        "µs that a grammar adds to a token, compared with llama.cpp; --beside: llguidance, xgrammar",
    ),
    "http-servers": (
        "bench.micro.http_servers",
        "CPU time of a small request, compared with uvicorn and aiohttp",
    ),
    "tokenizer": ("bench.micro.tokenizers", "µs to tokenize a text, compared with llama.cpp and tokenizers"),
    "tls-handshakes": (
        "bench.micro.tls_handshakes",
        "how much TLS handshakes cost an event loop, compared with uvloop's TLS",
    ),
    "state-engine": ("bench.micro.state_engine", "saving and restoring slots without HTTP"),
    "build": ("bench.gpu.build", "build llamad, llama-server and llama-batched-bench for a GPU, offline"),
    "model": ("bench.gpu.model", "write a GGUF of a real model's shape with random weights"),
    "projector": (
        "bench.gpu.projector",
        "write a GGUF of an image encoder's shape with random weights, for `media`",
    ),
    "lora": ("bench.lora.seeded", "write LoRA adapters of random weights for a model"),
    "train-lora": ("bench.lora.command", "train a small LoRA adapter with PyTorch and show what it does"),
}


def usage() -> str:
    lines = [f"  {name:16}{summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        ["usage: python -m bench [COMMAND] [--help] ...", "", *lines, "", "Without a command: run."]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. The exit status says whether it could be measured, not what the result is."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["-h"], ["--help"]):
        print(usage())
        return 0
    if not words or words[0].startswith("-"):
        words.insert(0, "run")
    if words[0] not in COMMANDS:
        print(f"bench: there is no command {words[0]}\n\n{usage()}", file=sys.stderr)
        return 2
    module = importlib.import_module(COMMANDS[words[0]][0])
    parser = argparse.ArgumentParser(prog=f"python -m bench {words[0]}", description=module.__doc__)
    module.add_flags(parser)
    flags = parser.parse_args(words[1:])
    try:
        return int(module.main(flags))
    except OutOfTimeError:
        print("bench: the time is up: run the same command again to continue", file=sys.stderr)
        return RUN_AGAIN
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
    except OSError as error:
        print(f"bench: {error.filename or 'system'}: {error.strerror or error}", file=sys.stderr)
    return 1


def use_environment() -> None:
    """Continue in the checkout's environment if this Python lacks the packages. PyTorch is not in there."""
    is_elsewhere = sys.argv[1:2] == ["build"] or sys.argv[1:3] == ["train-lora", "train"]
    if not is_elsewhere and importlib.util.find_spec("uvloop") is None and VENV_PYTHON.exists():
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), "-m", "bench", *sys.argv[1:]])


if __name__ == "__main__":
    use_environment()
    children.end_with_us()
    sys.exit(main())
