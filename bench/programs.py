"""Owns the programs that are measured: how each is started, when it is ready, what CPU it has used, how it ends.

Both get the same options. llama-server gets three more, each of which makes it faster here or keeps it out of
trouble: no prompt cache in RAM (it would copy every finished slot), no web page, and a thread for each connection.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bench.errors import BenchError
from bench.load import Address, clock

HOST = "127.0.0.1"
LLAMAD, LLAMA_SERVER = "llamad", "llama-server"
READY_SECONDS = 300.0
STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a program is started with, said once for both."""

    model: str
    n_slots: int
    n_ctx: int
    n_threads: int | None  # None: the program's own choice
    n_connections: int
    extra: tuple[str, ...] = ()

    def flags(self, port: int) -> list[str]:
        threads = str(self.n_threads)
        return [
            *("-m", self.model, *(("-t", threads, "-tb", threads) if self.n_threads else ())),
            *("-c", str(self.n_ctx), "-np", str(self.n_slots)),
            *("--host", HOST, "--port", str(port), *self.extra),
        ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def machine_cpu_s() -> float:
    """CPU seconds that the whole machine has been busy or was taken away from it; 0 where there is no /proc."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in first[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def environment() -> dict[str, str]:
    """Python keeps its bytecode, as it does wherever llamad is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def llamad_command() -> list[str]:
    return [sys.executable, "-m", "llamad"]


def peer_flags(program: str, n_connections: int) -> list[str]:
    """llama-server's additions, as far as this build of it knows them."""
    try:
        told = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise BenchError(
            f"{program} cannot be run ({error.strerror}): name another with --server or LLAMA_SERVER, "
            "or build one with `make peer`"
        ) from None
    wanted = (["--cache-ram", "0"], ["--no-webui"], ["--threads-http", str(n_connections + 4)])
    return [word for flags in wanted if flags[0] in told.stdout for word in flags]


class Program:
    """One running server. Its output goes to a file, which is shown when it does not come up."""

    def __init__(self, name: str, command: list[str], port: int, log: Path) -> None:
        self.name = name
        self.command = command
        self.address: Address = (HOST, port)
        self.log = log
        with log.open("wb") as out:
            self.t_exec = clock()
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment())

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Until /health says 200."""
        self.wait_until(self._is_ready, 0.05)

    def wait_until(self, is_so: Callable[[], bool], pause_s: float) -> None:
        """Asks again and again. A program that ends, or takes too long, is an error."""
        t_end = time.monotonic() + READY_SECONDS
        while not is_so():
            if self._process.poll() is not None:
                lines = self.log.read_text(errors="replace").splitlines()
                last = lines[-1] if lines else "it said nothing"
                raise BenchError(f"{self.name} ended with status {self._process.returncode}: {last}")
            if time.monotonic() > t_end:
                raise BenchError(f"{self.name} was not ready after {READY_SECONDS:g} s: see {self.log}")
            time.sleep(pause_s)

    def last_lines(self, n: int = 12) -> str:
        """Of what it said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-n:])

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection(*self.address, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def cpu_s(self) -> float:
        """CPU seconds that all its threads have used; 0 where the system has no /proc."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return 0.0
        fields = stat[stat.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def start(name: str, options: Options, server: str | None, folder: Path) -> Program:
    """One program by its name, with the flags both have and no others."""
    command = llamad_command() if name == LLAMAD or server is None else [server]
    port = free_port()
    return Program(name, [*command, *options.flags(port)], port, folder / f"{name}-{options.n_slots}.log")


def turns(server: str | None, n_rounds: int) -> Iterator[str]:
    """Who is started next: A, B, B, A, ..."""
    names = [LLAMAD, LLAMA_SERVER] if server is not None else [LLAMAD]
    for index in range(n_rounds):
        yield from names if index % 2 == 0 else names[::-1]


class Pair:
    """llamad and, where its program is named, llama-server: both loaded, to be driven one at a time."""

    def __init__(self, options: Options, server: str | None, folder: Path) -> None:
        self.programs: list[Program] = []
        commands = {LLAMAD: llamad_command()}
        extra: dict[str, list[str]] = {}
        if server is not None:
            commands[LLAMA_SERVER] = [server]
            extra[LLAMA_SERVER] = peer_flags(server, options.n_connections)
        try:
            for name, command in commands.items():
                port = free_port()
                whole = [*command, *options.flags(port), *extra.get(name, [])]
                log = folder / f"{name}-{options.n_slots}.log"
                self.programs.append(Program(name, whole, port, log))
            for program in self.programs:
                program.wait_ready()
        except BaseException:
            self.stop()
            raise

    def idle_cpu(self, seconds: float) -> dict[str, float]:
        """The share of a core that each program takes with nothing to do."""
        before = {program.name: program.cpu_s() for program in self.programs}
        time.sleep(seconds)
        return {program.name: (program.cpu_s() - before[program.name]) / seconds for program in self.programs}

    def stop(self) -> None:
        for program in self.programs:
            program.stop()

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
