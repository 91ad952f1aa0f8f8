"""Measures how well a gateway distributes requests to llamads, and its cost: conversations that stay on a server, the
distribution, first tokens, and servers that are added, drained and killed while clients read streams. Exit status 1
means that a request failed that should not have.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from bench import programs
from bench.client import Address
from bench.errors import BenchError
from bench.gateways.clients import KEY, MODEL, PATH, Answer, Load, ask, chat, read
from bench.gateways.programs import GATEWAYS, Gateway, find, until
from bench.programs import LLAMAD, Options, Program, Programs, family
from bench.prompts import real_text

N_SLOTS, N_CTX, N_ANSWER, TURN_CHARACTERS = 8, 16_384, 16, 240
DRAIN = ("--drain-delay-seconds", "3", "--drain-seconds", "120")


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", default=os.environ.get("LLAMAD_TEST_MODEL"), help="the GGUF file (LLAMAD_TEST_MODEL)")
    add("--only", action="append", choices=list(GATEWAYS), help="measure only this gateway; may be repeated")
    add("--servers", type=int, default=3, help="llamads behind it, at least 2 (3)")
    add("--conversations", type=int, default=12, help="conversations, four at a time (12)")
    add("--turns", type=int, default=4, help="turns of each (4)")
    add(
        "--rounds",
        type=int,
        default=40,
        help="how many first tokens are timed, alternately direct and through the gateway (40)",
    )
    add("--clients", type=int, default=6, help="clients that read streams while servers change (6)")
    add("--predict", type=int, default=48, help="tokens of each of their streams (48)")
    add("--threads", type=int, default=1, help="-t of each llamad (1)")


@dataclass
class Report:
    """A column of the table; `broken` lists failures that should not have happened."""

    name: str
    rows: dict[str, str] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def add(self, row: str, value: str) -> None:
        self.rows[row] = value
        print(f"{self.name}: {row}: {value}", file=sys.stderr)


class Servers:
    """llamads with the same model: the first ones, and a spare one for later."""

    def __init__(self, flags: argparse.Namespace, folder: Path) -> None:
        extra = ("--alias", MODEL, "--api-key", "k", "--trusted-proxies", programs.HOST, "--metrics", *DRAIN)
        options = Options(flags.model, N_SLOTS, N_CTX, flags.threads, flags.clients, extra)
        self._running: list[Program] = []
        try:
            for _ in range(flags.servers + 1):
                self._running.append(Programs().start(LLAMAD, options, folder))
            for one in self._running:
                one.wait_ready()
        except BaseException:
            self.stop()
            raise
        *self.first, self.spare = self._running

    def stop(self) -> None:
        for one in self._running:
            one.stop()


def get(address: Address, path: str) -> bytes:
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", path, headers=KEY)
        return connection.getresponse().read()
    finally:
        connection.close()


def n_served(server: Program) -> int:
    """Return how many chats the server has completed."""
    match = re.search(rf'endpoint="{PATH}",status="200"}} (\d+)', get(server.address, "/metrics").decode())
    return int(match[1]) if match else 0


def n_tasks(server: Program) -> int:
    return int(json.loads(get(server.address, "/v1/loads"))["loads"][0]["num_total_reqs"])


def has_ended(server: Program) -> bool:
    try:
        get(server.address, "/health")
    except ConnectionRefusedError:
        return True
    except (OSError, http.client.HTTPException):
        pass
    return False


def conversations(flags: argparse.Namespace, gateway: Gateway, servers: Servers, report: Report) -> None:
    """Measure how much of the last turn, its prompt and its answer, is cached in the next."""
    text = real_text()
    shares: list[float] = []

    def talk(i: int) -> None:
        messages = [{"role": "system", "content": "You are brief."}]
        n_known = 0
        for turn in range(flags.turns):
            at = (i * flags.turns + turn) * TURN_CHARACTERS % (len(text) - TURN_CHARACTERS)
            messages.append({"role": "user", "content": text[at : at + TURN_CHARACTERS]})
            answer = ask(gateway.address, chat(messages, max_tokens=N_ANSWER))
            usage = answer["usage"]
            if turn:
                shares.append(usage["prompt_tokens_details"]["cached_tokens"] / n_known)
            n_known = usage["prompt_tokens"] + usage["completion_tokens"]
            messages.append(answer["choices"][0]["message"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(talk, range(flags.conversations)))
    report.add("cached of what the turn before had, mean", f"{mean(shares):.3f}")
    report.add("the least of all turns", f"{min(shares):.3f}")
    report.add("requests of each server", ", ".join(str(n_served(one)) for one in servers.first))


def first_tokens(flags: argparse.Namespace, gateway: Gateway, servers: Servers, report: Report) -> None:
    """Measure the time to the first token with the same prompt, which every server has cached: the way there and one
    decode."""
    body = chat([{"role": "user", "content": "Tell me a story."}], max_tokens=1, stream=True)
    times_of: dict[Address, list[float]] = {servers.first[0].address: [], gateway.address: []}
    for _ in range(flags.rounds + 1):
        for address, times in times_of.items():
            answer, t_start = Answer(), time.perf_counter()
            read(address, body, {}, answer)
            times.append((answer.t_first - t_start) * 1000)
    direct, through = (median(times[1:]) for times in times_of.values())
    report.add("first token direct, p50, ms", f"{direct:.1f}")
    report.add("through the gateway, p50, ms", f"{through:.1f}")


def change_servers(flags: argparse.Namespace, gateway: Gateway, servers: Servers, report: Report) -> None:
    """Add a server, drain one and kill one while clients read streams; the others stay."""
    first, spare = servers.first, servers.spare

    def load() -> Load:
        return Load(gateway.address, flags.clients, 0, flags.predict)

    def counts(one: Load) -> str:
        return f"{len(one.failed)} of {len(one.done) + len(one.failed)}"

    with load() as added:
        added.wait_more(flags.clients)
        gateway.add_server([one.port for one in (*first, spare)])
        until(lambda: n_served(spare) >= 2, "streams of the server that was added")
    report.add("added: streams failed", counts(added))

    with load() as drained:
        until(lambda: n_tasks(first[0]) > 0, "streams of the server that is drained")
        os.kill(first[0].pid, signal.SIGTERM)
        until(lambda: has_ended(first[0]), "the server that is drained to end")
        drained.wait_more(flags.clients)
    report.add("drained: streams failed", counts(drained))

    with load() as killed:
        killed.wait_more(flags.clients)
        until(lambda: n_tasks(first[1]) > 0, "streams of the server that is killed")
        n_writing = n_tasks(first[1])
        for pid in family(first[1].pid):
            os.kill(pid, signal.SIGKILL)
        killed.wait_more(2 * flags.clients)
    report.add("killed: streams failed", counts(killed))
    report.add("streams that it had, begun or not", str(n_writing))
    report.broken += map(str, (*added.failed, *drained.failed))
    report.broken += [str(one) for one in killed.failed if not one.has_begun]


def measure(flags: argparse.Namespace, name: str) -> Report:
    report = Report(name)
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(flags, Path(folder))
        try:
            with GATEWAYS[name]([one.port for one in servers.first], Path(folder)) as gateway:
                conversations(flags, gateway, servers, report)
                first_tokens(flags, gateway, servers, report)
                change_servers(flags, gateway, servers, report)
        finally:
            servers.stop()
    return report


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    if flags.servers < 2:
        raise BenchError("--servers must be at least 2: one is drained, one killed")
    names = [name for name in flags.only or GATEWAYS if find(name)]
    if not names:
        raise BenchError("no gateway is installed: haproxy and nginx are Debian packages, smg is on PyPI")
    reports = {name: measure(flags, name) for name in names}
    print(f"| | {' | '.join(reports)} |")
    print(f"| --- | {' | '.join('---:' for _ in reports)} |")
    for row in next(iter(reports.values())).rows:
        print(f"| {row} | {' | '.join(one.rows[row] for one in reports.values())} |")
    for name, report in reports.items():
        for line in report.broken:
            print(f"{name}: {line}")
    return int(any(one.broken for one in reports.values()))
