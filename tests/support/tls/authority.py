"""Certificates for tests, by the openssl program: of any age, with intermediates, each with a key of its own."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

OPENSSL = shutil.which("openssl")

_CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
x509_extensions = {{kind}}
[any]
commonName = supplied
[ca_extensions]
basicConstraints = critical,CA:true
[leaf_extensions]
basicConstraints = CA:false
subjectAltName = DNS:localhost,IP:127.0.0.1
[req]
distinguished_name = none
[none]
"""
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*arguments: str | Path, data: bytes = b"") -> str:
    """Its standard output; it must succeed."""
    assert OPENSSL is not None
    done = subprocess.run([OPENSSL, *map(str, arguments)], input=data, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Authority:
    """Issues NAME.pem and NAME.key in a folder. `root` is what clients trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root.pem"
        (folder / "index").touch()
        subject = ("-subj", "/CN=root", "-days", "3650")
        openssl("req", "-x509", *_EC, *subject, "-keyout", folder / "root.key", "-out", self.root)

    def issue(
        self,
        name: str,
        days: float = 365.0,
        *,
        since_days: float = -1.0,
        issuer: str = "root",
        is_ca: bool = False,
    ) -> Path:
        """The certificate alone; `days` from now on until it expires."""
        folder, request = self.folder, self.folder / f"{name}.csr"
        config = folder / "openssl.cnf"
        kind = "ca_extensions" if is_ca else "leaf_extensions"
        config.write_text(_CONFIG.format(folder=folder).format(kind=kind))
        openssl(
            "req", "-new", *_EC, "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key", "-out", request
        )
        path = folder / f"{name}.pem"
        dates = ("-startdate", _date(since_days), "-enddate", _date(days))
        signer = ("-cert", folder / f"{issuer}.pem", "-keyfile", folder / f"{issuer}.key")
        openssl("ca", "-batch", "-notext", "-config", config, *signer, *dates, "-in", request, "-out", path)
        return path

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"


def _date(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).strftime("%Y%m%d%H%M%SZ")
