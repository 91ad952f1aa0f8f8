"""Decodes files as clients may send them, and the texts and forms that contain them.

Invariant: a file, whether complete, cut, changed, spliced or with a wrong size, becomes pixels or finite samples within
the limits, or is refused with a reason. A decoder that a file or a signal kills is replaced, and the next file is read.
A text is split into images and strings that occur in it in this order; a data: URI becomes bytes or a SourceError. A
form gives its fields, whatever the size of the search windows; any other body is a FormError. Nothing takes long.

`make fuzz` runs it; LLAMAD_FUZZ_CASES says how long. A file that breaks something joins tests/media/test_decoding.py.
"""

import asyncio
import base64
import os
import signal
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.media_files import image, sound

from llamad.api.service.media import is_sound
from llamad.http import multipart
from llamad.http.multipart import FormError
from llamad.media.decoders import Decoders
from llamad.media.messages import Decode, Pixels, Refused, Samples
from llamad.media.sources.data_uri import from_base64, from_uri
from llamad.media.sources.errors import SourceError
from llamad.media.sources.text_images import is_image, split_text

N_CASES = int(os.environ.get("LLAMAD_FUZZ_CASES", "20000"))
long = settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
PIXELS_MAX, SECONDS_MAX, RATE = 100_000, 3.0, 16_000
DECODE_SECONDS = 5.0

IMAGES = [
    image(),
    image(mode="P"),
    image(mode="RGBA"),
    image(kind="JPEG"),
    image(kind="JPEG", mode="CMYK"),
    image(kind="JPEG", progressive=True),
    image(kind="GIF"),
    image(kind="BMP"),
    image(kind="WEBP"),
    image(kind="WEBP", lossless=True),
]
SOUNDS = [
    sound(kind=kind, rate=rate, n=2000, channels=n)
    for kind in ("WAV", "FLAC", "MP3")
    for rate, n in ((16_000, 1), (44_100, 2))
]
EXTREME = st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])


@st.composite
def files(draw, seeds):
    """A file with some changes, most of them at its beginning, where the sizes are."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, min(len(data), 64)) | st.integers(0, len(data)))
        match draw(st.sampled_from(["cut", "number", "bytes", "insert", "repeat", "splice", "drop"])):
            case "cut":
                del data[at:]
            case "number":
                value, size = draw(EXTREME), draw(st.sampled_from([1, 2, 4]))
                packed = (value & (256**size - 1)).to_bytes(size, draw(st.sampled_from(["little", "big"])))
                data[at : at + size] = packed
            case "bytes":
                new = draw(st.binary(min_size=1, max_size=8))
                data[at : at + len(new)] = new
            case "insert":
                data[at:at] = draw(st.binary(max_size=64))
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 400))] * draw(st.integers(1, 20))
            case "splice":
                data[at:] = draw(st.sampled_from(seeds))[at:]
            case "drop":
                del data[at : at + draw(st.integers(1, 16))]
    return bytes(data)


class Reader:
    """The front's side of the decoder processes, on a separate event loop."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.decoders = Decoders(1, DECODE_SECONDS)

    def read(self, data, sounds):
        request = Decode(len(data), sounds, PIXELS_MAX, SECONDS_MAX, RATE)
        answer, fd = self.loop.run_until_complete(self.decoders.decode(data, request))
        if fd < 0:
            return answer, b""
        decoded = os.pread(fd, os.fstat(fd).st_size, 0)
        os.close(fd)
        return answer, decoded

    def kill(self):
        for child in self.decoders._children:
            if child._pid:
                os.kill(child._pid, signal.SIGKILL)

    def close(self):
        async def close():
            self.decoders.close()

        self.loop.run_until_complete(close())
        self.loop.close()


@pytest.fixture(scope="module")
def reader():
    reader = Reader()
    yield reader
    assert reader.read(image(), False)[0] == Pixels(100, 50)
    n_open = len(os.listdir("/proc/self/fd"))
    assert n_open < 64, "descriptors leak"
    reader.close()


def check(answer, decoded):
    match answer:
        case Refused():
            assert answer.reason
            assert decoded == b""
            event("refused")
        case Pixels():
            assert 0 < answer.width * answer.height <= PIXELS_MAX
            assert len(decoded) == answer.width * answer.height * 3
            event("pixels")
        case Samples():
            assert 0 < answer.n_samples <= SECONDS_MAX * RATE + 1
            assert len(decoded) == 4 * answer.n_samples
            assert np.isfinite(np.frombuffer(decoded, np.float32)).all()
            event("samples")


def check_file(reader, data, sounds, dies):
    is_image(data), is_sound(data)
    if dies:
        reader.kill()
    answer, decoded = reader.read(data, sounds)
    check(answer, decoded)
    if isinstance(answer, Refused) and answer.reason.startswith("could not be decoded"):
        event("the decoder died")
        assert reader.read(image(), False)[0] == Pixels(100, 50)


