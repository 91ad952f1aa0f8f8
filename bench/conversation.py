"""Measures how many tokens are prefilled that were prefilled before: llamad and llama-server replay the same requests.

`talk`: 20 turns over /completion; messages are rewritten, answers lose their beginning, and old turns are continued.
`agent`: 20 steps over /v1/chat/completions with tools and a growing history; in between there are short requests of
another kind, as coding agents send them, and once a shortened history. One request at a time, two slots.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import programs
from bench.client import Client
from bench.flags import id_range
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Programs
from bench.prompts import REAL, Prompts

N_TURNS, N_ANSWER = 20, 24
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {given: {"type": "string"}}, "required": [given]},
        },
    }
    for name, description, given in (
        ("read_file", "Read a file of the project.", "path"),
        ("run_command", "Run a command and return its output.", "command"),
        ("write_file", "Write a file of the project.", "path"),
    )
]


@dataclass(slots=True)
class Count:
    """The tokens of all prompts, how many of them had been prefilled before, and how many of these were prefilled
    again."""

    n_prompt: int = 0
    n_known: int = 0
    n_again: int = 0
    n_computed: int = 0

    def line(self, title: str) -> str:
        share = 100 * self.n_again / max(1, self.n_known)
        return (
            f"{title}: {self.n_prompt} prompt tokens, {self.n_known} known, {self.n_again} of them prefilled again"
            f" ({share:.1f} %), {self.n_computed} prefilled in all"
        )


def common(a: list[int], b: list[int]) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


class Replay:
    """Sends requests to one server and remembers every sequence that it has computed."""

    def __init__(self, client: Client, prompts: Prompts, seed: int, ids: range | None) -> None:
        self.client = client
        self.ids = ids
        self.random = random.Random(seed)
        self.prompts = prompts
        self.count = Count()
        self._held: list[list[int]] = []
        self._n_texts = itertools.count()

    def text(self, n_low: int, n_high: int) -> str:
        """Return another text each time; every server gets the same ones."""
        return self.prompts.about(next(self._n_texts), self.random.randrange(n_low, n_high))

    def tokens(self, text: str) -> list[int]:
        ids: list[int] = self.client.ask("/tokenize", {"content": text, "add_special": False})["tokens"]
        return ids

    def note(self, tokens: list[int], timings: dict[str, Any], answer: list[int]) -> None:
        n_known = min(max((common(one, tokens) for one in self._held), default=0), len(tokens) - 1)
        self.count.n_prompt += len(tokens)
        self.count.n_known += n_known
        self.count.n_again += max(0, n_known - timings["cache_n"])
        self.count.n_computed += timings["prompt_n"]
        self._held.append(tokens + answer[:-1])


class Talk(Replay):
    """A conversation as token ids, so that it works with every model, with or without a template."""

    def ask(self, prompt: list[int]) -> list[int]:
        body = {"prompt": prompt, "n_predict": N_ANSWER, "temperature": 0.0, "ignore_eos": True}
        done = self.client.ask("/completion", body | {"return_tokens": True, "stream": False})
        answer: list[int] = done["tokens"]
        self.note(prompt, done["timings"], answer)
        return answer

    def turn(self, history: list[int]) -> list[int]:
        prompt = history + self.message(40, 120)
        return prompt + self.ask(prompt)

    def message(self, n_low: int, n_high: int) -> list[int]:
        if self.ids:
            return self.random.choices(self.ids, k=self.random.randrange(n_low, n_high))
        return self.tokens(f"\nUser: {self.text(n_low, n_high)}\nAssistant:")

    def run(self) -> None:
        histories = [self.message(200, 300)]
        for i in range(N_TURNS):
            history = self.turn(histories[-1])
            if i % 4 == 1:  # the message is rewritten, twice
                self.turn(histories[-1])
                history = self.turn(histories[-1])
            if i % 4 == 3:  # the beginning of the answer is not sent again
                history = history[:-N_ANSWER] + history[-N_ANSWER // 2 :]
            histories.append(history)
        for i in (15, 10, N_TURNS, 3, N_TURNS):  # forks
            self.turn(self.turn(histories[i]))


class Agent(Replay):
    """The requests of a coding agent: its rules, its tools, then calls and their results."""

    def ask(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> None:
        body: dict[str, Any] = {"messages": messages, **({"tools": tools} if tools else {})}
        rendered = self.client.ask("/apply-template", body)["prompt"]
        tokens = self.client.ask("/tokenize", {"content": rendered, "add_special": True})["tokens"]
        body |= {"max_tokens": N_ANSWER, "temperature": 0.0, "stream": False}
        done = self.client.ask("/v1/chat/completions", body)
        self.note(tokens, done["timings"], [])

    def run(self) -> None:
        rules = {"role": "system", "content": self.text(300, 301)}
        messages: list[dict[str, Any]] = [rules, {"role": "user", "content": self.text(60, 90)}]
        for i in range(N_TURNS):
            self.ask(messages, TOOLS)
            name, given = self.random.choice(
                [("read_file", "path"), ("run_command", "command"), ("write_file", "path")]
            )
            call = {"name": name, "arguments": json.dumps({given: self.text(6, 12)})}
            called = {"id": f"call_{i:09}", "type": "function", "function": call}
            messages += [
                {"role": "assistant", "content": None, "tool_calls": [called]},
                {"role": "tool", "tool_call_id": called["id"], "content": self.text(60, 200)},
            ]
            if i % 5 == 2:  # a title, a summary: short, without tools
                asked = {"role": "user", "content": self.text(40, 60)}
                self.ask([{"role": "system", "content": "Name the topic."}, asked], [])
            if i % 7 == 6:
                messages += [{"role": "user", "content": self.text(20, 40)}]
        # Old results are cut out, and the rest stays, so everything after the cut is new.
        self.ask([*messages[:8], *messages[12:]], TOOLS)
        self.ask(messages, TOOLS)


REPLAYS: dict[str, Callable[[Client, Prompts, int, range | None], Talk | Agent]] = {
    "talk": Talk,
    "agent": Agent,
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--replay", choices=tuple(REPLAYS), action="append", help="talk, agent (both)")
    add("--programs", default=f"{LLAMAD},{LLAMA_SERVER}", help="a list (llamad,llama-server)")
    add("--ctx", type=int, default=16384, help="tokens of context, for two slots (16384)")
    add(
        "--ids",
        type=id_range,
        metavar="FIRST,END",
        help="talk: random token ids, for a model without a tokenizer",
    )
    add("--threads", type=int, default=1, help="compute threads (1)")
    add("--seed", type=int, default=1, help="seed of the messages (1)")


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    there = Programs(flags.server)
    options = Options(flags.model, 2, flags.ctx, flags.threads, 1, is_tuned=False)
    for name, kind in itertools.product(flags.programs.split(","), flags.replay or list(REPLAYS)):
        with tempfile.TemporaryDirectory(prefix="llamad-conversation-") as folder:
            program = there.start(name, options, Path(folder))
            try:
                program.wait_ready()
                prompts = Prompts(REAL, flags.seed)
                if not flags.ids:
                    prompts.learn(program.client)
                replay = REPLAYS[kind](program.client, prompts, flags.seed, flags.ids)
                replay.run()
                print(replay.count.line(f"{kind}, {name}"), flush=True)
            finally:
                program.stop()
    return 0
