"""Makes the HTTP layer's limits, CORS rules, proxies and TLS context from the settings, at the start and at a reload.

A setting that cannot be honoured is a ValueError whose message names the flag.
"""

from __future__ import annotations

import logging
import socket

from llamad.flags.settings import DaemonSettings
from llamad.http import tls
from llamad.http.cors import Cors
from llamad.http.limits import Limits, raise_nofile
from llamad.http.proxies import Proxies

log = logging.getLogger("llamad")

# Descriptors in addition to the connections: model, log, sockets, eventfds.
SPARE_DESCRIPTORS = 256


def limits_of(settings: DaemonSettings) -> Limits:
    return Limits(
        header_max_bytes=settings.header_max_bytes,
        body_max_bytes=settings.body_max_bytes,
        bodies_max_bytes=settings.bodies_max_bytes,
        read_timeout=settings.timeout,
        header_timeout=settings.header_timeout,
        body_timeout=settings.body_timeout,
        keepalive_timeout=settings.keepalive_timeout,
        write_timeout=settings.timeout,
        connections_max=settings.connections_max,
        address_connections_max=settings.address_connections_max or settings.connections_max,
        stream_buffer_bytes=settings.stream_buffer_bytes,
    )


def cors_of(settings: DaemonSettings, has_keys: bool) -> Cors:
    try:
        return Cors(
            settings.cors_origins,
            hosts=settings.allowed_hosts,
            own_name=socket.gethostname(),
            has_keys=has_keys,
            methods=settings.cors_methods,
            headers=settings.cors_headers,
            credentials=settings.cors_credentials,
        )
    except ValueError as error:
        raise ValueError(f"--cors-origins: {error}") from None


def proxies_of(settings: DaemonSettings) -> Proxies | None:
    if not settings.trusted_proxies:
        return None
    return Proxies(settings.trusted_proxies, speaks_first=settings.proxy_protocol)


def tls_of(settings: DaemonSettings) -> tls.Tls | None:
    if settings.ssl_cert_file is None or settings.ssl_key_file is None:
        return None
    return tls.make(settings.ssl_cert_file, settings.ssl_key_file)


def ask_descriptors(settings: DaemonSettings) -> None:
    """Raise the limit of open files to what all connections need, as far as the system allows; warn if it is less."""
    n_needed = settings.connections_max + SPARE_DESCRIPTORS
    n_got = raise_nofile(n_needed)
    if n_got < n_needed:
        log.warning(
            "file descriptors: %d allowed, %d needed; raise `ulimit -n` or lower --connections-max",
            n_got,
            n_needed,
        )
