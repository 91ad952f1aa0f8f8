"""Sends requests to a hub and the hosts that it redirects to, with TLS, proxies from the environment and credentials.

Any thread; blocks. A credential is sent only to the scheme, host and port that it is for, whatever redirects say, and
is never logged. Unlike the code that fetches media, it may reach private addresses, because the operator names the hub.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import string
import urllib.request
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPResponse
from time import time
from urllib.error import URLError
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from llamad import __version__
from llamad.models.hub.errors import HubError

DEFAULT_ENDPOINT = "https://huggingface.co/"
# The timeout for the next byte: long enough for a slow hub, short enough for a dead one.
SILENCE_SECONDS = 30.0
REDIRECTS_MAX = 8
JSON_BYTES_MAX = 64 << 20
READ_BYTES = 1 << 18
RETRY_SECONDS_MAX = 120.0
_MOVED = (301, 302, 303, 307, 308)

Origin = tuple[str, str, int]


class Response:
    """A response after all redirects. `linked_hash` is the SHA-256 that the hub gave with its redirect to the host of
    large files; it is empty if there was none."""

    def __init__(self, response: HTTPResponse, url: str, linked_hash: str) -> None:
        self.url = url
        self.status = response.status
        self.headers = response.headers
        self.linked_hash = linked_hash
        self._response = response

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def read(self) -> bytes:
        """Return the next bytes of the body, or b"" at its end. Raises HubError."""
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
        """Return the value of a header that is a whole number, or None."""
        text = self.header(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    def check_plain(self) -> None:
        """Raise HubError if the body is compressed although that was not requested, because neither its length nor its
        position in a file would be known."""
        encoding = self.header("Content-Encoding").lower()
        if encoding not in ("", "identity"):
            raise HubError(
                f"{shown(self.url)} sends its files compressed ({encoding[:40]}), which cannot be continued or checked;"
                " turn that off there, or for the proxy in between"
            )

    def outage(self) -> HubError | None:
        """Return the error for a status that may be temporary, or None for any other status."""
        if self.status not in (408, 429) and self.status < 500:
            return None
        what = "too many requests" if self.status == 429 else "it has a problem"
        return HubError(
            f"{shown(self.url)} answers with status {self.status} ({what}); try again later",
            is_outage=True,
            retry_seconds=_retry_seconds(self.header("Retry-After")),
        )


class Client:
    """`endpoint` is the hub's address. Raises HubError for an invalid address or token."""

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

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        """Made for the first request, because reading the certificates takes much longer than looking into a cache."""
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        ):
            opener.add_handler(handler)
        return opener

    def has_credential(self, url: str) -> bool:
        return _origin(url) in self._credentials

    def open(self, url: str, headers: dict[str, str] | None = None) -> Response:
        """Return the response, whatever its status. Raises HubError if there is none."""
        url, basic = _plain(url)
        if basic:
            self._credentials[_origin(url)] = basic
        linked = ""
        for _ in range(REDIRECTS_MAX + 1):
            response = self._request(url, headers or {})
            linked = linked or _hash(response.headers.get("X-Linked-ETag"))
            location = response.headers.get("Location")
            if response.status not in _MOVED or not location:
                return Response(response, url, linked)
            response.close()
            target, _ = _plain(join(url, location))
            if url.startswith("https:") and not target.startswith("https:"):
                raise HubError(
                    f"{shown(url)} redirects from https to http, to {shown(target)}; that is not followed"
                )
            url = target
        raise HubError(f"{shown(url)}: more than {REDIRECTS_MAX} redirects")

    def get_json(self, url: str) -> tuple[Response, bytes]:
        """Return the response and its whole body, which is empty unless the status is 200. Raises HubError for
        outages."""
        with self.open(url, {"Accept": "application/json", "Accept-Encoding": "identity"}) as response:
            outage = response.outage()
            if outage is not None:
                raise outage
            if response.status != 200:
                return response, b""
            response.check_plain()
            body = bytearray()
            while data := response.read():
                body += data
                if len(body) > JSON_BYTES_MAX:
                    raise HubError(f"{shown(url)} answers with more than {JSON_BYTES_MAX} bytes")
        length = response.number("Content-Length")
        if length is not None and length != len(body):
            raise broken_off(url, None)
        return response, bytes(body)

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
            raise HubError(f"{shown(url)} is not a valid address: {error}") from None
        assert isinstance(response, HTTPResponse)
        return response


def broken_off(url: str, error: BaseException | None) -> HubError:
    why = f": {error}" if error is not None and str(error) else ""
    return HubError(f"{shown(url)}: the connection broke off{why}", is_outage=True)


def shown(url: str) -> str:
    """Return an address for people: without a password, and without a query, which may contain one."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def join(url: str, location: str) -> str:
    """Resolve a link that was found at `url`. Raises HubError."""
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise HubError(f"{shown(url)} has an invalid link: {error}") from None


def has_origin_of(url: str, other: str) -> bool:
    return _origin(url) == _origin(other)


def _plain(url: str) -> tuple[str, str]:
    """Return the address without user and password, percent-encoded, and the Authorization header for them."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port  # raises ValueError if it is not a number
    except ValueError as error:
        raise HubError(f"the address of the model's host is invalid: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise HubError(f"'{shown(url)[:200]}' is not an address that begins with http:// or https://")
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
    """Return an ETag if it is a SHA-256, else ""."""
    text = (etag or "").strip().removeprefix("W/").strip('"').lower()
    return text if len(text) == 64 and all(c in string.hexdigits for c in text) else ""


def _retry_seconds(text: str) -> float:
    """Return the seconds of a Retry-After header, which has seconds or a date."""
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), RETRY_SECONDS_MAX)
