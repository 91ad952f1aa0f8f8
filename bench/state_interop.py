"""Checks that a slot which one program saves can be restored by the other, in both directions.

For each direction it prints whether the restored slot is reused, and whether the next tokens are the same as without
saving; it exits with 1 if they are not.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import programs
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Program, Programs

PROMPT = (
    "The lighthouse stood at the end of a long road. Its keeper wrote down every ship that passed, and every storm,"
    " and every visitor, and after forty years he had filled"
)
MORE = " a whole room with books. One evening a stranger"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one direction."""

    saver: str
    restorer: str
    n_saved: int
    n_restored: int
    n_bytes: int
    n_cached: int
    same_text: bool

    @property
    def is_good(self) -> bool:
        # llama-server computes the last token of a prompt again, so one token less may be reused.
        return self.same_text and self.n_saved == self.n_restored and self.n_cached >= self.n_saved - 2

    def line(self) -> str:
        verdict = "the same next tokens" if self.same_text else "OTHER next tokens"
        return (
            f"{self.saver} -> {self.restorer}: {self.n_saved} tokens saved ({self.n_bytes} bytes), "
            f"{self.n_restored} restored, {self.n_cached} re-used, {verdict}"
        )


def complete(program: Program, prompt: str, n_predict: int) -> Any:
    body = {"prompt": prompt, "n_predict": n_predict, "id_slot": 0, "temperature": 0, "cache_prompt": True}
    return program.client.ask("/completion", {**body, "return_tokens": True, "ignore_eos": True})


def try_way(saver: Program, restorer: Program, n_predict: int) -> Outcome:
    name = f"{saver.name}.bin"
    for program in (saver, restorer):
        program.client.ask("/slots/0?action=erase", {})
    complete(saver, PROMPT, 1)
    saved = saver.client.ask("/slots/0?action=save", {"filename": name})
    # The next tokens of the restoring program without saving.
    complete(restorer, PROMPT, 1)
    expected = complete(restorer, PROMPT + MORE, n_predict)["tokens"]
    restorer.client.ask("/slots/0?action=erase", {})
    restored = restorer.client.ask("/slots/0?action=restore", {"filename": name})
    answer = complete(restorer, PROMPT + MORE, n_predict)
    return Outcome(
        saver.name,
        restorer.name,
        saved["n_saved"],
        restored["n_restored"],
        saved["n_written"],
        answer["timings"].get("cache_n", -1),
        answer["tokens"] == expected,
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    parser.add_argument("--slots", type=int, default=2, help="slots of each program (2)")
    parser.add_argument("--threads", type=int, default=1, help="compute threads (1)")
    parser.add_argument("--predict", type=int, default=24, help="tokens to compare (24)")
    parser.add_argument("--cache", default="f16", help="type of the cached keys and values (f16)")
    parser.add_argument(
        "--flash-attn", default="auto", choices=("on", "off", "auto"), help="-fa of both (auto)"
    )


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    there, running = Programs(flags.server), []
    with tempfile.TemporaryDirectory(prefix="llamad-interop-") as name:
        cache = ("-ctk", flags.cache, "-ctv", flags.cache, "-fa", flags.flash_attn)
        extra = (*cache, "--slots", "--slot-save-path", f"{name}/")
        options = Options(flags.model, flags.slots, 2048 * flags.slots, flags.threads, 4, extra)
        try:
            for program_name in (LLAMAD, LLAMA_SERVER):
                running.append(there.start(program_name, options, Path(name)))
            for program in running:
                program.wait_ready()
            ours, theirs = running
            outcomes = [try_way(ours, theirs, flags.predict), try_way(theirs, ours, flags.predict)]
        finally:
            for program in running:
                program.stop()
    for one in outcomes:
        print(one.line())
    return 0 if all(one.is_good for one in outcomes) else 1
