"""What a request's access line says, and that no client can forge one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from llamad.http.access_log import json_line, quoted, text_line

DETAILS = [("model", 'a "b'), ("n", 3), ("queue_ms", 1.5)]


def test_a_message_keeps_its_spaces_and_forges_nothing() -> None:
    assert quoted("The queue is full", 100) == '"The queue is full"'
    assert quoted('a "b"\n1.2.3.4 é\\', 100) == "\"a 'b'\\x0a1.2.3.4 \\xe9\\x5c\""
    assert quoted("long " * 100, 20) == '"long long long long "'


@pytest.fixture
def over(serve: Any) -> Any:
    """Sends a request; returns the exchange when it is over, and what its line is made of."""
    h = serve()

    def over(path: str, *headers: str) -> tuple[str, dict[str, Any]]:
        made: list[tuple[str, dict[str, Any]]] = []
        log = h.server._access_log

        def make(exchange: Any, seconds: float) -> None:
            log(exchange, seconds)
            exchange.details = lambda: DETAILS
            exchange.failure = 'no\n"such" \\ thing' if "fail" in path else None
            made.append((text_line(exchange, 0.01234), json.loads(f"{{{json_line(exchange, 0.01234)}}}")))

        h.server._access_log = make
        with h.connect() as c:
            c.get(path, "X-Request-Id: id-1", *headers)
        h.wait_quiet()
        h.server._access_log = log
        return made[0]

    return over


def test_details_are_words_and_fields(over: Any) -> None:
    text, row = over("/hello", "X-Key: a b")
    assert re.fullmatch(
        r'127\.0\.0\.1:\d+ id-1 "GET /hello" 200 6 12\.3ms a\\x20b model=a\\x20\\x22b n=3 queue_ms=1500\.0',
        text,
    )
    assert row.pop("peer").startswith("127.0.0.1:")
    assert row == {
        "id": "id-1",
        "method": "GET",
        "path": "/hello",
        "status": 200,
        "bytes": 6,
        "ms": 12.3,
        "key": "a b",
        "model": 'a "b',
        "n": 3,
        "queue_ms": 1500.0,
    }


def test_a_json_line_is_one_line_whatever_was_sent(over: Any) -> None:
    text, row = over("/fail%0A%22%5C%C3%A9%E2%82%AC%1b")
    assert "\n" not in text
    assert text.endswith(" error=\"no\\x0a'such' \\x5c thing\"")
    assert row["path"] == '/fail\n"\\é€\x1b'
    assert row["error"] == 'no\n"such" \\ thing'
    assert row["status"] == 404
