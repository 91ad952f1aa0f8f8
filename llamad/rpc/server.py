"""`llamad rpc-server`: becomes llama.cpp's ggml-rpc-server, which lends this machine's devices to other machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

from llamad.rpc import keep_alive

PROGRAM = Path(__file__).parents[1] / "lib" / "ggml-rpc-server"


def _is_open(host: str) -> bool:
    """Return whether hosts outside a private network may reach the address."""
    try:
        address = ip_address(host)
    except ValueError:
        return False  # the program only takes addresses, and will say so
    return address.is_unspecified or not address.is_private


def main(arguments: Sequence[str]) -> int:
    """Replace this process by the program; return 1 if it cannot be run."""
    for flag, host in pairwise(arguments):
        if flag in ("-H", "--host") and _is_open(host):
            print(
                f"llamad: -H {host} is not an address of a private network; whoever reaches the port controls this"
                " process: the RPC protocol has no authentication and no encryption",
                file=sys.stderr,
                flush=True,
            )
    if cache := os.environ.get("LLAMA_CACHE"):
        os.environ["LLAMA_CACHE"] = os.path.abspath(cache)
    try:
        keep_alive.begin()
        os.chdir(PROGRAM.parent)  # ggml would load every backend that it finds in the current directory
        os.execv(PROGRAM, ["llamad rpc-server", *arguments])
    except OSError as error:
        print(f"llamad: {PROGRAM} cannot be run: {error.strerror}", file=sys.stderr)
        return 1
