"""Owns the encoder process: mtmd with the model's vocabulary, one image or sound after the other.

Started by llamad/media/encoders.py. Whatever a projector does, it does it here: the front and the engine get rows of
floats. Must not read files that strangers sent; those arrive decoded.
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


def main() -> int:
    for number in (signal.SIGINT, signal.SIGUSR1):  # the front's
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
        answer: FromEncoder
        try:
            if isinstance(message, Open):
                projector = Projector(message)
                # Not before: opening a GPU may start the driver's own program, which loads a module of the kernel.
                with contextlib.suppress(syscall_filter.FilterError):
                    syscall_filter.no_new_privileges()
                answer = projector.info
            else:
                assert projector is not None
                answer = projector.encode(message, fds[0], memory)
        except ProjectorError as error:
            answer = Refused(str(error))
        sealed_memory.seal(memory, contents=True)
        socket.send_fds(front, [encoder.encode(answer)], [memory])
        for fd in (memory, *fds):
            os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
