"""Files become pixels and samples in a process of their own; what is wrong with one is said, and costs it alone."""

import asyncio
import os
import signal
import struct

import numpy as np
import pytest
from support.media_files import image, pixels, sound

from llamad.media.child import Child
from llamad.media.decoders import Decoders
from llamad.media.messages import Decode, Pixels, Refused, Samples

RATE = 16_000


@pytest.fixture(scope="module")
def made():
    loop = asyncio.new_event_loop()
    decoders = loop.run_until_complete(_made())

    def ask(data, *, is_sound=False, pixels_max=1_000_000):
        wanted = Decode(len(data), is_sound, pixels_max, 10.0, RATE)
        answer, fd = loop.run_until_complete(decoders.decode(data, wanted))
        if fd < 0:
            return answer, b""
        try:
            return answer, os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    yield ask, decoders._children
    loop.run_until_complete(_closed(decoders))
    loop.close()


@pytest.fixture
def decode(made):
    return made[0]


async def _made():
    return Decoders()


async def _closed(decoders):
    decoders.close()


@pytest.mark.parametrize(
    ("data", "is_exact"),
    [
        (image(), True),
        (image(kind="BMP"), True),
        (image(kind="WEBP", lossless=True), True),
        (image(mode="RGBA"), True),
        (image(kind="JPEG"), False),
        (image(kind="GIF"), False),
        (image(mode="P"), False),
        (image(mode="L"), False),
        (image(mode="1"), False),
        (image(kind="JPEG", mode="CMYK"), False),
    ],
)
def test_images(decode, data, is_exact):
    answer, decoded = decode(data)
    assert answer == Pixels(100, 50)
    assert len(decoded) == 100 * 50 * 3
    assert not is_exact or decoded == pixels(1).tobytes()


def test_deep_images_keep_their_upper_bits(decode):
    from io import BytesIO

    from PIL import Image

    deep = np.arange(16, dtype=np.uint16).reshape(4, 4) * 4096
    out = BytesIO()
    Image.fromarray(deep).save(out, "PNG")
    answer, decoded = decode(out.getvalue())
    assert answer == Pixels(4, 4)
    assert np.array_equal(np.frombuffer(decoded, np.uint8).reshape(4, 4, 3)[..., 0], deep >> 8)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is none of PNG"),
        (b"hello" * 30, "is none of PNG"),
        (image(kind="TGA"), "is none of PNG"),
        (image(kind="TIFF"), "is none of PNG"),
        (image()[:3000], "is broken"),
        (image(kind="JPEG")[:500], "is broken"),
        (
            image(kind="BMP")[:18] + struct.pack("<ii", 30_000, 20_000) + image(kind="BMP")[26:],
            "30000 x 20000 pixels",
        ),
        (
            bytes.fromhex("5380f634") + bytes(104),
            "is none of PNG",
        ),  # Softimage PIC, which crashes llama.cpp's reader
    ],
)
def test_broken_images_are_refused(decode, data, says):
    answer, _ = decode(data)
    assert isinstance(answer, Refused)
    assert says in answer.reason


def test_a_limit_of_pixels(decode):
    answer, _ = decode(image(), pixels_max=4999)
    assert isinstance(answer, Refused)
    assert "100 x 50 pixels" in answer.reason


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "MP3"])
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2)])
def test_sounds(decode, kind, rate, channels):
    answer, samples = decode(sound(kind=kind, rate=rate, n=rate, channels=channels), is_sound=True)
    assert isinstance(answer, Samples)
    assert abs(answer.n_samples - RATE) <= (0 if kind != "MP3" else 3000)
    assert len(samples) == 4 * answer.n_samples


@pytest.mark.parametrize("kind", ["FLAC", "MP3"])
@pytest.mark.parametrize("tag", [b"ID3\4\0\0\0\0\0\4abcd", b"ID3\4\0\0\0\0\1\0" + bytes(128) + bytes(16)])
def test_a_tag_before_a_sound_is_skipped(decode, kind, tag):
    answer, _ = decode(tag + sound(kind=kind), is_sound=True)
    assert isinstance(answer, Samples)


