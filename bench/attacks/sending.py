"""Owns how an attack is described, and the small pieces that attacks are made of. Runs in the attackers' processes."""

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
    """`run` goes on until its process is ended. `server`: which kind of it is attacked. `undo` is a body of /completion
    that takes back what the attack has set. `n_processes`: attackers at once."""

    run: Run | None
    server: str = PLAIN
    undo: bytes = b""
    n_processes: int = 2


def body_of(**fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def post(
    address: Address, path: str, body: bytes, key: str = ATTACKER, headers: dict[str, str] | None = None
) -> bytes:
    """Returns the answer's body, or nothing if the server refused or ended the connection, as it may."""
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
    """n threads, each of which calls `run` again and again, with a number that no other call has."""

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
