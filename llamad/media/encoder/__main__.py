"""The encoder process: it runs llama.cpp's mtmd over the model's vocabulary, on one image or sound after another.

llamad/media/reader.py starts it. Only this process runs projectors, so one that crashes harms neither the front nor the
engine, which get only its embeddings. It must not read files that clients sent; it gets their pixels or samples.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

import msgspec

from llamad.base import sealed_memory, syscall_filter
from llamad.media.encoder.projector import Projector, ProjectorError
from llamad.media.messages import PACKET_MAX, SOCKET_FD, Encode, FromEncoder, Open, Refused

# Generating tokens has priority, but with streams on all cores an image still gets a quarter of the time.
NICE = 5


def main() -> int:
    os.nice(NICE)
    for number in (signal.SIGINT, signal.SIGUSR1):  # these are meant for the front
        signal.signal(number, signal.SIG_IGN)
    front = socket.socket(fileno=SOCKET_FD)
    decoder: msgspec.msgpack.Decoder[Open | Encode] = msgspec.msgpack.Decoder(Open | Encode)
    encoder = msgspec.msgpack.Encoder()
    projector: Projector | None = None
    while True:
        packet, fds, _, _ = socket.recv_fds(front, PACKET_MAX, 1)
        if not packet:
            return 0
        message = decoder.decode(packet)
        memory = sealed_memory.create("llamad-encoded")
        reply: FromEncoder
        try:
            if isinstance(message, Open):
                projector = Projector(message)
                # Not earlier, because opening a GPU may start the driver's own program, which loads a kernel module.
                with contextlib.suppress(syscall_filter.FilterError):
                    syscall_filter.no_new_privileges()
                reply = projector.info
            else:
                assert projector is not None
                reply = projector.encode(message, fds[0], memory)
        except ProjectorError as error:
            reply = Refused(str(error))
        sealed_memory.seal(memory, contents=True)
        socket.send_fds(front, [encoder.encode(reply)], [memory])
        for fd in (memory, *fds):
            os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
