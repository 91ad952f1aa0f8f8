"""Measures the first tokens of chats with images, and the gaps of streams that decode while images arrive.

A round sends a text with as many tokens as an image, then a new image, the same image with another question after it
(it is in the prefix cache), and once more with another question before it (only its encoding is known). Then streams
decode alone, and then while new images arrive, each in a separate request. Programs stay loaded and alternate rounds.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench import harness, load, programs, report
from bench.errors import BenchError
from bench.flags import has_gpu
from bench.flags import names as names_of
from bench.harness import Point
from bench.load import Group
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Program, Programs
from bench.prompts import CHAT, REAL, Prompts
from bench.stats import Measures, divide

MEASURES = (
    *("text_first_ms", "image_first_ms", "again_first_ms", "moved_first_ms"),
    *("alone_gap_p50_ms", "alone_gap_p99_ms", "gap_p50_ms", "gap_p99_ms", "gap_max_ms", "gap_p99_over_p50"),
    *("side_first_p50_ms", "side_first_max_ms", "image_rows", "again_computed"),
)
CACHED = ("again_first_ms", "moved_first_ms")
PATCHES = 28  # coloured patches along a side of an image, with smooth transitions
N_TEXTS = 4  # texts of a round, in addition to those of the streams and the arriving images
WARM_UP = 1_000_000  # the first number of images and texts that are sent before anything is timed
ANSWER_TOKENS = 8

Part = dict[str, Any] | str  # a part of a message: an image, or a text


def picture(number: int, side: int, seed: int) -> str:
    """Return a PNG as a data: URI, another one for each number."""
    pixels = np.random.default_rng([seed, number]).integers(0, 256, (PATCHES, PATCHES, 3), np.uint8)
    image = Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def image_part(uri: str) -> Part:
    return {"type": "image_url", "image_url": {"url": uri}}


def chat(parts: Sequence[Part], n_predict: int = ANSWER_TOKENS, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in parts]
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": n_predict,
        "temperature": 0.0,
    }
    streamed = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    return body | streamed | more


class MediaPoint(Point):
    """A point of chats with images. The requests of a round are made once for all programs, before it is timed."""

    def __init__(self, flags: argparse.Namespace, options: Options) -> None:
        arriving = f"images of {flags.size} pixels, {flags.at_once} at once"
        name = f"streams: {flags.streams}, {arriving}, {flags.images} in all"
        super().__init__(name, options, flags.rounds)
        self.flags = flags
        self._prompts = Prompts(REAL, flags.seed, CHAT)
        self._n_rows = 0
        self._uris: dict[int, str] = {}

    def prepare(self, program: Program) -> None:
        flags = self.flags
        self._prompts.learn(program.client)
        if not self._n_rows:
            question = self.text(WARM_UP)
            seen = self.n_tokens(program, [image_part(self.uri(WARM_UP)), question])
            self._n_rows = seen - self.n_tokens(program, [question])
            if self._n_rows < 1:
                raise BenchError(f"{program.name} counts no tokens for an image")
        warm = [chat([image_part(self.uri(WARM_UP + i)), self.text(WARM_UP + i)]) for i in range(2)]
        self.send(program, Group(1, warm, CHAT), n_each=2)
        self.send(program, Group(flags.streams, self.writers(WARM_UP, n_predict=16)))

    def measure(self, program: Program, index: int) -> Measures:
        flags = self.flags
        first = index * (N_TEXTS + flags.images)
        uri = self.uri(first)
        asked: dict[str, list[Part]] = {
            "text_first_ms": [self.text(first, self._n_rows)],
            "image_first_ms": [image_part(uri), self.text(first + 1)],
            "again_first_ms": [image_part(uri), self.text(first + 2)],
            "moved_first_ms": [self.text(first + 3), image_part(uri), self.text(first + 1)],
        }
        replies = {}
        for key, parts in asked.items():  # a new request takes nothing from a cache, not even the template
            body = chat(parts, cache_prompt=key in CACHED)
            replies[key] = self.send(program, Group(1, [body], CHAT))
        arriving = [
            chat([image_part(self.uri(first + N_TEXTS + i)), self.text(first + N_TEXTS + i)])
            for i in range(flags.images)
        ]
        alone = self.send(program, Group(flags.streams, self.writers(2 * index)))
        writers = Group(flags.streams, self.writers(2 * index + 1))
        beside = self.send(program, writers, Group(flags.at_once, arriving, CHAT))
        return {key: one["first_mean_ms"] for key, one in replies.items()} | {
            "again_computed": replies["again_first_ms"]["prompt_computed"],
            "alone_gap_p50_ms": alone["gap_p50_ms"],
            "alone_gap_p99_ms": alone["gap_p99_ms"],
            **{key: value for key, value in beside.items() if key in MEASURES or key == "generator_cpu"},
            "gap_p99_over_p50": divide(beside["gap_p99_ms"], beside["gap_p50_ms"]),
            "image_rows": self._n_rows,
        }

    def n_tokens(self, program: Program, parts: list[Part]) -> int:
        """Return the tokens of the prompt, as the server counts them."""
        reply = program.client.ask(CHAT, chat(parts, 1, stream=False, stream_options=None))
        return int(reply["usage"]["prompt_tokens"])

    def send(self, program: Program, main: Group, side: Group | None = None, n_each: int = 1) -> Measures:
        flags = self.flags
        return load.streams(
            program.port, main, side, flags.timeout, n_each, flags.images // flags.at_once if side else 0
        )

    def uri(self, number: int) -> str:
        if number not in self._uris:
            self._uris[number] = picture(number, self.flags.size, self.flags.seed)
        return self._uris[number]

    def text(self, number: int, n_more: int = 0) -> str:
        """Return a question, or a text that is longer by `n_more` tokens."""
        return str(self._prompts.prompt(number, self.flags.question + n_more))

    def writers(self, lap: int, n_predict: int | None = None) -> list[dict[str, Any]]:
        """Return the requests of the streams: each has another prompt of ids, so that every token is an event."""
        flags = self.flags
        common = {"stream": True, "ignore_eos": True, "cache_prompt": False, "return_tokens": True}
        prompts = (self._prompts.ids(lap * flags.streams + i, flags.question) for i in range(flags.streams))
        length = {"n_predict": n_predict or flags.predict, "seed": flags.seed}
        return [{"prompt": prompt, **length, **common} for prompt in prompts]


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--mmproj", required=True, help="the projector's GGUF (`python -m bench projector` writes one)")
    add("--streams", type=int, default=8, help="streams that decode (8)")
    add("--images", type=int, default=8, help="images that arrive meanwhile (8)")
    add("--at-once", type=int, help="how many images at once; the next ones follow when these are done (all)")
    add("--size", type=int, default=896, help="pixels of an image's side (896)")
    add("--question", type=int, default=32, help="tokens of a question (32)")
    add("--predict", type=int, default=512, help="tokens of a stream, which must outlast the images (512)")
    add("--rounds", type=int, default=5, help="rounds of each program (5)")
    add("--ctx", type=int, default=1024, help="tokens of context for each slot (1024)")
    add("--cpu", action=argparse.BooleanOptionalAction, default=not has_gpu(), help="-ngl 0, one thread")
    add("--threads", type=int, help="-t of all programs (with --cpu 1, else their own choice)")
    add("--programs", type=names_of, help="a list of llama-server, llamad (those that are installed)")
    add("--args", type=shlex.split, default=[], help="flags for all programs")
    add("--llamad-args", type=shlex.split, default=[], help="flags for llamad")
    add("--server-args", type=shlex.split, default=[], help="flags for llama-server")
    add("--timeout", type=float, default=600.0, help="seconds for one measurement (600)")
    add("--seed", type=int, default=1, help="seed of texts, images and sampling (1)")
    add("--json", type=Path, help="also write the single rounds to this file")


def check(flags: argparse.Namespace) -> None:
    programs.check_model(flags)
    if not Path(flags.mmproj).is_file():
        raise BenchError(f"{flags.mmproj} is not a file: `python -m bench projector` writes one")
    flags.at_once = flags.at_once or flags.images
    for name in ("streams", "images", "at_once", "size", "question", "predict", "rounds"):
        if getattr(flags, name) < 1:
            raise BenchError(f"--{name.replace('_', '-')} must be at least 1")
    if flags.images % flags.at_once:
        raise BenchError("--images must be a multiple of --at-once")


def options_of(flags: argparse.Namespace) -> Options:
    """Return options with a slot for each stream and each image that arrives at once."""
    n_slots = flags.streams + flags.at_once
    threads = flags.threads or (1 if flags.cpu else None)
    ngl = "0" if flags.cpu else "99"
    extra = ("--mmproj", flags.mmproj, "-fa", "on", "-ngl", ngl, *flags.args)
    return Options(str(flags.model), n_slots, n_slots * flags.ctx, threads, n_slots, extra)


def main(flags: argparse.Namespace) -> int:
    check(flags)
    there = Programs(flags.server, None, {LLAMAD: flags.llamad_args, LLAMA_SERVER: flags.server_args})
    names = flags.programs or [name for name in (LLAMA_SERVER, LLAMAD) if there.path(name)]
    for name in names:
        there.require(name)
    point = MediaPoint(flags, options_of(flags))
    with tempfile.TemporaryDirectory(prefix="llamad-media-") as folder:
        rounds = harness.measure(point, names, there, True, Path(folder))
    found: report.Found = {(point.name, name): some for name, some in rounds.items()}
    print(report.details(found, point.name, (*MEASURES, "server_cpu", "elsewhere_cpu"), True), flush=True)
    if flags.json is not None:
        flags.json.write_text(json.dumps(rounds, indent=2) + "\n", encoding="utf-8")
    return 0
