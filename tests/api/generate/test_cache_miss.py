"""`timings.cache_miss`: what a request computed again, where, and why, over the real program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.live_daemon import Live

RULES = " ".join(f"Rule {i}: be brief." for i in range(30))
NOTES = " ".join(f"Note {i} is old." for i in range(30))


@pytest.fixture(scope="module")
def server(tiny: str) -> Iterator[Live]:
    with Live("-np", "1", "-c", "4096", "--metrics", "--cache-ram", "0", model=tiny) as made:
        yield made


def ask(server: Live, *messages: tuple[str, str], **options: Any) -> dict[str, Any]:
    body = {
        "messages": [{"role": role, "content": text} for role, text in messages],
        "max_tokens": 2,
        "temperature": 0,
        **options,
    }
    answer = server.client.post("/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    timings: dict[str, Any] = answer.json["timings"]
    return timings


def test_reasons(server: Live) -> None:
    system, notes = ("system", RULES), ("user", NOTES)
    assert "cache_miss" not in ask(server, system, notes)
    assert "cache_miss" not in ask(server, system, notes)
    # The next turn is new.
    assert "cache_miss" not in ask(server, system, notes, ("assistant", "Yes."), ("user", "And? " * 100))

    changed = ask(server, ("system", RULES.replace("Rule 3:", "Law 3:")), notes)["cache_miss"]
    assert (changed["part"], changed["reason"]) == ("system", "changed")
    assert changed["was"].lstrip().startswith("Rule 3: be brief.")
    assert changed["is"].lstrip().startswith("Law 3: be brief.")
    assert len(changed["was"]) <= 80 >= len(changed["is"])
    assert changed["n"] > 300

    message = ask(server, ("system", RULES.replace("Rule 3:", "Law 3:")), ("user", "Once. " + NOTES))[
        "cache_miss"
    ]
    assert (message["part"], message["reason"]) == ("message 1", "changed")

    ask(server, ("user", "Something else entirely. " * 50))
    evicted = ask(server, system, notes)["cache_miss"]
    assert evicted["reason"] == "evicted"
    assert evicted["was"] == evicted["is"]
    other = ask(server, system, notes, cache_prompt=False)["cache_miss"]
    assert (other["reason"], other["at"]) == ("other", 0)

    lines = [line for line in server.lines if "known tokens were computed again" in line]
    assert len(lines) == 4
    assert "(message 1): changed" in lines[1]
    assert not any("Rule" in line for line in lines)
    metrics = server.client.get("/metrics").body.decode()
    assert 'llamad:cache_misses_total{reason="changed"} 2' in metrics
    assert 'llamad:cache_misses_total{reason="adapters"} 0' in metrics


def test_slots_show_the_texts_to_the_key_of_the_request_alone(tiny: str) -> None:
    with Live("-np", "1", "-c", "4096", "--slots", "--api-key", "first,second", model=tiny) as live:

        def request(method: str, path: str, body: Any = None, key: str = "first") -> Any:
            answer = live.client.request(method, path, body, headers={"Authorization": f"Bearer {key}"})
            assert answer.status == 200, answer.body
            return answer.json

        def chat(rules: str) -> dict[str, Any]:
            messages = [{"role": "user", "content": rules}]
            timings: dict[str, Any] = request(
                "POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 2}
            )["timings"]
            return timings

        chat(RULES)
        assert "cache_miss" not in request("GET", "/slots")[0]
        miss = chat(RULES.replace("Rule 2:", "Law 2:"))["cache_miss"]
        assert request("GET", "/slots")[0]["cache_miss"] == miss
        numbers = {name: value for name, value in miss.items() if name not in ("was", "is")}
        assert request("GET", "/slots", key="second")[0]["cache_miss"] == numbers
        chat(RULES.replace("Rule 2:", "Law 2:"))
        assert "cache_miss" not in request("GET", "/slots")[0]


def test_fewer_than_64_tokens_are_no_miss_and_64_are(tiny: str) -> None:
    """The threshold counts tokens that the key knows; those that are new do not count."""
    with Live("-np", "1", "-c", "4096", "--cache-ram", "0", model=tiny) as live:

        def ask(prompt: list[int]) -> dict[str, Any]:
            answer = live.client.post("/completion", {"prompt": prompt, "n_predict": 1})
            assert answer.status == 200, answer.body
            timings: dict[str, Any] = answer.json["timings"]
            return timings

        known, other = list(range(100, 300)), list(range(300, 500))
        for n, is_miss in ((64, False), (65, True)):  # the last token of a prompt is always computed
            ask(known)
            ask(other)  # it takes the slot
            miss = ask(known[:n]).get("cache_miss")
            assert (miss is not None) == is_miss, n
            if miss is not None:
                assert (miss["n"], miss["at"], miss["part"], miss["reason"]) == (64, 0, "prompt", "evicted")
            ask(other)
