"""A file may take a decoder or an encoder over. Whatever that process answers then, the front refuses the file, ends
the process, and does not map memory that could be cut."""

import asyncio
import os
import sys

import pytest
from support.media_files import image

from llamad.media import received
from llamad.media.decoders import Decoders
from llamad.media.messages import Decode, Encoded, Opened, Piece, Pixels, Refused, Samples

# A decoder's place: answers each file by what ANSWER does.
HOSTILE = """
import os, socket, time
import msgspec
from llamad.base import sealed_memory
from llamad.media.messages import Pixels, Refused, Samples
front = socket.socket(fileno=3)
pack = msgspec.msgpack.Encoder().encode
def memory(n_bytes, is_sealed=True):
    fd = sealed_memory.create("hostile")
    os.ftruncate(fd, n_bytes)
    if is_sealed:
        sealed_memory.seal(fd, contents=True)
    return fd
while True:
    packet, fds, _, _ = socket.recv_fds(front, 65536, 1)
    if not packet:
        break
    ANSWER
"""
ANSWERS = {
    "memory that can be cut": "socket.send_fds(front, [pack(Pixels(10, 10))], [memory(300, False)])",
    "memory that is too small": "socket.send_fds(front, [pack(Pixels(10, 10))], [memory(299)])",
    "more pixels than allowed": "socket.send_fds(front, [pack(Pixels(1001, 1000))], [memory(3003000)])",
    "pixels of a negative size": "socket.send_fds(front, [pack(Pixels(-10, -10))], [memory(300)])",
    "sound instead of an image": "socket.send_fds(front, [pack(Samples(75))], [memory(300)])",
    "no memory": "front.send(pack(Pixels(10, 10)))",
    "several descriptors": "socket.send_fds(front, [pack(Pixels(10, 10))], [memory(300), memory(300)])",
    "a pipe": "socket.send_fds(front, [pack(Pixels(10, 10))], [os.pipe()[0]])",
    "a file": "socket.send_fds(front, [pack(Pixels(10, 10))], [os.open('/etc/passwd', 0)])",
    "no message": "socket.send_fds(front, [b'\\xff' * 100], [memory(300)])",
    "another message": "socket.send_fds(front, [pack({'type': 'Opened'})], [memory(300)])",
}


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("what", ANSWERS)
def test_a_decoder_that_answers(what):
    async def ask():
        decoders = Decoders(n_processes=1)
        [child] = decoders._children
        honest = child._command
        child._command = (sys.executable, "-P", "-c", HOSTILE.replace("ANSWER", ANSWERS[what]))
        data = image()
        wanted = Decode(len(data), False, 1_000_000, 10.0, 16_000)
        n_before = _descriptors()
        try:
            answer, fd = await decoders.decode(data, wanted)
            assert isinstance(answer, Refused)
            assert answer.reason.startswith("could not be decoded: ")
            assert fd == -1
            assert not child._pid, "it was ended"
            assert _descriptors() == n_before
            child._command = honest
            answer, fd = await decoders.decode(data, wanted)
            assert answer == Pixels(100, 50)
            os.close(fd)
        finally:
            decoders.close()

    asyncio.run(ask())


def _memory(n_bytes, *, contents=True):
    from llamad.base import sealed_memory

    fd = sealed_memory.create("rows")
    os.ftruncate(fd, n_bytes)
    sealed_memory.seal(fd, contents=contents)
    return fd


@pytest.mark.parametrize(
    ("answer", "n_bytes"),
    [
        (Encoded([Piece(4, 4)]), 4 * 8 * 4 - 1),
        (Encoded([Piece(4, 4, is_grid=True)]), 4 * 8 * 4),
        (Encoded([Piece(-4, 4)]), 128),
        (Encoded([Piece(4, 0)]), 128),
        (Encoded([Piece(4, 1 << 40)]), 128),
        (Encoded([Piece(1000, 1000)]), 32_000),
        (Encoded([Piece(2, 2, tokens=[1])]), 0),
        (Encoded([]), 0),
        (Opened(True, True, 16_000, False, 8), 128),
        (Samples(32), 128),
    ],
)
def test_an_encoder_that_answers(answer, n_bytes):
    import msgspec

    fd = _memory(n_bytes)
    try:
        with pytest.raises(received.BrokenError):
            received.encoded(msgspec.msgpack.encode(answer), [fd], 100, 8)
    finally:
        os.close(fd)


def test_rows_that_can_still_be_written_are_refused():
    import msgspec

    packet = msgspec.msgpack.encode(Encoded([Piece(4, 4)]))
    for contents in (False, True):
        fd = _memory(4 * 8 * 4, contents=contents)
        try:
            if contents:
                answer, n_bytes = received.encoded(packet, [fd], 100, 8)
                assert (answer, n_bytes) == (Encoded([Piece(4, 4)]), 128)
            else:
                with pytest.raises(received.BrokenError):
                    received.encoded(packet, [fd], 100, 8)
        finally:
            os.close(fd)


def test_a_warning_of_a_process_is_logged_once(caplog):
    """Every decoder has the same to say of a kernel without filters."""
    says = "print('warning: no filter here', flush=True); socket.send_fds(front, [pack(Refused('no'))], [memory(0)])"

    async def ask():
        decoders = Decoders(n_processes=2)
        for child in decoders._children:
            child._command = (sys.executable, "-P", "-c", HOSTILE.replace("ANSWER", says))
        data = image()
        wanted = Decode(len(data), False, 1_000_000, 10.0, 16_000)
        try:
            for _ in range(2):
                answers = await asyncio.gather(*(decoders.decode(data, wanted) for _ in range(2)))
                assert [answer for answer, _ in answers] == [Refused("no")] * 2
                await asyncio.sleep(0.05)
        finally:
            decoders.close()

    with caplog.at_level("DEBUG", logger="llamad.media"):
        asyncio.run(ask())
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["no filter here"]
