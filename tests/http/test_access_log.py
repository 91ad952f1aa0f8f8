"""What a request's access line says, and that no client can forge one."""

from __future__ import annotations

from llamad.http.access_log import quoted


def test_a_message_keeps_its_spaces_and_forges_nothing() -> None:
    assert quoted("The queue is full", 100) == '"The queue is full"'
    assert quoted('a "b"\n1.2.3.4 é\\', 100) == "\"a 'b'\\x0a1.2.3.4 \\xe9\\x5c\""
    assert quoted("long " * 100, 20) == '"long long long long "'
