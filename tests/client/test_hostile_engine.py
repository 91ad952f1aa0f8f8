"""An engine that was taken over writes whatever it likes into the memory that it shares with the front. The front must
neither crash nor read beyond a record: it says that the channel is broken, and the engine is ended."""

import fcntl
import mmap
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from support.live_daemon import Live, engines

from llamad.base import sealed_memory
from llamad.client.port import ChannelBroken, Port
from llamad.protocol.blobs import Arena, Blob
from llamad.protocol.channel import Descriptors, Link
from llamad.protocol.messages import EVENT_ADMITTED, EVENT_TEXT

PAGE = 65536
SHAPE = {"n_slots": 2, "n_ctx": 256, "n_ubatch": 64}
# ChannelHead: magic, command_bytes, event_bytes; four ints; two Cursors of two cache lines.
COMMAND_BYTES_AT, EVENT_BYTES_AT, N_SLOTS_AT, EVENT_HEAD_AT = 8, 16, 24, 40 + 128
N_TOKENS_AT = 44  # in a TextEvent
# id, three times, n_decoded, n_drafted, n_accepted, n_tokens, n_prob_tokens, n_top, n_bytes, n_ahead, n_kept,
# n_discarded; the mark's n_drawn, n_xtc and two floats
TEXT = "<Qqqq10iIiff"


class HostileEngine:
    """The engine's side of a channel, as bytes."""

    def __init__(self) -> None:
        self.descriptors = Descriptors.create()
        self.link = Link(*self.fds, **SHAPE)
        self.memory = mmap.mmap(self.descriptors.memory, 0)
        self.n_event_bytes = struct.unpack_from("<Q", self.memory, EVENT_BYTES_AT)[0]
        self.ring_at = len(self.memory) - self.n_event_bytes

    @property
    def fds(self) -> tuple[int, int, int]:
        return self.descriptors.memory, self.descriptors.command, self.descriptors.event

    def front(self) -> Port:
        return Port(Link(*self.fds))

    def write(self, kind: int, payload: bytes, n_bytes: int | None = None, at: int = 0) -> None:
        n = (len(payload) + 15) & ~7
        struct.pack_into("<II", self.memory, self.ring_at + at, n if n_bytes is None else n_bytes, kind)
        self.memory[self.ring_at + at + 8 : self.ring_at + at + 8 + len(payload)] = payload
        self.publish(at + n)

    def publish(self, head: int) -> None:
        struct.pack_into("<Q", self.memory, EVENT_HEAD_AT, head)

    def read_again(self) -> int:
        """Returns how many tokens a new front reads in a text, or -1 if it refuses the record."""
        struct.pack_into("<Q", self.memory, EVENT_HEAD_AT, 0)
        port = self.front()
        self.write(EVENT_TEXT, text(tail=b"\1\0\0\0hi" + bytes(64)))
        try:
            [(_, _, event)] = port.poll()
        except ChannelBroken:
            return -1
        return len(event.tokens)

    def close(self) -> None:
        self.memory.close()
        self.descriptors.close()


@pytest.fixture
def engine():
    made = HostileEngine()
    yield made
    made.close()


def text(n_tokens=1, n_rows=0, n_top=0, n_bytes=2, n_ahead=0, n_xtc=0, tail=b"\1\0\0\0hi") -> bytes:
    times, counts, shift = (0, 0, 0), (1, 0, 0), (0, 0)
    sizes = (n_tokens, n_rows, n_top, n_bytes, n_ahead)
    return struct.pack(TEXT, 7, *times, *counts, *sizes, *shift, 0, n_xtc, 0.0, 0.0) + tail


def test_an_honest_record_is_read(engine):
    port = engine.front()
    engine.write(EVENT_TEXT, text())
    [(kind, task, event)] = port.poll()
    assert (kind, task, event.tokens, event.data) == (EVENT_TEXT, 7, [1], b"hi")


@pytest.mark.parametrize("n_bytes", [0, 4, 12, 1 << 30, 0xFFFFFFF8])
def test_a_length_that_no_record_has(engine, n_bytes):
    port = engine.front()
    engine.write(EVENT_TEXT, text(), n_bytes=n_bytes)
    with pytest.raises(ChannelBroken):
        port.poll()


@pytest.mark.parametrize("head", [1 << 40, (1 << 64) - 8, 4])
def test_a_cursor_outside_the_ring(engine, head):
    port = engine.front()
    engine.publish(head)
    with pytest.raises(ChannelBroken):
        port.poll()


@pytest.mark.parametrize(
    "counts",
    [
        {"n_tokens": -1},
        {"n_tokens": 1 << 30},
        {"n_bytes": 1 << 20},
        {"n_rows": 1, "n_top": 1 << 20},
        {"n_rows": 2},
        {"n_ahead": 1},
        {"n_ahead": 1 << 30},
        {"n_xtc": -1},
        {"n_xtc": 1},
        {"n_xtc": 34, "tail": bytes(256)},
    ],
)
def test_counts_that_do_not_fit_the_record(engine, counts):
    port = engine.front()
    engine.write(EVENT_TEXT, text(**counts))
    with pytest.raises(ChannelBroken):
        port.poll()


