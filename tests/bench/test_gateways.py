"""`python -m bench gateways`, as far as it needs no gateway: which answers count as whole, and how servers are put into
a configuration. tests/deploy runs the rest."""

import http.client
import socket
import threading

import pytest

from bench.__main__ import main
from bench.gateways.clients import Answer, BrokenError, chat, read
from bench.gateways.programs import DEPLOY, with_servers

EVENT = b'data: {"choices": []}\n\n'
ERROR = b'data: {"error": {"code": 500}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunks(*pieces: bytes, is_whole: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n" * is_whole


def answer_of(canned: bytes, *, stream: bool = True) -> Answer:
    """What a client makes of these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(canned)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(
                    65536
                ):  # what is closed with the request unread is reset, and not ended
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        answer = Answer()
        try:
            read(listener.getsockname(), chat([], stream=stream), {}, answer)
        finally:
            thread.join()
        return answer


def test_a_whole_stream():
    answer = answer_of(chunks(EVENT, EVENT, DONE))
    assert answer.body == EVENT + EVENT + DONE
    assert answer.t_first > 0


@pytest.mark.parametrize(
    ("canned", "error", "told"),
    [
        (chunks(EVENT, is_whole=False), http.client.IncompleteRead, None),
        (chunks(EVENT, DONE, is_whole=False), http.client.IncompleteRead, None),
        (chunks(EVENT), BrokenError, "no \\[DONE\\]"),
        (chunks(EVENT, ERROR, DONE), BrokenError, "an error event"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nwait", BrokenError, "503 .*wait"),
        (b"", http.client.RemoteDisconnected, None),
    ],
    ids=["cut", "cut after the end", "no end", "error event", "refused", "nothing"],
)
def test_what_is_no_whole_stream(canned, error, told):
    with pytest.raises(error, match=told):
        answer_of(canned)


@pytest.mark.parametrize("file", ["haproxy/haproxy.cfg", "nginx/llamad.conf"])
def test_servers_of_a_configuration(file):
    text = with_servers((DEPLOY / file).read_text(), [1111, 2222, 3333])
    assert [text.count(f"127.0.0.1:{port}") for port in (1111, 2222, 3333)] == [1, 1, 1]
    assert "10.0.0." not in text


def test_flags_that_cannot_be(capsys, tmp_path):
    model = tmp_path / "x.gguf"
    model.touch()
    assert main(["gateways", "--model", str(model), "--servers", "1"]) == 1
    assert "at least 2" in capsys.readouterr().err
