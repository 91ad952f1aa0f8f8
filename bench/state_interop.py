"""`python -m bench.state_interop`: a slot saved by one program is restored by the other, both ways.

Needs llama-server (LLAMA_SERVER or --server). Says for each way whether the restored slot is re-used and whether the
next tokens are those that follow without the detour; exits with 1 where they are not.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import ending
from bench.errors import BenchError
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Program, free_port, llamad_command, peer_flags

PROMPT = (
    "The lighthouse stood at the end of a long road. Its keeper wrote down every ship that passed, and every storm,"
    " and every visitor, and after forty years he had filled"
)
MORE = " a whole room with books. One evening a stranger"
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Found:
    """One way's outcome."""

    saver: str
    restorer: str
    n_saved: int
    n_restored: int
    n_bytes: int
    n_cached: int
    same_text: bool

    @property
    def is_good(self) -> bool:
        # llama-server computes the last token of a prompt again, so that one less may be re-used.
        return self.same_text and self.n_saved == self.n_restored and self.n_cached >= self.n_saved - 2

    def line(self) -> str:
        verdict = "the same next tokens" if self.same_text else "OTHER next tokens"
        return (
            f"{self.saver} -> {self.restorer}: {self.n_saved} tokens saved ({self.n_bytes} bytes), "
            f"{self.n_restored} restored, {self.n_cached} re-used, {verdict}"
        )


def ask(program: Program, path: str, body: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection(*program.address, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise BenchError(f"{program.name} answered {path} with {response.status}: {answer[:300]!r}")
    return json.loads(answer)


def complete(program: Program, prompt: str, n_predict: int) -> Any:
    body = {"prompt": prompt, "n_predict": n_predict, "id_slot": 0, "temperature": 0, "cache_prompt": True}
    return ask(program, "/completion", {**body, "return_tokens": True, "ignore_eos": True})


def try_way(saver: Program, restorer: Program, n_predict: int) -> Found:
    name = f"{saver.name}.bin"
    for program in (saver, restorer):
        ask(program, "/slots/0?action=erase", {})
    complete(saver, PROMPT, 1)
    saved = ask(saver, "/slots/0?action=save", {"filename": name})
    # What follows in the restoring program without the detour.
    complete(restorer, PROMPT, 1)
    expected = complete(restorer, PROMPT + MORE, n_predict)["tokens"]
    ask(restorer, "/slots/0?action=erase", {})
    restored = ask(restorer, "/slots/0?action=restore", {"filename": name})
    answer = complete(restorer, PROMPT + MORE, n_predict)
    return Found(
        saver.name,
        restorer.name,
        saved["n_saved"],
        restored["n_restored"],
        saved["n_written"],
        answer["timings"].get("cache_n", -1),
        answer["tokens"] == expected,
    )


def start(flags: argparse.Namespace, folder: Path) -> list[Program]:
    states = folder / "states"
    states.mkdir()
    cache = ("-ctk", flags.cache, "-ctv", flags.cache, "-fa", flags.flash_attn)
    options = Options(flags.model, flags.slots, 2048 * flags.slots, flags.threads, 4, cache)
    programs = []
    for name, command, extra in (
        (LLAMAD, llamad_command(), []),
        (LLAMA_SERVER, [flags.server], peer_flags(flags.server, 4)),
    ):
        port = free_port()
        whole = [*command, *options.flags(port), *extra, "--slots", "--slot-save-path", f"{states}/"]
        programs.append(Program(name, whole, port, folder / f"{name}.log"))
    return programs


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.state_interop", description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLAMAD_TEST_MODEL"), help="the GGUF file")
    parser.add_argument("--server", default=os.environ.get("LLAMA_SERVER"), help="llama-server's program")
    parser.add_argument("--slots", type=int, default=2, help="slots of each program (2)")
    parser.add_argument("--threads", type=int, default=1, help="threads that compute (1)")
    parser.add_argument("--predict", type=int, default=24, help="tokens to compare (24)")
    parser.add_argument("--cache", default="f16", help="type of the cached keys and values (f16)")
    parser.add_argument("--flash-attn", default="auto", choices=("on", "off", "auto"), help="of both (auto)")
    flags = parser.parse_args(arguments)
    if not flags.model or not flags.server:
        print("name --model (LLAMAD_TEST_MODEL) and --server (LLAMA_SERVER)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="llamad-interop-") as text:
        programs = start(flags, Path(text))
        try:
            for program in programs:
                program.wait_ready()
            ours, theirs = programs
            found = [try_way(ours, theirs, flags.predict), try_way(theirs, ours, flags.predict)]
        except BenchError as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            for program in programs:
                program.stop()
    for one in found:
        print(one.line())
    return 0 if all(one.is_good for one in found) else 1


if __name__ == "__main__":
    ending.with_children()
    sys.exit(main(sys.argv[1:]))
