"""systemd's end of the notify socket: records every datagram, and judges as its watchdog does."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from support.live_daemon import WAIT_SECONDS


class Recorder:
    """The notify socket: `told` has every datagram with the time of its arrival, as assignments. An abstract socket
    without a path."""

    def __init__(self, path: str = "", watchdog_seconds: float = 0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = path or "@llamad-test-" + secrets.token_hex(8)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self.env = {"NOTIFY_SOCKET": name}
        if watchdog_seconds:
            self.env["WATCHDOG_USEC"] = str(int(watchdog_seconds * 1e6))
        self.told: list[tuple[float, dict[str, str]]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := self._socket.recv(65536):
            lines = dict(line.split("=", 1) for line in data.decode().split("\n"))
            self.told.append((time.monotonic(), lines))

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def all(self, name: str) -> list[str]:
        """Every value of an assignment, in order."""
        return [lines[name] for _, lines in self.told if name in lines]

    def wait(self, condition: Callable[[dict[str, str]], Any], after: int = 0) -> int:
        """The number of the first datagram after so many for which the condition holds, past or to come."""
        t_end = time.monotonic() + WAIT_SECONDS
        i = after
        while True:
            while i < len(self.told):
                if condition(self.told[i][1]):
                    return i
                i += 1
            assert time.monotonic() < t_end, f"not told: {self.told}"
            time.sleep(0.005)

    def wait_for(self, name: str, value: str, after: int = 0) -> int:
        """The number of the first such datagram whose assignment begins with the value."""
        return self.wait(lambda lines: lines.get(name, "\0").startswith(value), after)

    def wait_hungry(self, seconds: float) -> None:
        """Until the watchdog was not fed for so long, as systemd waits before it kills."""
        t_end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() - max(t for t, lines in self.told if "WATCHDOG" in lines) < seconds:
            assert time.monotonic() < t_end, "it was fed all the time"
            time.sleep(0.01)

    def hunger(self) -> float:
        """The longest time between two feeds so far, and since the last one, in seconds."""
        times = [t for t, lines in self.told if "WATCHDOG" in lines] + [time.monotonic()]
        return max(later - earlier for earlier, later in pairwise(times))
