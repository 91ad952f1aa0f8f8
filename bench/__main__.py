"""`python -m bench COMMAND`: picks the command, tells errors in one line, ends what was started when it is stopped.

Imports a command only when it is asked for: `build` runs where no package is installed yet. Exit status 75: the time
is up, run the same command again.
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
    "attacks": ("bench.attacks.command", "what a hostile client costs the others"),
    "memory-budget": (
        "bench.memory_budget",
        "memory of requests at their limits, and after all clients left",
    ),
    "same-text": ("bench.same_text", "check that llamad writes llama-server's text"),
    "conversation": ("bench.conversation", "how much of a growing conversation is prefilled again"),
    "estimates": ("bench.fit.estimates", "the memory that is foretold for models, and what they then take"),
    "fit": ("bench.fit.command", "what --fit chooses, beside llama-server"),
    "fleet": (
        "bench.fleet.command",
        "simulate many machines behind a gateway: what is computed again, first tokens",
    ),
    "gateways": (
        "bench.gateways.command",
        "what HAProxy, nginx and smg do in front of several llamads, and cost",
    ),
    "idle-prefixes": ("bench.idle_prefixes", "a stream beside idle conversations, and one that returns"),
    "media": ("bench.media", "first tokens of chats with images, and gaps of streams while images arrive"),
    "state": ("bench.state", "saving and restoring slots"),
    "state-interop": ("bench.state_interop", "check that slot files go from one program to the other"),
    "sampler": ("bench.micro.sampler", "µs a token, beside llama.cpp's sampler chain"),
    "grammar": (
        "bench.micro.grammar",
        "µs a grammar adds to a token, beside llama.cpp's; --beside: llguidance's, xgrammar's",
    ),
    "http-servers": ("bench.micro.http_servers", "CPU of a small request, beside uvicorn and aiohttp"),
    "tokenizer": ("bench.micro.tokenizers", "µs to tokenize a text, beside llama.cpp and tokenizers"),
    "tls-handshakes": (
        "bench.micro.tls_handshakes",
        "what TLS handshakes cost an event loop, beside uvloop's TLS",
    ),
    "state-engine": ("bench.micro.state_engine", "saving and restoring slots without HTTP"),
    "build": ("bench.gpu.build", "build llamad, llama-server and llama-batched-bench for a GPU, offline"),
    "model": ("bench.gpu.model", "write a GGUF of a real model's shape with random weights"),
    "projector": ("bench.gpu.projector", "likewise of an image encoder, for `media`"),
    "lora": ("bench.lora.seeded", "write LoRA adapters of random weights for a model"),
    "train-lora": ("bench.lora.command", "train a small LoRA adapter with PyTorch and show what it does"),
}


def usage() -> str:
    lines = [f"  {name:16}{told}" for name, (_, told) in COMMANDS.items()]
    return "\n".join(
        ["usage: python -m bench [COMMAND] [--help] ...", "", *lines, "", "Without a command: run."]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status tells whether it could be measured, not what came out."""
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
        print("bench: the time is up: run the same command again to go on", file=sys.stderr)
        return RUN_AGAIN
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
    except OSError as error:
        print(f"bench: {error.filename or 'system'}: {error.strerror or error}", file=sys.stderr)
    return 1


def use_environment() -> None:
    """Goes on in the checkout's environment where this Python lacks the packages. PyTorch is not in there."""
    is_elsewhere = sys.argv[1:2] == ["build"] or sys.argv[1:3] == ["train-lora", "train"]
    if not is_elsewhere and importlib.util.find_spec("uvloop") is None and VENV_PYTHON.exists():
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), "-m", "bench", *sys.argv[1:]])


if __name__ == "__main__":
    use_environment()
    children.end_with_us()
    sys.exit(main())