@settings(long, max_examples=max(1, N_CASES // 2))
@given(data=files(IMAGES) | files(IMAGES + SOUNDS) | st.binary(max_size=200), dies=st.integers(0, 500))
def test_images(reader, data, dies):
    check_file(reader, data, False, dies == 7)


@settings(long, max_examples=max(1, N_CASES // 2))
@given(data=files(SOUNDS) | files(IMAGES + SOUNDS) | st.binary(max_size=200), dies=st.integers(0, 500))
def test_sounds(reader, data, dies):
    check_file(reader, data, True, dies == 7)


PIXEL = "R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="
PIECES = st.sampled_from(
    ["![", "a]", "](", ")", "<img ", "src", "=", '"', "'", ">", "<", " ", "\n", "data:", "image/", "gif", ";base64,",
     ",", PIXEL, "%41", "=", "AAAA", "\0", "é", "DATA:IMAGE/", "data:image/gif;base64," + PIXEL,
     "![x](data:image/gif;base64,",
     '<img src="data:image/png;base64,']
)  # fmt: skip
TEXTS = st.lists(
    PIECES | st.tuples(PIECES, st.integers(1, 3000)).map(lambda run: run[0] * run[1]), max_size=12
)


@long
@given(TEXTS.map("".join))
def test_texts(text):
    t_start = time.thread_time()
    try:
        parts = split_text(text)
    except SourceError:
        return
    at, has_images = 0, False
    for part in parts:
        if isinstance(part, str):
            at = text.index(part, at) + len(part)
        has_images = has_images or isinstance(part, bytes)
    assert has_images or parts == [text]
    assert time.thread_time() - t_start < 2 + len(text) / 100_000


@long
@given(st.lists(PIECES, max_size=10).map(lambda pieces: "data:" + "".join(pieces)), st.binary(max_size=60))
def test_data_uris(uri, data):
    for read in (lambda: from_uri(uri, ("image",)), lambda: from_base64(uri)):
        with suppress(SourceError):
            assert isinstance(read(), bytes)
    text = base64.b64encode(data).decode()
    assert from_uri(f"data:image/x;base64,{text}", ("image",)) == data
    assert from_base64(base64.urlsafe_b64encode(data).decode().rstrip("=")) == data


NAMES = st.text(
    st.characters(min_codepoint=32, exclude_characters='"\\\x7f', codec="utf-8"), min_size=1, max_size=8
)
DATA = st.lists(
    st.sampled_from([b"\r\n", b"--", b"-", b"edge", b"edg", b"\r", b"\n", b"x", bytes(9)]), max_size=8
).map(b"".join)
FORM_PIECES = st.sampled_from(
    [b"--edge", b"\r\n", b"--", b"\r", b"\n", b" ", b"\t", b": ", b"Content-Disposition", b"form-data", b"; ", b"name=",
     b'"', b"a", b"filename=", b"\xff", b"\0", b"\r\n\r\n", b"Content-Transfer-Encoding: base64", b"\\",
     b'--edge\r\nContent-Disposition: form-data; name="a"\r\n\r\n', b"\r\n--edge--"]
)  # fmt: skip


def fields(body, window=multipart.WINDOW):
    """Return a form's fields, or what is wrong with it."""
    whole, multipart.WINDOW = multipart.WINDOW, window
    try:
        return [(part.name, part.is_file, bytes(part.data)) for part in multipart.parts(body, b"edge")]
    except FormError as error:
        return str(error)
    finally:
        multipart.WINDOW = whole


@long
@given(st.lists(st.tuples(NAMES, st.booleans(), DATA), max_size=6), st.integers(1, 20), st.binary(max_size=6))
def test_forms(sent, window, after):
    sent = [one for one in sent if b"\r\n--edge" not in b"\r\n" + one[2]]
    body = b""
    for name, is_file, data in sent:
        head = f'Content-Disposition: form-data; name="{name}"' + ('; filename="f"' if is_file else "")
        body += b"--edge\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n"
    body += b"--edge--" + after
    assert fields(body) == sent
    assert fields(body, window) == sent


@long
@given(st.lists(FORM_PIECES | st.binary(max_size=4), max_size=40).map(b"".join), st.integers(1, 20))
def test_broken_forms(body, window):
    t_start = time.thread_time()
    first = fields(body)
    assert time.thread_time() - t_start < 2
    assert first == fields(body, window)
    assert isinstance(first, str) or sum(len(data) for _, _, data in first) < len(body) or not first


@long
@given(
    st.lists(
        st.sampled_from(
            ["multipart/form-data", ";", "boundary", "=", '"', "edge", " ", ",", "\\", "é", "\r\n"]
        )
    )
)
def test_content_types(pieces):
    with suppress(FormError):
        assert 1 <= len(multipart.boundary_of("".join(pieces))) <= 70
