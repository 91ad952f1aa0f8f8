"""API keys as clients and editors write them: any encoding, any spacing; and what is still no key."""

import codecs
import socket

import pytest
from support.fake_daemon import Faked

from llamad.api.service.auth import Keys
from llamad.engine.testing.fake import Fake

# "à" ends in the byte A0 in UTF-8, which a careless strip() takes for a space.
KEYS = ("sk-plain", "schlüssel", "ключ", "déjà", "two words")


@pytest.fixture(scope="module")
def server():
    flags = [word for key in KEYS for word in ("--api-key", key)]
    with Faked(Fake(), "--slots", *flags) as server:
        yield server


def status(server, *lines):
    """Of GET /slots, which needs a key, with these header lines as bytes."""
    with socket.create_connection((server.client.host, server.client.port), timeout=20) as sock:
        head = b"".join(line + b"\r\n" for line in lines)
        sock.sendall(b"GET /slots HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head + b"\r\n")
        return int(sock.recv(65536).split(b" ")[1])


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_the_encodings_of_clients(server, key):
    for encoding in ("utf-8", "latin-1"):
        try:
            data = key.encode(encoding)
        except UnicodeEncodeError:
            continue
        assert status(server, b"Authorization: Bearer " + data) == 200
        assert status(server, b"X-Api-Key: " + data) == 200
        assert status(server, b"Authorization: Bearer " + data[:-1]) == 401
        assert status(server, b"Authorization: Bearer " + data + b"\xa0") == 401


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: bearer sk-plain",
        b"authorization:BEARER sk-plain",
        b"Authorization: Bearer    sk-plain  ",
        b"Authorization: \tBearer\t sk-plain \t",
        b"X-API-KEY:   sk-plain\t",
    ],
)
def test_case_and_spaces(server, line):
    assert status(server, line) == 200


def test_either_header_will_do(server):
    # Some clients send a placeholder in the one and the key in the other.
    assert status(server, b"Authorization: Bearer none", b"X-Api-Key: sk-plain") == 200
    assert status(server, b"Authorization: Bearer sk-plain", b"X-Api-Key: none") == 200
    assert status(server, b"Authorization: Basic c2s6", b"X-Api-Key: sk-plain") == 200
    assert status(server, b"Authorization: Bearer", b"X-Api-Key:") == 401


@pytest.mark.parametrize(
    "line",
    [
        b"Authorization: sk-plain",
        b"Authorization: Basic sk-plain",
        b"Authorization: Bearer sk-plain, Bearer sk-plain",
        b"Authorization: Bearersk-plain",
        b"Authorization: Bearer twowords",
        b"Authorization: Bearer \xff\xfe\x80",
        b"X-Api-Key: Bearer sk-plain",
        b"X-Api-Key: ",
    ],
)
def test_what_is_no_key(server, line):
    assert status(server, line) == 401


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + "first\r\nschlüssel\r\n".encode(),
        "# a comment\n first \n\nschlüssel".encode(),
        "first\nschlüssel\n".encode("utf-16"),
        "first\nschlüssel\n".encode("latin-1"),
    ],
)
def test_a_key_file_of_any_editor(tmp_path, data):
    path = tmp_path / "keys.txt"
    path.write_bytes(data)
    with Faked(Fake(), "--slots", "--api-key-file", str(path)) as server:
        assert status(server, b"X-Api-Key: first") == 200
        assert status(server, b"X-Api-Key: " + "schlüssel".encode()) == 200
        assert status(server, b"X-Api-Key: " + "schlüssel".encode("latin-1")) == 200
        assert status(server, b"X-Api-Key: \xef\xbb\xbffirst") == 401


def test_two_keys_that_are_the_same_bytes_are_refused():
    assert Keys(["é", "e", "é"])
    with pytest.raises(ValueError, match="same bytes"):
        Keys(["é", "Ã©"])
