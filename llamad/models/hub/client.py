"""Owns requests to a hub and to the hosts it redirects to: TLS, proxies by environment, redirects, credentials.

Any thread; blocks. A credential goes to the scheme, host and port that it is for and nowhere else, whatever redirects
say, and is never logged. Unlike the fetcher of media, it may reach private addresses: the operator names the hub.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import string
import urllib.request
from email.utils import parsedate_to_datetime
from http.client import HTTPResponse
from time import time
from urllib.error import URLError
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from llamad import __version__
from llamad.models.hub.errors import HubError

DEFAULT_ENDPOINT = "https://huggingface.co/"
# Without a byte. Long enough for a slow hub, short enough for a dead one.
SILENCE_SECONDS = 30.0
REDIRECTS_MAX = 8
JSON_BYTES_MAX = 64 << 20
READ_BYTES = 1 << 18
RETRY_SECONDS_MAX = 120.0
_MOVED = (301, 302, 303, 307, 308)

Origin = tuple[str, str, int]


class Answer:
    """A response whose redirects were followed. `linked_hash` is the SHA-256 that a hub gave on the way to the host of
    its large files; empty: none."""

    def __init__(self, response: HTTPResponse, url: str, linked_hash: str) -> None:
        self.url = url
        self.status = response.status
        self.headers = response.headers
        self.linked_hash = linked_hash
        self._response = response

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def read(self) -> bytes:
        """What has arrived of the body, at least a byte; nothing at its end. Raises HubError."""
        try:
            return self._response.read1(READ_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise broken_off(self.url, error) from None

    def header(self, name: str) -> str:
        return str(self.headers.get(name) or "").strip()

    @property
    def etag(self) -> str:
        return self.header("ETag")

    def number(self, name: str) -> int | None:
        """A header that is a whole number."""
        text = self.header(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    def check_plain(self) -> None:
        """Raises HubError for a body that was compressed on its way, though that was not asked for: neither its length
        nor its place in a file would be known."""
        encoding = self.header("Content-Encoding").lower()
        if encoding not in ("", "identity"):
            raise HubError(
                f"{shown(self.url)} sends its files compressed ({encoding[:40]}), which cannot be continued or checked;"
                " turn that off there, or for the proxy in between"
            )

    def outage(self) -> HubError | None:
        """The error of a status that may pass; None: it is another."""
        if self.status not in (408, 429) and self.status < 500:
            return None
        what = "too many requests" if self.status == 429 else "it has a problem"
        return HubError(
            f"{shown(self.url)} answers with status {self.status} ({what}); try again later",
            is_outage=True,
            retry_seconds=_retry_seconds(self.header("Retry-After")),
        )


class Client:
    """`endpoint` is the hub's address, with a slash at its end. Raises HubError for one that is none, and for a token
    that is none."""

    def __init__(self, endpoint: str, token: str | None = None) -> None:
        self.endpoint, basic = _plain(endpoint if endpoint.endswith("/") else f"{endpoint}/")
        self._credentials: dict[Origin, str] = {}
        if basic:
            self._credentials[_origin(self.endpoint)] = basic
        token = (token or "").strip()
        if token:
            if not all(33 <= ord(c) <= 126 for c in token):
                raise HubError("--hf-token: the token has characters that no token has; copy it again")
            self._credentials[_origin(self.endpoint)] = f"Bearer {token}"
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        ):
            self._opener.add_handler(handler)

    def has_credential(self, url: str) -> bool:
        return _origin(url) in self._credentials

    def open(self, url: str, headers: dict[str, str] | None = None) -> Answer:
        """The answer, whatever its status. Raises HubError if there is none."""
        url, basic = _plain(url)
        if basic:
            self._credentials[_origin(url)] = basic
        linked = ""
        for _ in range(REDIRECTS_MAX + 1):
            response = self._request(url, headers or {})
            linked = linked or _hash(response.headers.get("X-Linked-ETag"))
            location = response.headers.get("Location")
            if response.status not in _MOVED or not location:
                return Answer(response, url, linked)
            response.close()
            target, _ = _plain(join(url, location))
            if url.startswith("https:") and not target.startswith("https:"):
                raise HubError(
                    f"{shown(url)} redirects from https to http, to {shown(target)}; that is not followed"
                )
            url = target
        raise HubError(f"{shown(url)}: more than {REDIRECTS_MAX} redirects")

    def get_json(self, url: str) -> tuple[Answer, bytes]:
        """A whole body, for status 200; empty for others. Raises HubError for outages."""
        with self.open(url, {"Accept": "application/json", "Accept-Encoding": "identity"}) as answer:
            outage = answer.outage()
            if outage is not None:
                raise outage
            if answer.status != 200:
                return answer, b""
            answer.check_plain()
            body = bytearray()
            while data := answer.read():
                body += data
                if len(body) > JSON_BYTES_MAX:
                    raise HubError(f"{shown(url)} answers with more than {JSON_BYTES_MAX} bytes")
        length = answer.number("Content-Length")
        if length is not None and length != len(body):
            raise broken_off(url, None)
        return answer, bytes(body)

    def _request(self, url: str, headers: dict[str, str]) -> HTTPResponse:
        request = urllib.request.Request(url, headers={"User-Agent": f"llamad/{__version__}", **headers})
        credential = self._credentials.get(_origin(url))
        if credential is not None:
            request.add_unredirected_header("Authorization", credential)
        try:
            response = self._opener.open(request, timeout=SILENCE_SECONDS)
        except URLError as error:
            reason = error.reason
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise HubError(
                    f"{shown(url)}: its certificate is not trusted ({reason.verify_message}); SSL_CERT_FILE names"
                    " other authorities"
                ) from None
            raise HubError(f"{shown(url)} cannot be reached: {reason}", is_outage=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise broken_off(url, error) from None
        except ValueError as error:
            raise HubError(f"{shown(url)} is no address: {error}") from None
        assert isinstance(response, HTTPResponse)
        return response


def broken_off(url: str, error: BaseException | None) -> HubError:
    why = f": {error}" if error is not None and str(error) else ""
    return HubError(f"{shown(url)}: the connection broke off{why}", is_outage=True)


def shown(url: str) -> str:
    """An address for people: without a password, and without a query, which may hold one."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def join(url: str, location: str) -> str:
    """Where a link leads that stands at `url`. Raises HubError."""
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise HubError(f"{shown(url)} links to what is no address: {error}") from None


