"""Answers outlive the daemon: a chat that comes back after a restart has the tokens with which it was generated. The
model has random weights, so its tokens of a text are others than the tokenizer's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.live_daemon import Live, until

SYSTEM = " ".join(f"Rule {i}: be brief." for i in range(40))
SAID = "Sure, I will look at the file now, and then I will tell what it says."
GRAMMAR = f'root ::= "{SAID}"'


def server(folder: Path, model: str, *flags: str) -> Live:
    common = ("-np", "1", "-c", "2048", "--api-key", "first,second", "--cache-disk", str(folder))
    return Live(*common, *flags, model=model)


def ask(live: Live, *turns: str, key: str = "first", **options: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": SYSTEM}]
    messages += [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    body = {"messages": messages, "grammar": GRAMMAR, "temperature": 1.0, "seed": 7, **options}
    answer = live.client.request(
        "POST", "/v1/chat/completions", body, headers={"Authorization": f"Bearer {key}"}
    )
    assert answer.status == 200, answer.body
    value: dict[str, Any] = answer.json
    return value


def n_prompt(got: dict[str, Any]) -> int:
    n: int = got["usage"]["prompt_tokens"]
    return n


def answers(folder: Path) -> list[Path]:
    return list(folder.glob("llamad-prompts/*.turn"))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_after_a_restart(tiny: str, tmp_path: Path, how: signal.Signals) -> None:
    with server(tmp_path, tiny) as live:
        first = ask(live, "Look at it.")
        turns = ("Look at it.", f" {SAID}\n", "And now?")
        with_tokens = n_prompt(ask(live, *turns))
        plain = n_prompt(ask(live, *turns, key="second"))
        assert plain < with_tokens  # the tokenizer needs fewer tokens for the text than the random model
        if how == signal.SIGKILL:
            until(lambda: len(answers(tmp_path)) >= 3, "the answers were not written")
            until(lambda: list(tmp_path.glob("llamad-prompts/*.block")), "the prompt was not written")
        live.signal(how)
        live.wait_exit()
    with server(tmp_path, tiny) as live:
        live.wait_line(r"--cache-disk .*: \d+ prompts")
        again = ask(live, *turns)
        assert n_prompt(again) == with_tokens
        assert again["timings"]["cache_n"] >= first["usage"]["total_tokens"] - 1
        assert n_prompt(ask(live, *turns, key="second")) == plain
    with server(tmp_path, tiny, "--no-replay") as live:
        assert n_prompt(ask(live, *turns)) == plain


def test_damaged_and_removed_answers_are_text(tiny: str, tmp_path: Path) -> None:
    turns = ("Look at it.", SAID, "And now?")
    with server(tmp_path, tiny) as live:
        ask(live, "Look at it.")
        with_tokens, plain = n_prompt(ask(live, *turns)), n_prompt(ask(live, *turns, key="second"))
    for file in answers(tmp_path):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    with server(tmp_path, tiny) as live:
        live.wait_line(r"--cache-disk .*: \d+ prompts")
        assert n_prompt(ask(live, *turns)) == plain < with_tokens
        ask(live, "Look at it.")
        last = ask(live, *turns)
        assert n_prompt(last) == with_tokens
        n_tokens = last["usage"]["total_tokens"] - 1
        until(
            lambda: any(one["n_tokens"] >= n_tokens for one in listed(tmp_path)), "the prompt was not written"
        )
    assert answers(tmp_path)
    command("rm", str(tmp_path), *(one["name"] for one in listed(tmp_path)))
    with server(tmp_path, tiny) as live:
        assert n_prompt(ask(live, *turns)) == plain


def command(*arguments: str) -> str:
    run = [sys.executable, "-m", "llamad", "cache", *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=True).stdout


def listed(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command("list", str(folder), "--json"))
    return found
