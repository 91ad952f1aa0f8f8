"""The default model over workers in two network namespaces: as over two machines, but for the distance."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from support.live_daemon import Live
from support.rpc.workers import RpcWorker

GREEDY = {"n_predict": 32, "temperature": 0, "cache_prompt": False}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


class Machine:
    """A network namespace with one address, and a link to it from this one."""

    def __init__(self, number: int) -> None:
        self.name = f"llamad-{os.getpid()}-{number}"
        link, net = f"ll{os.getpid() % 10**8}-{number}", f"10.{97 + number}.{os.getpid() % 251}"
        self.address = f"{net}.2"
        ip("netns", "add", self.name)
        try:
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
            ip("addr", "add", f"{net}.1/24", "dev", link)
            ip("link", "set", link, "up")
            ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
            ip("-n", self.name, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError:
            self.close()
            raise

    def worker(self) -> RpcWorker:
        return RpcWorker(self.address, within=("ip", "netns", "exec", self.name))

    def close(self) -> None:
        ip("netns", "del", self.name)  # and the link with it


@pytest.fixture(scope="module")
def workers() -> Iterator[list[RpcWorker]]:
    if shutil.which("ip") is None:
        pytest.skip("there is no ip (iproute2) to make network namespaces with")
    machines: list[Machine] = []
    try:
        try:
            machines += [Machine(1)]
            machines += [Machine(2)]
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made: {error.stderr.decode().strip()}")
        with machines[0].worker() as first, machines[1].worker() as second:
            yield [first, second]
    finally:
        for machine in machines:
            machine.close()


@pytest.mark.real_model
def test_a_model_over_two_machines_answers_as_on_one(workers: list[RpcWorker]) -> None:
    """Workers do not repack weights, and a CPU may compute repacked ones differently."""
    prompts = ("Once upon a time", "The capital of France is", "def fibonacci(n):")
    with Live("-np", "4", "-c", "8192", "--no-repack") as alone:
        expected = [alone.client.complete(prompt, **GREEDY)["content"] for prompt in prompts]
    endpoints = ",".join(worker.endpoint for worker in workers)
    with Live("-np", "4", "-c", "8192", "--rpc", endpoints, "-ts", "1,1") as split:

        def texts() -> list[str]:
            return [split.client.complete(prompt, **GREEDY)["content"] for prompt in prompts]

        assert texts() == expected
        workers[1].kill()
        split.wait_line(
            f"RPC worker {workers[1].endpoint}: no connection: Connection refused; waiting for it"
        )
        assert split.client.get("/health").status == 503
        workers[1].start()
        split.wait_ready()
        assert texts() == expected
