"""Watches the server during an attack: the times of /health and of a stream, and the memory of front and engine."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from pathlib import Path

from bench.attacks.sending import OTHER, body_of
from bench.client import Address, clock
from bench.programs import family

PROBE_SECONDS = 0.01
MEMORY_SECONDS = 0.1


def connect(address: Address, is_tls: bool, timeout_s: float = 60) -> http.client.HTTPConnection:
    if not is_tls:
        return http.client.HTTPConnection(*address, timeout=timeout_s)
    context = ssl._create_unverified_context()  # the certificate was made a moment ago
    return http.client.HTTPSConnection(*address, timeout=timeout_s, context=context)


def memory_mb(pid: int) -> float:
    """Return the memory of a process in MB, without the files that it maps; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem") if name in fields) / 1024


def engine_of(front: int) -> int:
    """Return the id of the engine process, or 0 if there is none."""
    for pid in family(front):
        try:
            if b"llamad.engine" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except OSError:
            pass
    return 0


class Watch:
    """Requests /health again and again, and reads a stream; records the times in ms, and the peak memory in MB."""

    def __init__(self, address: Address, front: int, is_tls: bool) -> None:
        self._address = address
        self._front = front
        self._is_tls = is_tls
        self._end = threading.Event()
        self.health: list[float] = []
        self.gaps: list[float] = []
        self.n_lost = 0
        self.front_mb = self.engine_mb = 0.0
        targets = (self._ask, self._read, self._weigh)
        self._threads = [threading.Thread(target=one, daemon=True) for one in targets]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)

    def _weigh(self) -> None:
        while not self._end.is_set():
            self.front_mb = max(self.front_mb, memory_mb(self._front))
            self.engine_mb = max(self.engine_mb, memory_mb(engine_of(self._front)))
            time.sleep(MEMORY_SECONDS)

    def _ask(self) -> None:
        connection = connect(self._address, self._is_tls)
        while not self._end.is_set():
            t_start = clock()
            try:
                connection.request("GET", "/health")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                self.n_lost += 1
                connection.close()
            self.health.append((clock() - t_start) / 1e6)
            time.sleep(PROBE_SECONDS)
        connection.close()

    def _read(self) -> None:
        body = body_of(prompt="Once upon a time", n_predict=100_000, ignore_eos=True, stream=True)
        while not self._end.is_set():
            connection = connect(self._address, self._is_tls)
            try:
                connection.request("POST", "/completion", body, {"Authorization": f"Bearer {OTHER}"})
                t_last = 0
                response = connection.getresponse()
                if response.status != 200:
                    self.n_lost += 1
                    time.sleep(PROBE_SECONDS)
                for line in response:
                    if line.startswith(b"data: "):
                        now = clock()
                        if t_last:
                            self.gaps.append((now - t_last) / 1e6)
                        t_last = now
                    if self._end.is_set():
                        break
            except (OSError, http.client.HTTPException):
                self.n_lost += 1
            finally:
                connection.close()
