"""Reads the API keys, and finds the one that a request carries.

Runs on the event loop for every request that is not public. Keys are never logged; their names are.
"""

from __future__ import annotations

import codecs
import hashlib
import hmac

from llamad.flags.settings import DaemonSettings, ModelSettings
from llamad.http.request import Request

# For header bytes: str.strip() would also strip a key's non-ASCII bytes that look like spaces.
_BLANK = b" \t"


class Keys:
    """The valid keys. A key's name is a short hash: enough to tell keys apart, useless for guessing one."""

    def __init__(self, keys: list[str]) -> None:
        known: dict[bytes, str] = {}
        for key in dict.fromkeys(keys):
            name = _name(key)
            # Sessions and files belong to names, so two keys must not share one.
            if name in known.values():
                raise ValueError("two API keys have the same short hash; replace one of them")
            if any(form in known for form in _encodings(key)):
                raise ValueError("two API keys are the same bytes in UTF-8 and Latin-1; replace one of them")
            known.update(dict.fromkeys(_encodings(key), name))
        self._known = list(known.items())

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for _, name in self._known)

    def __bool__(self) -> bool:
        return bool(self._known)

    def find(self, request: Request) -> str | None:
        """Return the name of the key that the request carries, or None. Takes constant time."""
        key_name = None
        for offered in _offered(request.headers):
            for key, name in self._known:
                if hmac.compare_digest(key, offered):
                    key_name = name
        return key_name


def check_sharing(keys: Keys, model: ModelSettings) -> None:
    """Check that nothing which belongs to no key is kept between keys. Raises ValueError."""
    if keys and model.lookup_cache_dynamic is not None and not model.share_prefixes:
        raise ValueError(
            "--lookup-cache-dynamic learns from the answers of all API keys, and one key could find out by timing what"
            " others were answered; add --share-prefixes if they may, or leave it out"
        )


def _offered(headers: dict[str, str]) -> list[bytes]:
    """Return the possible keys as the bytes that were sent; the last one has precedence."""
    offered = []
    if "x-api-key" in headers:
        offered.append(headers["x-api-key"].encode("latin-1").strip(_BLANK))
    scheme, _, rest = headers.get("authorization", "").encode("latin-1").replace(b"\t", b" ").partition(b" ")
    if scheme.lower() == b"bearer":
        offered.append(rest.strip(_BLANK))
    return offered


def _encodings(key: str) -> list[bytes]:
    """Return the bytes that clients may send for a key: UTF-8 and, if possible, Latin-1."""
    raw = key.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # the key file or the variable is in Latin-1
    forms = [raw, text.encode("utf-8")]
    try:
        forms.append(text.encode("latin-1"))
    except UnicodeEncodeError:
        pass
    return list(dict.fromkeys(forms))


def _name(key: str) -> str:
    return "key-" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def key_texts(settings: DaemonSettings) -> list[str]:
    """Return the keys of the flags and of the key file, which has one per line; blank lines and # comments are skipped.
    Raises ValueError."""
    keys = list(settings.api_keys)
    if settings.api_key_file is not None:
        lines = [line.strip() for line in _read(settings.api_key_file).splitlines()]
        file_keys = [line for line in lines if line and not line.startswith("#")]
        if not file_keys:
            raise ValueError(f"--api-key-file {settings.api_key_file} has no keys; put one on each line")
        keys += file_keys
    return keys


def read_keys(settings: DaemonSettings) -> Keys:
    """Return the keys with which requests are compared. Raises ValueError."""
    return Keys(key_texts(settings))


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return _text(file.read(), path)
    except OSError as error:
        raise ValueError(f"--api-key-file {path}: {error.strerror}") from None


def _text(data: bytes, path: str) -> str:
    """Return the text of a key file, with or without a BOM, in UTF-8, UTF-16 or another encoding. Raises ValueError."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError:
            raise ValueError(f"--api-key-file {path} is not valid UTF-16; save it as UTF-8") from None
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
