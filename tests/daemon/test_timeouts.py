"""How long a client may take to send its request, over a real socket."""

import socket
import time

from support.live_daemon import Live

from llamad.flags.parse import parse
from llamad.http_settings import limits_of


def test_a_body_that_stalls_ends_with_the_timeout(tiny):
    """It took a minute, whatever the flag said."""
    with (
        Live("--timeout", "1", model=tiny) as server,
        socket.create_connection((server.client.host, server.client.port), timeout=30) as client,
    ):
        t_sent = time.monotonic()
        client.sendall(b'POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"prompt"')
        answer = client.recv(65536)
        assert time.monotonic() - t_sent < 20
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"for 1 s (--timeout)" in answer


def test_by_default_only_silence_ends_a_body():
    """A slow but steady upload was cut off after a minute, whatever the flag said."""
    limits = limits_of(parse(["-m", "a.gguf", "--timeout", "700"], {}).settings.daemon)
    assert (limits.read_timeout, limits.write_timeout, limits.body_timeout) == (700, 700, 0)
