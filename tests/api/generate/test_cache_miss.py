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
