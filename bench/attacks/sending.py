"""The description of an attack, and helpers that attacks share. Runs in the attackers' processes."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.client import Address

ATTACKER, OTHER = "attacker", "other"
PLAIN, TLS, MEDIA = "plain", "TLS", "media"

Run = Callable[[Address], None]


@dataclass(frozen=True, slots=True)
class Attack:
    """`run` goes on until its process is killed. `server` is the kind of server that is attacked. `undo` is a body for
    /completion that undoes what the attack has set. `n_processes` is the number of attackers at once."""

    run: Run | None
    server: str = PLAIN
    undo: bytes = b""
    n_processes: int = 2


def body_of(**fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def post(
    address: Address, path: str, body: bytes, key: str = ATTACKER, headers: dict[str, str] | None = None
) -> bytes:
    """Return the response's body, or b"" if the server refused or closed the connection, which it may."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("POST", path, body, {"Authorization": f"Bearer {key}", **(headers or {})})
        return connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        time.sleep(0.01)
        return b""
    finally:
        connection.close()


def repeat(path: str, body: Callable[[int], bytes], key: str = ATTACKER) -> Run:
    def attack(address: Address) -> None:
        i = 0
        while True:
            post(address, path, body(i), key)
            i += 1

    return attack


def at_once(n: int, run: Callable[[Address, int], None]) -> Run:
    """Return an attack of n threads, each of which calls `run` again and again with a unique number."""

    def attack(address: Address) -> None:
        def again(first: int) -> None:
            i = first
            while True:
                run(address, i)
                i += n

        threads = [threading.Thread(target=again, args=(i,), daemon=True) for i in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return attack
