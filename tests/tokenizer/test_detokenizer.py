"""What leaves the engine as text: whole characters, no part of a stop string, nothing lost."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake
from llamad.protocol.messages import STOP_EOS, STOP_WORD


def generate(script: bytes, **options) -> tuple[Harness, int]:
    harness = Harness(Fake(script=script, n_ctx=4096), n_ctx=4096)
    with harness:
        task = harness.submit(**options)
        harness.wait(task)
    return harness, task


def pieces(harness: Harness, task: int) -> list[bytes]:
    return [text.data for text in harness.texts(task)]


def test_a_split_character_is_held_back_until_whole():
    harness, task = generate("aß€😀z".encode())
    assert [piece.decode() for piece in pieces(harness, task)] == ["a", "ß", "€", "😀", "z", ""]
    assert harness.tokens(task) == [3 + byte for byte in "aß€😀z".encode()] + [1]


def test_a_character_that_is_never_completed_leaves_at_the_end():
    harness, task = generate(b"ok\xe2\x82")
    assert harness.text(task) == b"ok\xe2\x82"
    assert harness.end(task).stop_type == STOP_EOS


def test_bytes_that_cannot_begin_a_character_are_not_held_back():
    harness, task = generate(b"\xff\xc0\x80\xed\xa0x")
    assert pieces(harness, task)[:2] == [b"\xff", b"\xc0"]
    assert harness.text(task) == b"\xff\xc0\x80\xed\xa0x"


def test_a_stop_string_over_token_borders_ends_the_text_before_it():
    harness, task = generate(b"one two ENDLESS", stops=[b"END"])
    assert harness.text(task) == b"one two "
    assert (harness.end(task).stop_type, harness.end(task).stop_word) == (STOP_WORD, 0)


def test_of_two_stop_strings_the_earlier_in_the_text_wins():
    harness, task = generate(b"abcXYdef", stops=[b"Y", b"XY", b"never"])
    assert harness.text(task) == b"abc"
    assert (harness.end(task).stop_type, harness.end(task).stop_word) == (STOP_WORD, 1)


def test_a_stop_string_that_does_not_complete_is_sent_after_all():
    harness, task = generate(b"say EN", stops=[b"END"])
    assert harness.text(task) == b"say EN"
    assert harness.end(task).stop_type == STOP_EOS


def test_a_stop_string_at_the_very_end_and_of_the_whole_text():
    for script, stop, expected in ((b"done.", b".", b"done"), (b"STOP", b"STOP", b"")):
        harness, task = generate(script, stops=[stop])
        assert harness.text(task) == expected
        assert harness.end(task).stop_type == STOP_WORD


def reference(script: bytes, stops: list[bytes]) -> tuple[bytes, int]:
    """The text after each byte is looked at once: the first prefix of the script that holds a stop string ends it."""
    for n in range(1, len(script) + 1):
        stops_seen = [(script[:n].find(stop), i) for i, stop in enumerate(stops) if stop in script[:n]]
        if stops_seen:
            at, which = min(stops_seen)
            return script[:at], which
    return script, -1


scripts = st.one_of(
    st.binary(min_size=1, max_size=60),
    st.text("abA ß€😀\n", min_size=1, max_size=40).map(str.encode),
)
stop_lists = st.lists(st.text("abA ß€", min_size=1, max_size=4).map(str.encode), max_size=4)


@settings(max_examples=150, deadline=None)
@given(script=scripts, stops=stop_lists, stream=st.booleans())
def test_any_text_and_any_stops(script, stops, stream):
    harness, task = generate(script, stops=stops, stream=stream)
    expected, which = reference(script, stops)
    assert harness.text(task) == expected
    assert harness.end(task).stop_word == which
    # Pieces decode one by one to what the whole decodes to: no character was cut.
    parts = [piece.decode("utf-8", "replace") for piece in pieces(harness, task)]
    assert "".join(parts) == expected.decode("utf-8", "replace")


def test_a_task_that_does_not_stream_sends_few_events():
    script = b"x" * 3000
    harness, task = generate(script, stream=False)
    assert harness.text(task) == script
    assert len(pieces(harness, task)) <= len(script) // 16 + 1  # so that little is lost with an engine


def test_a_long_beginning_of_a_stop_string_cannot_fill_the_ring():
    """Text held back sends no event, but its tokens pile up: they leave in bounded pieces."""
    script = b"a" * 3000 + b"b"
    harness, task = generate(script, stops=[b"a" * 3500])
    assert harness.text(task) == script
    assert len(harness.tokens(task)) == 3002
    assert max(len(text.tokens) for text in harness.texts(task)) <= 1024
