"""Owns API keys: reads them, and finds the one that a request carries.

Runs on the event loop for every request that is not public. Keys are never logged; their names are.
"""

from __future__ import annotations

import hashlib
import hmac

from llamad.flags.settings import Settings
from llamad.http.request import Request


class Keys:
    """The valid keys. A key's name is a short hash: enough to tell keys apart, useless for guessing one."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = [(key.encode("utf-8", "surrogateescape"), _name(key)) for key in dict.fromkeys(keys)]
        if len({name for _, name in self._keys}) < len(self._keys):
            # Sessions and files belong to names, so two keys must not share one.
            raise ValueError("two API keys have the same short hash; replace one of them")

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, request: Request) -> str | None:
        """The name of the key that the request carries, or None. Takes constant time."""
        offered = self._offered(request).encode("utf-8", "surrogateescape")
        found = None
        for key, name in self._keys:
            if hmac.compare_digest(key, offered):
                found = name
        return found

    @staticmethod
    def _offered(request: Request) -> str:
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return key.strip()
        return request.headers.get("x-api-key", "").strip()


def _name(key: str) -> str:
    return "key-" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def read_keys(settings: Settings) -> Keys:
    """Keys of the flags and of the key file: one per line, without blank lines and # comments."""
    keys = list(settings.api_keys)
    if settings.api_key_file is not None:
        with open(settings.api_key_file, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise ValueError(f"--api-key-file {settings.api_key_file} has no keys; put one on each line")
        keys += found
    return Keys(keys)