def has_origin_of(url: str, other: str) -> bool:
    return _origin(url) == _origin(other)


def _plain(url: str) -> tuple[str, str]:
    """An address without user and password, percent-encoded where it must be, and the header that they become."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port  # raises for what is no number
    except ValueError as error:
        raise HubError(f"no address of a host that models are at: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise HubError(f"'{shown(url)[:200]}' is no address that begins with http:// or https://")
    user, at, place = parts.netloc.rpartition("@")
    basic = ""
    if at:
        basic = "Basic " + base64.b64encode(unquote(user).encode("utf-8")).decode("ascii")
    path, query = (quote(text, safe=string.punctuation) for text in (parts.path or "/", parts.query))
    return urlunsplit((parts.scheme, place, path, query, "")), basic


def _origin(url: str) -> Origin:
    parts = urlsplit(url)
    port = parts.port if parts.port is not None else (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port


def _hash(etag: str | None) -> str:
    """The SHA-256 that an ETag is; empty: it is none."""
    text = (etag or "").strip().removeprefix("W/").strip('"').lower()
    return text if len(text) == 64 and all(c in string.hexdigits for c in text) else ""


def _retry_seconds(text: str) -> float:
    """Of a Retry-After: seconds, or a date."""
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), RETRY_SECONDS_MAX)