def test_a_sound_at_the_right_rate_is_as_it_was(decode):
    _, samples = decode(sound(), is_sound=True)
    expected = (np.random.default_rng(1).standard_normal((16_000, 1)) * 0.1)[:, 0]
    assert np.abs(np.frombuffer(samples, np.float32) - expected).max() < 1 / 32768


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"RIFF", "is not WAV"),
        (sound(n=170_000), "claims 11 s; the limit is 10 s"),
        (sound(n=100), "is shorter than"),
        (sound()[:24] + struct.pack("<I", 1) + sound()[28:], "1 samples a second"),
        (
            b"fLaC\0\0\0\x22"
            + struct.pack(">HH", 4096, 4096)
            + bytes(6)
            + bytes.fromhex("03e800ffffffffff")
            + bytes(16),
            "",
        ),
        (sound(kind="OGG"), "is not WAV"),
        (sound(kind="AIFF"), "is not WAV"),
        (sound(kind="W64"), "is not WAV"),
        (b"ID3\4\0\0\0\0\0\0" + sound(kind="AIFF"), "is not WAV"),
        (b"ID3\4\0\0\0\0\0\0" * 3 + sound(kind="CAF"), "is not WAV"),
        (b"ID3\4\0\0\xff\0\0\0" + sound(), "is not WAV"),
        (b"ID3\4\0\0\x7f\x7f\x7f\x7f" + sound(), "is not WAV"),
    ],
)
def test_broken_sounds_are_refused(decode, data, says):
    answer, _ = decode(data, is_sound=True)
    assert isinstance(answer, Refused)
    assert says in answer.reason


def test_a_dead_decoder_costs_one_file(made):
    decode, children = made
    decode(image())
    pid = next(one._pid for one in children if one._pid)
    os.kill(pid, signal.SIGKILL)
    answer, _ = decode(image())
    assert isinstance(answer, Refused)
    assert "SIGKILL" in answer.reason
    assert decode(image())[0] == Pixels(100, 50)


def test_a_decoder_knows_no_secrets_and_has_limits(made):
    decode, children = made
    decode(image())
    pid = next(one._pid for one in children if one._pid)
    with open(f"/proc/{pid}/environ", encoding="utf-8") as environ:
        names = {one.split("=")[0] for one in environ.read().split("\0")}
    assert not {name for name in names if name.startswith("LLAMA")}
    with open(f"/proc/{pid}/limits", encoding="utf-8") as limits:
        told = {line[:26].strip(): line[26:].split()[0] for line in limits}
    assert told["Max address space"] != "unlimited"
    assert told["Max processes"] == "0"
    assert int(told["Max open files"]) <= 16
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        states = dict(line.split(":\t", 1) for line in status.read().splitlines())
    assert (states["NoNewPrivs"], states["Seccomp"], states["Threads"]) == ("1", "2", "1")
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_the_event_loop_does_not_wait_for_a_killed_process(monkeypatch):
    """A process with a large image took up to 0.2 s to end on a busy machine."""
    looks = []

    def waitpid(pid, options):
        assert options == os.WNOHANG
        looks.append(pid)
        return (0, 0) if len(looks) < 5 else (pid, 0)

    async def close_and_start():
        child = Child("llamad.media.decoder")
        await child.start(30)
        pid = child._pid
        monkeypatch.setattr(os, "waitpid", waitpid)
        child.close()
        n_at_once = len(looks)
        await child.start(30)  # another process serves meanwhile
        while len(looks) < 5:
            await asyncio.sleep(0.01)
        monkeypatch.undo()
        os.waitpid(pid, 0)
        child.close()
        return n_at_once

    assert asyncio.run(close_and_start()) == 1
