"""The programs that are measured: starts them, waits until they are ready, reads their CPU time, and stops them.

All get the same options. llama-server gets three more, which make it faster or avoid problems here: no prompt cache in
RAM (it would copy every finished slot), no web page, and a thread for each connection.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench import client
from bench.client import Address, Client, clock
from bench.errors import BenchError
from bench.gpu.build import made

HOST = "127.0.0.1"
BATCHED, LLAMA_SERVER, LLAMA_SERVER_BS, LLAMAD = (
    "batched-bench",
    "llama-server",
    "llama-server -bs",  # with --backend-sampling
    "llamad",
)
NAMES = (BATCHED, LLAMA_SERVER, LLAMA_SERVER_BS, LLAMAD)
READY_SECONDS = 300.0
STOP_SECONDS = 20.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of all commands that start programs."""
    add = parser.add_argument
    add("--model", default=os.environ.get("LLAMAD_TEST_MODEL"), help="the GGUF file (LLAMAD_TEST_MODEL)")
    add(
        "--server",
        default=os.environ.get("LLAMA_SERVER") or None,
        help="llama-server's program (LLAMA_SERVER, or the one `bench build` made)",
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the flag of commands that can leave out a server."""
    parser.add_argument("--programs", help=f"a list of {LLAMAD}, {LLAMA_SERVER} (both, if it is installed)")


def chosen(flags: argparse.Namespace) -> list[str]:
    """Return the names of the servers to start."""
    names: list[str] = flags.programs.split(",") if flags.programs else [LLAMAD, LLAMA_SERVER]
    for name in names:
        if name not in (LLAMAD, LLAMA_SERVER):
            raise BenchError(f"--programs: there is no {name}; it takes {LLAMAD}, {LLAMA_SERVER}")
    return names


def check_model(flags: argparse.Namespace) -> None:
    if not flags.model:
        raise BenchError("no model: pass --model FILE.gguf, or use `make bench`, which fetches one")
    if not Path(flags.model).is_file():
        raise BenchError(
            f"{flags.model} is not a file: pass --model FILE.gguf (`python -m bench model` writes one)"
        )


@dataclass(frozen=True, slots=True)
class Options:
    """The options with which all servers are started."""

    model: str
    n_slots: int
    n_ctx: int
    n_threads: int | None  # None: the program's own choice
    n_connections: int
    extra: tuple[str, ...] = ()
    is_tuned: bool = True  # llama-server gets its three additional flags

    def flags(self, port: int) -> list[str]:
        threads = str(self.n_threads)
        return [
            *("-m", self.model, *(("-t", threads, "-tb", threads) if self.n_threads else ())),
            *("-c", str(self.n_ctx), "-np", str(self.n_slots)),
            *("--host", HOST, "--port", str(port), *self.extra),
        ]


@dataclass(frozen=True, slots=True)
class Programs:
    """The paths of the programs, and the flags that only one of them gets."""

    server: str | None = None
    batched_bench: str | None = None
    own_args: dict[str, list[str]] = field(default_factory=dict)

    def path(self, name: str) -> str | None:
        """Return the path of a program, or None if it is not installed; llamad always is."""
        if name == LLAMAD:
            return sys.executable
        key = "batched_bench" if name == BATCHED else "server"
        path: str | None = getattr(self, key)
        return path or made().get(key)

    def require(self, name: str) -> str:
        path = self.path(name)
        if path is None:
            flag = "--batched-bench" if name == BATCHED else "--server"
            raise BenchError(f"no {name}: `make peer` or `python -m bench build` makes it; {flag} names one")
        return path

    def command(self, name: str, options: Options, port: int) -> list[str]:
        own = self.own_args.get(name, [])
        if name == LLAMAD:
            return [*llamad_command(), *options.flags(port), *own]
        path = self.require(name)
        more = llama_server_flags(path, options.n_connections) if options.is_tuned else []
        if name == LLAMA_SERVER_BS:
            more.append("--backend-sampling")
        return [path, *options.flags(port), *more, *own]

    def start(self, name: str, options: Options, folder: Path) -> Program:
        """Start a program; it is not ready yet."""
        port = free_port()
        return Program(name, self.command(name, options, port), port, folder / f"{name}-{port}.log")


def llamad_command() -> list[str]:
    return [sys.executable, "-m", "llamad"]


def llama_server_flags(program: str, n_connections: int) -> list[str]:
    """Return the additional flags of llama-server, as far as this build knows them."""
    try:
        help_text = subprocess.run(
            [program, "--help"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        raise BenchError(
            f"{program} cannot be run ({error.strerror}): name another with --server or LLAMA_SERVER, "
            "or build one with `make peer`"
        ) from None
    additions = (["--cache-ram", "0"], ["--no-webui"], ["--threads-http", str(n_connections + 4)])
    return [word for flags in additions if flags[0] in help_text.stdout for word in flags]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def family(pid: int) -> list[int]:
    """Return the process and all of its descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        parents[int(stat.parent.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    pids = [pid]
    for one in pids:  # the list grows meanwhile
        pids += [child for child, parent in parents.items() if parent == one]
    return pids


def machine_cpu_s() -> float:
    """Return the CPU seconds that the whole machine was busy, including stolen time; 0 without /proc."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in first[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Program:
    """A running server. Its output goes to a file, whose end is shown when something fails."""

    def __init__(self, name: str, command: list[str], port: int, log: Path) -> None:
        self.name = name
        self.address: Address = (HOST, port)
        self.client = Client(self.address)
        self._log = log
        # Python may write its bytecode, as it does where llamad is installed.
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        with log.open("wb") as out:
            self.t_exec = clock()
            try:
                self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
            except OSError as error:
                raise BenchError(f"{command[0]} cannot be run ({error.strerror})") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return self.address[1]

    def wait_ready(self) -> None:
        """Wait until /health returns 200."""
        self.wait_until(lambda: client.health(self.address), 0.05)

    def wait_until(self, is_so: Callable[[], bool], pause_s: float) -> None:
        """Wait until `is_so` returns True. Raises BenchError if the program ends, or it takes too long."""
        t_end = time.monotonic() + READY_SECONDS
        while not is_so():
            if self._process.poll() is not None:
                last = self.last_lines(1) or "it said nothing"
                raise BenchError(f"{self.name} ended with status {self._process.returncode}: {last}")
            if time.monotonic() > t_end:
                raise BenchError(f"{self.name} was not ready after {READY_SECONDS:g} s: {self.last_lines(1)}")
            time.sleep(pause_s)

    def last_lines(self, n: int = 12) -> str:
        """Return the last lines of its output."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-n:])

    def cpu_s(self) -> float:
        """Return the CPU seconds of all its threads and processes; 0 without /proc."""
        ticks = 0
        for pid in family(self.pid):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue
            fields = stat[stat.rindex(")") + 2 :].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.client.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
