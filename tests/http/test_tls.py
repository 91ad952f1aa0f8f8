"""TLS: what is said of certificates and keys, what the openssl client gets, and handshakes that are in nobody's way."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tls.authority import OPENSSL, Authority, openssl

from llamad.http import tls, tls_listener
from llamad.http.certificate import validities
from llamad.http.request import Response
from llamad.http.tls import DAY_SECONDS, TlsError

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")

GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.issue("good")
    made.issue("other")
    made.issue("expired", -3, since_days=-30)
    made.issue("early", 30, since_days=3)
    made.issue("soon", 12.5)
    made.issue("late", 365 * 40)  # its year has four digits
    made.issue("middle", 100, is_ca=True)
    made.issue("behind", issuer="middle")
    chain = (made.folder / "behind.pem").read_text() + (made.folder / "middle.pem").read_text()
    (made.folder / "chain.pem").write_text(chain)
    return made


# Certificates


@pytest.mark.parametrize("name", ["good", "expired", "early", "soon", "late", "root"])
def test_dates_are_openssls(authority: Authority, name: str) -> None:
    path = authority.folder / f"{name}.pem"
    said = openssl("x509", "-in", path, "-noout", "-dates")
    dates = [ssl.cert_time_to_seconds(text) for text in re.findall(r"=(.*)", said)]
    (found,) = validities(path.read_bytes())
    assert [found.begin, found.end] == dates


def test_nonsense_in_a_certificate_is_no_date(authority: Authority) -> None:
    data = (authority.folder / "good.pem").read_bytes()
    for at in range(30, len(data) - 30, 7):
        broken = data[:at] + b"A" * 9 + data[at + 9 :]
        with contextlib.suppress(ValueError):
            assert len(validities(broken)) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("good", None),
        ("expired", r"the certificate expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC: clients will refuse it"),
        ("early", r"the certificate is not valid before \S+ \S+ UTC: clients will refuse it"),
        ("soon", r"the certificate expires on \S+ \S+ UTC, in 12 days"),
    ],
)
def test_the_age_of_a_certificate(authority: Authority, name: str, words: str | None) -> None:
    made = tls.make(str(authority.folder / f"{name}.pem"), str(authority.key(name)))
    complaint = made.complaint(time.time())
    if words is None:
        assert complaint is None
    else:
        assert complaint is not None
        is_refused, text = complaint
        assert re.fullmatch(words, text)
        assert is_refused is ("refuse" in words)


def test_an_intermediate_certificate_may_be_the_first_to_expire(authority: Authority) -> None:
    made = tls.make(str(authority.folder / "chain.pem"), str(authority.key("behind")))
    own, middle = made.chain
    assert made.expiry == middle.end < own.end
    assert made.complaint(time.time()) is None
    assert made.complaint(middle.end - 3.5 * DAY_SECONDS) == (
        False,
        f"certificate 2 of the chain expires on {made.last_day}, in 3 days",
    )
    assert made.complaint(middle.end + 1) == (
        True,
        f"certificate 2 of the chain expired on {made.last_day}: clients will refuse it",
    )


@pytest.fixture(scope="module")
def broken(authority: Authority) -> Path:
    """Files as they may be found at a start or a reload."""
    folder = authority.folder
    good, key = (folder / "good.pem").read_bytes(), (folder / "good.key").read_bytes()
    (folder / "half.pem").write_bytes(good[: len(good) // 2])
    (folder / "one_and_half.pem").write_bytes(good + good[: len(good) // 2])
    (folder / "half.key").write_bytes(key[: len(key) // 2])
    (folder / "empty.pem").write_bytes(b"")
    (folder / "huge.pem").write_bytes(b"\n" * (2 << 20))
    (folder / "noise.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    secret = ("-aes256", "-passout", "pass:hush")
    openssl("pkey", "-in", folder / "good.key", *secret, "-out", folder / "secret.key")
    rsa = ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
    openssl("genpkey", *rsa, "-out", folder / "rsa.key")
    return folder


@pytest.mark.parametrize(
    ("certificate", "key", "words"),
    [
        ("none.pem", "good.key", "--ssl-cert-file {}/none.pem: No such file or directory"),
        ("good.pem", "none.key", "--ssl-key-file {}/none.key: No such file or directory"),
        (".", "good.key", "--ssl-cert-file {}/.: Is a directory"),
        ("half.pem", "good.key", "--ssl-cert-file {}/half.pem ends within a certificate"),
        ("one_and_half.pem", "good.key", "--ssl-cert-file {}/one_and_half.pem ends within a certificate"),
        ("empty.pem", "good.key", "--ssl-cert-file {}/empty.pem has no certificate"),
        ("huge.pem", "good.key", "--ssl-cert-file {}/huge.pem has more than 1048576 bytes"),
        ("noise.pem", "good.key", "--ssl-cert-file {}/noise.pem has a certificate that cannot be read"),
        ("good.key", "good.key", "--ssl-cert-file {}/good.key has no certificate"),
        ("good.pem", "half.key", "--ssl-key-file {}/half.key has no whole private key"),
        ("good.pem", "good.pem", "--ssl-key-file {}/good.pem has no whole private key"),
        ("good.pem", "secret.key", "--ssl-key-file {}/secret.key is encrypted"),
        ("good.pem", "other.key", "--ssl-key-file {}/other.key is not the key of the certificate"),
        ("good.pem", "rsa.key", "--ssl-key-file {}/rsa.key is not the key of the certificate"),
    ],
)
def test_files_that_cannot_be_used(broken: Path, certificate: str, key: str, words: str) -> None:
    with pytest.raises(TlsError) as caught:
        tls.make(f"{broken}/{certificate}", f"{broken}/{key}")
    assert str(caught.value).startswith(words.format(broken))
    assert "\n" not in str(caught.value)


# The openssl client


def s_client(port: int, *arguments: str | Path) -> str:
    """All that it says; it ends with its input."""
    assert OPENSSL is not None
    command = [OPENSSL, "s_client", "-connect", f"127.0.0.1:{port}", *map(str, arguments)]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=60)
    return (done.stdout + done.stderr).decode()


@pytest.fixture
def server(serve: Any, authority: Authority) -> Any:
    h = serve(tls=True)
    made = tls.make(str(authority.folder / "chain.pem"), str(authority.key("behind")))
    h.on_loop(lambda: h.server.set_tls(made.context))
    return h


@pytest.mark.parametrize(("flag", "version"), [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")])
def test_versions_that_are_served(server: Any, authority: Authority, flag: str, version: str) -> None:
    said = s_client(server.port, flag, "-alpn", "h2,http/1.1", "-showcerts", "-CAfile", authority.root)
    assert f"New, {version}" in said
    assert "ALPN protocol: http/1.1" in said
    assert "Verify return code: 0 (ok)" in said
    assert said.count("BEGIN CERTIFICATE") == 2


@pytest.mark.parametrize("flag", ["-tls1", "-tls1_1"])
def test_versions_that_are_refused(server: Any, flag: str) -> None:
    # Level 0 lets the client offer them at all.
    said = s_client(server.port, flag, "-cipher", "DEFAULT@SECLEVEL=0")
    assert "alert protocol version" in said
    assert "Cipher is (NONE)" in said


def test_an_expired_certificate_is_served_and_refused_by_the_client(
    server: Any, authority: Authority
) -> None:
    made = tls.make(str(authority.folder / "expired.pem"), str(authority.key("expired")))
    server.on_loop(lambda: server.server.set_tls(made.context))
    said = s_client(server.port, "-CAfile", authority.root, "-verify_return_error")
    assert "certificate has expired" in said
    said = s_client(server.port, "-CAfile", authority.root)
    assert "Verify return code: 10 (certificate has expired)" in said
    assert "New, TLSv1.3" in said


def test_a_client_may_not_renegotiate(server: Any) -> None:
    """It would cost the server a handshake each time."""
    assert OPENSSL is not None
    command = [OPENSSL, "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2"]
    done = subprocess.run(command, input=b"R\n" * 3, capture_output=True, timeout=60)
    assert b"no renegotiation" in done.stdout + done.stderr


# New certificates


def subject(port: int, authority: Authority) -> str:
    name = re.search(r"subject=CN ?= ?(\S+)", s_client(port, "-CAfile", authority.root))
    assert name is not None
    return name[1]


def test_a_new_certificate_is_for_new_connections(serve: Any, authority: Authority) -> None:
    h = serve(tls=True)
    with h.connect() as old:
        old.send(GET % b"/hold")
        held = h.held()
        made = tls.make(str(authority.folder / "other.pem"), str(authority.key("other")))
        h.on_loop(lambda: h.server.set_tls(made.context))
        assert subject(h.port, authority) == "other"
        h.on_loop(lambda: held.send(Response(200, b"done")))
        assert old.read().body == b"done"
        assert old.get("/hello").status == 200


# Handshakes


class Gate:
    """Handshakes wait in their thread until it opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        step = tls_listener._Steps.step

        def wait(steps: Any) -> None:
            self.entered.set()
            assert self.opened.wait(60)
            step(steps)

        monkeypatch.setattr(tls_listener._Steps, "step", wait)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    made.opened.set()
    yield made
    made.opened.set()


