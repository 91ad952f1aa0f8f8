"""Measures how much faster or slower generation is with drafts, text by text and at several numbers of streams.

Every way to draft is a server of its own; all stay loaded and take turns. A round sends the same requests to each, all
at once, and adds up the rates that the answers report: tokens from the first to the last, prompts left out. Without
--server there is no llama-server. Texts are those of bench/texts.
"""

from __future__ import annotations

import argparse
import http.client
import random
import re
import shlex
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import programs
from bench.client import Client
from bench.errors import BenchError
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Program, Programs

TEXTS = Path(__file__).parent / "texts"
N_PROSE = 2000  # characters
PLAIN = "llamad, --spec off"


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--streams", type=_numbers, default=[1, 4, 16, 64], help="streams at once, a list (1,4,16,64)")
    add(
        "--texts",
        type=lambda text: text.split(","),
        default=list(MAKERS),
        help="a list of " + ", ".join(MAKERS),
    )
    add("--predict", type=int, default=256, help="tokens of each answer (256)")
    add("--rounds", type=int, default=3, help="rounds (3)")
    add("--ctx", type=int, default=4096, help="tokens of context for each slot (4096)")
    add("--threads", type=int, help="-t of all programs (their own choice)")
    add("--args", type=shlex.split, default=[], help="flags for all programs")
    add("--way", action="append", help="flags of llamad with which to draft; may be repeated (--spec auto)")
    add("--server-way", action="append", help="the same for llama-server (--spec-default)")


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


# --- texts ------------------------------------------------------------------------------------------------------


def _part(name: str, n: int, draw: random.Random) -> str:
    """Return n characters of a text, from the beginning of some line on."""
    text = (TEXTS / f"{name}.txt").read_text(encoding="utf-8")
    starts = [0] + [at + 1 for at, letter in enumerate(text) if letter == "\n" and at + n < len(text)]
    start = draw.choice(starts)
    return text[start : start + n]


def _source(draw: random.Random) -> tuple[str, str]:
    """Return a whole source file, and what a fence calls its language."""
    path = draw.choice(sorted((TEXTS / "sources").iterdir()))
    return path.read_text(encoding="utf-8"), {".py": "python", ".js": "javascript", ".rs": "rust"}[
        path.suffix
    ]


def _rewrite(draw: random.Random) -> str:
    code, language = _source(draw)
    name = draw.choice(re.findall(r"(?:def|function|fn) ([a-z]\w+)\(", code))
    wish = f"Rename the function `{name}` to `{name}_v{draw.randrange(2, 100)}` in this file, and print the whole file."
    return f"{wish} Change nothing else.\n\n```{language}\n{code}```"


def _fix(draw: random.Random) -> str:
    code, language = _source(draw)
    signs = [match.start() for match in re.finditer(r" (?:<|>|\+=|-=|===|==) ", code)]
    at = draw.choice(signs)
    broken = code[:at] + code[at:].replace(code[at:].split()[0], "!=", 1)
    wish = (
        "One comparison or assignment of this file is wrong. Print the whole file with that line corrected."
    )
    return f"{wish}\n\n```{language}\n{broken}```"


def _summarise(draw: random.Random) -> str:
    return f"Summarise this text in five sentences.\n\n{_part('prose', N_PROSE, draw)}"


def _chat(draw: random.Random) -> str:
    return f"Go on with this conversation.\n\n{_part('chats', N_PROSE, draw)}"


def _prose(draw: random.Random) -> str:
    hero = draw.choice(["sailor", "baker", "clock", "lighthouse"])
    return f"Write a long story about a {hero} in {draw.randrange(1500, 1900)}."


def _random(draw: random.Random) -> str:
    return " ".join(str(draw.randrange(10**6)) for _ in range(120))


MAKERS = {
    "rewrite": _rewrite,
    "fix": _fix,
    "summarise": _summarise,
    "chat": _chat,
    "prose": _prose,
    "random": _random,
}


# --- measuring --------------------------------------------------------------------------------------------------


def _ask(program: Program, prompt: str, n_predict: int) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": n_predict,
        "temperature": 0.0,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    client = Client(program.address)
    try:
        reply: dict[str, Any] = client.ask("/v1/chat/completions", body)
        return reply
    finally:
        client.close()


def _measure(program: Program, prompts: list[str], n_predict: int) -> tuple[float, float]:
    """Return tokens/s of all streams, and the part of the drafted tokens that were right; zeros if the program fails or
    has ended: llama-server does with drafts for 64 streams."""
    try:
        with ThreadPoolExecutor(len(prompts)) as pool:
            replies = list(pool.map(lambda prompt: _ask(program, prompt, n_predict), prompts))
    except (BenchError, OSError, http.client.HTTPException) as error:
        print(f"{program.name}: {error}", flush=True)
        return 0.0, 0.0
    timings = [reply["timings"] for reply in replies]
    n_drafted = sum(one.get("draft_n", 0) for one in timings)
    n_accepted = sum(one.get("draft_n_accepted", 0) for one in timings)
    rate = sum(one["predicted_n"] / one["predicted_ms"] * 1000 for one in timings)
    return rate, n_accepted / max(1, n_drafted)


def _start_all(flags: argparse.Namespace, n_streams: int, folder: Path) -> dict[str, Program]:
    def start(name: str, words: str) -> Program:
        extra = (*flags.args, *shlex.split(words))
        options = Options(flags.model, n_streams, flags.ctx * n_streams, flags.threads, n_streams, extra)
        return Programs(flags.server).start(name, options, folder)

    started = {PLAIN: start(LLAMAD, "")}
    for words in flags.way or ["--spec auto"]:
        started[f"llamad, {words}"] = start(LLAMAD, words)
    if Programs(flags.server).path(LLAMA_SERVER):
        started["llama-server"] = start(LLAMA_SERVER, "")
        for words in flags.server_way or ["--spec-default"]:
            started[f"llama-server, {words}"] = start(LLAMA_SERVER, words)
    return started


def _print_row(text: str, n_streams: int, rates: dict[str, list[tuple[float, float]]]) -> None:
    plain = statistics.median(rate for rate, _ in rates[PLAIN]) or 1.0
    cells = []
    for measured in rates.values():
        rate, share = (statistics.median(values) for values in zip(*measured, strict=True))
        if not rate:
            cells.append("failed")
            continue
        cells.append(f"{rate:,.0f} ({rate / plain:.2f}" + (f", {share:.0%} right)" if share else ")"))
    print(f"| {text} | {n_streams} | " + " | ".join(cells) + " |", flush=True)


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    for n_streams in flags.streams:
        with tempfile.TemporaryDirectory(prefix="llamad-speculation-") as folder:
            started = _start_all(flags, n_streams, Path(folder))
            try:
                for program in started.values():
                    program.wait_ready()
                print("| text | streams | " + " | ".join(started) + " |")
                print("| --- | --: |" + " --- |" * len(started), flush=True)
                for text in flags.texts:
                    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in started}
                    for index in range(flags.rounds):
                        draw = random.Random(f"{text} {index}")
                        prompts = [MAKERS[text](draw) for _ in range(n_streams)]
                        order = list(started.items())
                        for name, program in order if index % 2 == 0 else reversed(order):
                            rates[name].append(_measure(program, prompts, flags.predict))
                    _print_row(text, n_streams, rates)
            finally:
                for program in started.values():
                    program.stop()
    return 0
