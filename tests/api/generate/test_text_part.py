"""The one writer of events: what it makes of a text is what the JSON encoder would make of it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.api.generate.stream_event import TextFrame, write_event

FRAME = TextFrame(b'{"content":', b',"stop":false}', tokens=True)


def told(event: bytes) -> bytes:
    return event.removeprefix(b"data: ").removesuffix(b"\n\n")


@given(
    st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace")),
    st.lists(st.integers(0, 2**31 - 1)),
)
def test_a_text_with_its_tokens(data: bytes, tokens: list[int]) -> None:
    wanted = {"content": data.decode("utf-8", "replace"), "tokens": tokens, "stop": False}
    assert FRAME.of_bytes(data, tokens) == write_event(wanted)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_alone_in_an_event_with_a_name(text: str) -> None:
    frame = TextFrame(b'{"delta":', b"}", name=b"delta")
    assert frame.of_text(text) == write_event({"delta": text}, b"delta")


def test_a_long_text() -> None:
    data = "\x01é\n" * 5000
    assert msgspec.json.decode(told(FRAME.of_bytes(data.encode(), [1, 2]))) == {
        "content": data,
        "tokens": [1, 2],
        "stop": False,
    }


def test_tokens_are_numbers() -> None:
    with pytest.raises(TypeError):
        FRAME.of_bytes(b"x", ["1"])
