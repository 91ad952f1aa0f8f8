"""Makes the server's TLS context from a certificate and a key, and warns when the certificate expires.

Runs on the main thread at start-up, and on another thread at a reload. It must never prompt on a terminal.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import time

import msgspec

from llamad.http import certificate
from llamad.http.certificate import Validity

DAY_SECONDS = 86_400
WARN_DAYS = 30
_FILE_MAX = 1 << 20
_KEY = re.compile(rb"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


class TlsError(ValueError):
    """One line that says why TLS cannot be used with these files."""


class Tls(msgspec.Struct, frozen=True):
    """A TLS context, and the validity of each certificate of its chain. The first is the server's own."""

    context: ssl.SSLContext
    chain: list[Validity]
    digest: bytes  # of both files

    @property
    def last_day(self) -> str:
        return _day(self.expiry)

    @property
    def expiry(self) -> float:
        """Return when the first certificate of the chain expires."""
        return min(one.end for one in self.chain)

    def complaint(self, now: float) -> tuple[bool, str] | None:
        """Return whether clients refuse the certificate already, and a sentence about it; None if all is well."""
        for number, one in enumerate(self.chain, 1):
            name = f"certificate {number} of the chain" if number > 1 else "the certificate"
            if now >= one.end:
                return True, f"{name} expired on {_day(one.end)}: clients will refuse it"
            if now < one.begin:
                return True, f"{name} is not valid before {_day(one.begin)}: clients will refuse it"
        number, soonest = min(enumerate(self.chain, 1), key=lambda pair: pair[1].end)
        if soonest.end - now < WARN_DAYS * DAY_SECONDS:
            name = f"certificate {number} of the chain" if number > 1 else "the certificate"
            n_days = int((soonest.end - now) // DAY_SECONDS)
            return False, f"{name} expires on {_day(soonest.end)}, in {n_days} days"
        return None


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def make(cert_file: str, key_file: str) -> Tls:
    """Make the context from the two files. Raises TlsError."""
    certificates, key = _bytes("--ssl-cert-file", cert_file), _bytes("--ssl-key-file", key_file)
    try:
        chain = certificate.validities(certificates)
    except ValueError as error:
        raise TlsError(f"--ssl-cert-file {cert_file} {error}") from None
    if not _KEY.search(key):
        raise TlsError(
            f"--ssl-key-file {key_file} has no whole private key (PEM: -----BEGIN PRIVATE KEY-----)"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # With renegotiation a client could make the server compute handshakes for ever on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    is_encrypted = False

    def passphrase() -> str:
        nonlocal is_encrypted
        is_encrypted = True
        return ""

    try:
        context.load_cert_chain(cert_file, key_file, passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        if is_encrypted:
            reason = f"--ssl-key-file {key_file} is encrypted, and llamad cannot prompt; decrypt it with `openssl pkey`"
        else:
            reason = _reason(error, cert_file, key_file)
        raise TlsError(reason) from None
    return Tls(context, chain, hashlib.sha256(key + certificates).digest())


def _bytes(flag: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(_FILE_MAX + 1)
    except OSError as error:
        raise TlsError(f"{flag} {path}: {error.strerror}") from None
    if len(data) > _FILE_MAX:
        raise TlsError(f"{flag} {path} has more than {_FILE_MAX} bytes")
    return data


def _reason(error: Exception, cert_file: str, key_file: str) -> str:
    reason = getattr(error, "reason", None)
    # OpenSSL gives the last reason if the key is of another kind than the certificate's.
    if reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):
        return f"--ssl-key-file {key_file} is not the key of the certificate in --ssl-cert-file {cert_file}"
    return f"--ssl-cert-file {cert_file} and --ssl-key-file {key_file} cannot be used: {error}"