@pytest.mark.parametrize("slot", [-1, 2, 1 << 30])
def test_a_slot_that_the_engine_does_not_have(engine, slot):
    port = engine.front()
    engine.write(EVENT_ADMITTED, struct.pack("<Qiiq", 7, slot, 0, 0))
    with pytest.raises(ChannelBroken):
        port.poll()


@pytest.mark.parametrize(
    ("at", "kind", "value"),
    [
        (0, "<Q", 1),
        (COMMAND_BYTES_AT, "<Q", 0),
        (EVENT_BYTES_AT, "<Q", 0),
        (EVENT_BYTES_AT, "<Q", (1 << 64) - 1),
        (N_SLOTS_AT, "<i", 1 << 30),
        (N_SLOTS_AT, "<i", -1),
    ],
)
def test_a_layout_that_does_not_fit_the_memory(engine, at, kind, value):
    struct.pack_into(kind, engine.memory, at, value)
    with pytest.raises(OSError, match="not laid out"):
        engine.front()


def test_a_ring_that_has_no_bytes_but_adds_up(engine):
    """The sizes fit the memory in sum. A ring of no bytes would have no end."""
    n_command = struct.unpack_from("<Q", engine.memory, COMMAND_BYTES_AT)[0]
    struct.pack_into("<QQ", engine.memory, COMMAND_BYTES_AT, n_command + engine.n_event_bytes, 0)
    with pytest.raises(OSError, match="not laid out"):
        engine.front()


def test_the_rings_stay_where_they_were(engine):
    """What the engine writes into the head after the front's check changes nothing."""
    port = engine.front()
    struct.pack_into("<QQi", engine.memory, COMMAND_BYTES_AT, 1 << 50, 1 << 50, 1 << 30)
    engine.write(EVENT_TEXT, text())
    assert len(port.poll()) == 1
    assert len(port.slots()) == SHAPE["n_slots"]


# A second process has a GIL of its own, so that it writes while the front reads.
FLIPPING = """
import mmap, struct, sys, time
memory = mmap.mmap(int(sys.argv[1]), 0)
at = int(sys.argv[2])
small, large = struct.pack("<i", 1), struct.pack("<i", 1 << 28)
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    memory[at:at + 4] = large
    memory[at:at + 4] = small
"""


def test_counts_that_change_while_the_front_reads(engine):
    """The engine flips the number of tokens between one that fits and one that does not, as fast as it can. Each record
    is read as it was checked, or refused."""
    at = engine.ring_at + 8 + N_TOKENS_AT
    command = [sys.executable, "-c", FLIPPING, str(engine.descriptors.memory), str(at)]
    with subprocess.Popen(command, pass_fds=[engine.descriptors.memory], stdout=subprocess.PIPE) as flipping:
        try:
            assert flipping.stdout is not None
            flipping.stdout.readline()
            outcomes = {engine.read_again() for _ in range(20_000)}
        finally:
            flipping.kill()
    assert outcomes == {1, -1}


@pytest.mark.parametrize("name", ["llamad-channel", "llamad-blobs"])
def test_shared_memory_cannot_be_cut(engine, name):
    """A front that had mapped it would end by SIGBUS."""
    arena = Arena()
    fd = engine.descriptors.memory if name == "llamad-channel" else arena.fd
    n_bytes = os.fstat(fd).st_size
    for n in (0, n_bytes - PAGE, n_bytes + PAGE):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, n)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    blob = Blob(PAGE, arena)
    blob.size = PAGE
    memoryview(blob)[:] = bytes(PAGE)
    assert len(engine.front().slots()) == SHAPE["n_slots"]


def test_memory_that_is_not_sealed_is_not_mapped(engine):
    fd = sealed_memory.create("unsealed")
    try:
        os.ftruncate(fd, len(engine.memory))
        os.pwrite(fd, engine.memory[:], 0)
        with pytest.raises(sealed_memory.UnsealedError):
            Link(fd, engine.descriptors.command, engine.descriptors.event)
        sealed_memory.seal(fd)
        Link(fd, engine.descriptors.command, engine.descriptors.event)
    finally:
        os.close(fd)


def test_a_running_engine_can_cut_nothing(tiny):
    """All shared memory of the real program, through the engine's own descriptors."""
    with Live("-np", "2", model=tiny) as server:
        [engine] = engines(server.process.pid)
        folder = Path(f"/proc/{engine}/fd")
        shared = [path for path in folder.iterdir() if "memfd:llamad" in os.readlink(path)]
        assert {os.readlink(path).split()[0] for path in shared} == {
            "/memfd:llamad-channel",
            "/memfd:llamad-blobs",
            "/memfd:llamad-cache",
        }
        for path in shared:
            with pytest.raises(PermissionError):
                os.truncate(path, 0)
        assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2
        status = Path(f"/proc/{engine}/status").read_text(encoding="utf-8")
        assert "NoNewPrivs:\t1" in status
