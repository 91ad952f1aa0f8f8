"""A conversation moves from one machine to another with the commands of docs/cluster.md, and is not read again."""

from __future__ import annotations

import re
from pathlib import Path

from support.live_daemon import TESTS, Live
from support.shell_examples import run

FLAGS = ("--slots", "-c", "8192", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "--temp", "0")
TEXT = (TESTS.parent / "docs" / "cluster.md").read_text()


def commands(old: str, new: str, slot: int) -> str:
    (example,) = re.findall(r"```sh\n(old=.*?)```", TEXT, re.DOTALL)
    first, rest = example.split("\n", 1)
    assert first == "old=http://10.0.0.1:8080 new=http://10.0.0.2:8080 slot=0"
    return f"old={old} new={new} slot={slot}\n{rest}"


def test_a_conversation_goes_on_elsewhere_without_being_read_again(tiny: str, tmp_path: Path) -> None:
    with Live(*FLAGS, model=tiny) as first, Live(*FLAGS, "-np", "2", model=tiny) as second:
        turn = {"role": "user", "content": "Tell me a long story. " * 40}
        ask = {"messages": [turn], "max_tokens": 30}
        answer = first.client.post("/v1/chat/completions", {**ask, "id_slot": 1}).json
        n_known = answer["usage"]["total_tokens"]
        urls = [f"http://{one.client.host}:{one.client.port}" for one in (first, second)]
        run(commands(urls[0], urls[1], slot=1), tmp_path)
        words = answer["choices"][0]["message"]
        ask["messages"] = [turn, words, {"role": "user", "content": "Go on."}]
        moved = second.client.post("/v1/chat/completions", ask).json
        stayed = first.client.post("/v1/chat/completions", ask).json
        n_prompt = stayed["usage"]["prompt_tokens"]
        assert n_prompt > n_known > 200
        n_computed = stayed["timings"]["prompt_n"]
        assert moved["timings"]["prompt_n"] == n_computed < n_prompt // 4
        assert moved["choices"][0]["message"] == stayed["choices"][0]["message"]
