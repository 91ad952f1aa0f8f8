"""`maxLength` beside a `format` whose pieces have limits of their own."""

from typing import Any

import pytest


@pytest.mark.parametrize("most", [20, 63, 64, 100, 150])
def test_a_mail_address_with_a_length(hold: Any, most: int) -> None:
    yes = ["a@b.co", "first.last@mail.de", "a@" + "b" * (min(most, 63) - 4) + ".c", "a@b--c.d-e.f1"]
    no = [
        "a@" + "b" * (most - 3) + ".c",
        "a@b.co" * 30,
        "a@b",
        "a@b-.c",
        "@b.co",
        "a..b@c.de",
        "a@b.1",
        "a@.b",
    ]
    hold({"type": "string", "format": "email", "maxLength": most}, yes, no)
    hold({"allOf": [{"type": "string", "format": "email"}, {"maxLength": most}]}, yes, no)


def test_a_long_length_does_not_limit_a_mail_address(hold: Any) -> None:
    longest = "a" * 30 + "@" + "b" * 29 + ".example.org"
    hold(
        {"type": "string", "format": "email", "maxLength": 254}, [longest], ["a@b", longest + "." + "c" * 200]
    )


@pytest.mark.parametrize("most", [20, 63, 64, 200])
def test_a_host_name_with_a_length(hold: Any, most: int) -> None:
    n = min(most, 63)
    yes = ["localhost", "a-1.example.com", "a" * n, "a." * (n // 2 - 1) + "b"]
    hold(
        {"type": "string", "format": "hostname", "maxLength": most},
        yes,
        ["", "-a.de", "a" * (most + 1), "1.2"],
    )
