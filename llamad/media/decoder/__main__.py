"""The decoder process: it decodes one file after another, within limits that it sets itself before it reads any.

llamad/media/decoders.py starts it. A file that crashes it, exhausts its memory or hangs it harms only its own request.
It must not open files, connect, or start processes: once its libraries are loaded, the kernel refuses all of these.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys

import msgspec

from llamad.base import sealed_memory, syscall_filter
from llamad.media.decoder import images, sounds
from llamad.media.decoder.errors import UnreadableError
from llamad.media.messages import PACKET_MAX, SOCKET_FD, WARNING, Decode, Decoded, Refused

# Address space in addition to that of the libraries: for a file, its pixels, and one or two copies of them.
MEMORY_BYTES = 1 << 30
DESCRIPTORS_MAX = 16
NICE = 10  # generating tokens has priority over decoding files


def limit() -> None:
    """Limit the resources that this process may use."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        n_mapped = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limits = {
        resource.RLIMIT_AS: n_mapped + MEMORY_BYTES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: DESCRIPTORS_MAX,
        resource.RLIMIT_NPROC: 0,
    }
    for what, most in limits.items():
        resource.setrlimit(what, (most, most))


def decode(request: Decode, data: bytes) -> tuple[Decoded, bytes]:
    """Return the reply and its data."""
    try:
        if request.is_sound:
            return sounds.decode(data, request.seconds_max, request.sample_rate)
        return images.decode(data, request.pixels_max)
    except UnreadableError as error:
        return Refused(str(error)), b""
    except MemoryError:
        return Refused("it takes too much memory to decode"), b""


def main() -> int:
    os.nice(NICE)
    for number in (signal.SIGINT, signal.SIGUSR1):  # these are meant for the front
        signal.signal(number, signal.SIG_IGN)
    front = socket.socket(fileno=SOCKET_FD)
    decoder, encoder = msgspec.msgpack.Decoder(Decode), msgspec.msgpack.Encoder()
    images.prepare()
    sounds.prepare()
    limit()
    try:
        syscall_filter.only_compute()
    except syscall_filter.FilterError as error:
        print(f"{WARNING}decoders of images and sound run without a system call filter: {error}", flush=True)
    while True:
        packet, fds, _, _ = socket.recv_fds(front, PACKET_MAX, 1)
        if not packet:
            return 0
        request = decoder.decode(packet)
        data = os.pread(fds[0], request.n_bytes, 0)
        os.close(fds[0])
        reply, decoded = decode(request, data)
        del data
        memory = sealed_memory.create("llamad-decoded")
        view = memoryview(decoded)
        while view:
            view = view[os.write(memory, view) :]
        del decoded, view
        sealed_memory.seal(memory, contents=True)
        socket.send_fds(front, [encoder.encode(reply)], [memory])
        os.close(memory)


if __name__ == "__main__":
    sys.exit(main())
