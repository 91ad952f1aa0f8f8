"""The probe of an endpoint: what is a worker, what may become one, and what is none."""

from __future__ import annotations

import asyncio
import socket

import pytest
from support.rpc import workers as rpc_workers
from support.rpc.workers import Behaviour, Pretender, free_port, worker

from llamad.flags.parse import FlagError, parse
from llamad.models import rpc_probe
from llamad.models.rpc_probe import DEVICES_MAX, VERSION, WorkerError, probe, probe_all

MAJOR, MINOR = VERSION


def complaint(*endpoints: str) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        asyncio.run(probe_all(endpoints))
    return caught.value


def test_a_worker_tells_of_its_devices() -> None:
    with Pretender(worker(n_devices=2)) as one:
        probed = asyncio.run(probe(one.endpoint))
        assert probed.devices == [(1 << 30, 2 << 30)] * 2
        assert probed.version == (*VERSION, 0)
        assert probed.text() == f"{one.endpoint} (protocol {MAJOR}.{MINOR}.0) has 2 devices: " + ", ".join(
            ["1024 of 2048 MiB free"] * 2
        )


def test_patches_of_the_protocol_do_not_matter() -> None:
    with Pretender(worker(version=(MAJOR, MINOR, 200))) as one:
        assert asyncio.run(probe(one.endpoint)).version == (MAJOR, MINOR, 200)


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (rpc_workers.garbage, "does not speak llama.cpp's RPC protocol"),
        (rpc_workers.huge, "does not speak llama.cpp's RPC protocol"),
        (rpc_workers.http, "does not speak llama.cpp's RPC protocol"),
        (rpc_workers.closes, "closes the connection instead of answering"),
        (worker(version=(MAJOR - 1, MINOR, 0)), f"it speaks version {MAJOR - 1}.{MINOR} of the protocol"),
        (worker(version=(MAJOR, MINOR + 1, 0)), f"it speaks version {MAJOR}.{MINOR + 1} of the protocol"),
        (worker(n_devices=0), "it reports 0 devices"),
        (worker(n_devices=2**32 - 1), f"but only 1 to {DEVICES_MAX} are possible"),
    ],
)
def test_what_is_no_worker_is_refused(behave: Behaviour, words: str) -> None:
    with Pretender(behave) as one, Pretender(worker()) as other:
        error = complaint(other.endpoint, f"127.0.0.1:{free_port()}", one.endpoint)
        assert error.is_refused
        assert str(error).startswith(f"RPC worker {one.endpoint}: ")
        assert words in str(error)


@pytest.mark.parametrize("behave", [rpc_workers.silent, rpc_workers.drips])
def test_what_takes_its_time_may_be_a_worker_that_is_busy(
    behave: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_probe, "PROBE_SECONDS", 0.5)
    with Pretender(behave) as one:
        error = complaint(one.endpoint)
        assert not error.is_refused
        assert "serves one client at a time" in str(error)


def test_what_cannot_be_reached_may_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    error = complaint(f"127.0.0.1:{free_port()}")
    assert not error.is_refused
    assert "Connection refused" in str(error)

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = complaint("no-such-host.invalid:50052")
    assert not error.is_refused
    assert "cannot be resolved" in str(error)


def test_a_full_backlog_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_probe, "PROBE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as one:
        address = one.getsockname()
        with socket.create_connection(address):
            assert "no connection within 0.5 s" in str(complaint(f"127.0.0.1:{address[1]}"))


def test_one_worker_under_two_names_is_refused() -> None:
    with Pretender(worker()) as one:
        port = one.endpoint.rpartition(":")[2]
        error = complaint(one.endpoint, f"localhost:{port}")
        assert error.is_refused
        assert f"it is the same as {one.endpoint}" in str(error)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:-1", "a:1,", "::1:1", "[::1]:1", "a b:1", "a:1:2"],
)
def test_malformed_endpoints_are_flag_errors(text: str) -> None:
    with pytest.raises(FlagError, match="--rpc"):
        parse(["-m", "m.gguf", "--rpc", text], {})


def test_endpoints_of_the_flag_and_of_the_variable() -> None:
    assert parse(["--rpc", "10.0.0.2:50052, gpu-box:50052"], {}).settings.model.rpc == (
        "10.0.0.2:50052",
        "gpu-box:50052",
    )
    assert parse([], {"LLAMA_ARG_RPC": "a:1"}).settings.model.rpc == ("a:1",)
