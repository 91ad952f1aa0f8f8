"""The compiled event of a plain stream: the very bytes that the general way makes."""

from __future__ import annotations

import msgspec
import pytest

from llamad.api.generate.text_part import plain_event

encode = msgspec.json.Encoder().encode


@pytest.mark.parametrize("tokens", [[], [0], [1, 49_151, 2_147_483_647]])
@pytest.mark.parametrize("data", [b"", b" hello", b'say "x" \\n\n', bytes(range(0x20, 0x7F))])
def test_a_plain_event_is_what_the_encoder_makes(data: bytes, tokens: list[int]) -> None:
    wanted = b'data: {"content":%b,"tokens":%b,"stop":false}\n\n' % (encode(data.decode()), encode(tokens))
    assert plain_event(tokens, data) == wanted


@pytest.mark.parametrize("data", ["é".encode(), b"\xff", b"\t", b"\x00", b"\x7f", b"x" * 5000])
def test_what_is_not_plain_is_left_to_the_general_way(data: bytes) -> None:
    assert plain_event([1], data) is None


def test_a_token_that_is_no_number_is_an_error() -> None:
    with pytest.raises(TypeError):
        plain_event(["1"], b"x")  # type: ignore[list-item]