def hello(port: int) -> socket.socket:
    """A client whose handshake has begun."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    talk = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        talk.do_handshake()
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.sendall(outgoing.read())
    return sock


def test_a_handshake_delays_nobody(serve: Any, gate: Gate) -> None:
    h = serve(tls=True)
    with h.connect() as c:
        assert c.get("/hello").status == 200  # its own handshake is over
        gate.entered.clear()
        gate.opened.clear()
        with hello(h.port) as waiting:
            assert gate.entered.wait(60)
            assert c.get("/hello").status == 200
            assert c.get("/stream?n=100").whole
            gate.opened.set()
            assert waiting.recv(3) == b"\x16\x03\x03"  # the server's own hello
    h.wait_quiet()


def test_a_client_that_leaves_in_its_handshake_leaves_nothing(serve: Any, gate: Gate) -> None:
    h = serve(tls=True)
    gate.opened.clear()
    for _ in range(3):
        hello(h.port).close()
    assert gate.entered.wait(60)
    gate.opened.set()
    h.wait_quiet()


def test_a_server_may_close_while_a_handshake_is_computed(serve: Any, gate: Gate) -> None:
    h = serve(tls=True)
    gate.opened.clear()
    with hello(h.port) as waiting:
        assert gate.entered.wait(60)
        h.close()
        h.wait_quiet()
        gate.opened.set()
        try:
            assert waiting.recv(100) == b""
        except ConnectionResetError:
            pass


# What was written leaves


def test_a_slow_reader_gets_all_of_an_answer_that_closes(serve: Any) -> None:
    h = serve(tls=True)
    with h.connect() as c:
        c.send(b"GET /flood?n=20000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        h.wait_event("pause", "/flood")
        answer = c.read()
        assert len(answer.body) == 20000 * 1024
    h.wait_quiet()


def test_the_end_is_announced(serve: Any) -> None:
    """Else a client cannot tell an answer's end from an attacker's cut."""
    h = serve(tls=True)
    with h.connect() as c:
        c.sock.suppress_ragged_eofs = False
        c.send(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert c.read().status == 200
        assert c.sock.recv(10) == b""
    h.wait_quiet()
