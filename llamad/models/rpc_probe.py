"""Probes RPC workers: checks whether an endpoint speaks llama.cpp's RPC protocol. llama.cpp itself aborts if an
endpoint does not, or if nothing listens there.

Runs on the caller's event loop. Must not trust what it reads: every reply must have its exact size and arrive in time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Sequence

import msgspec

from llamad._llama import lib

VERSION = (lib.RPC_PROTO_MAJOR_VERSION, lib.RPC_PROTO_MINOR_VERSION)
PROBE_SECONDS = 5.0
DEVICES_MAX = int(lib.llama_max_devices())

# Numbers of the protocol's commands. A request is the number (u8), the size of its data (u64) and the data; a reply
# is the size of its data (u64) and the data. All integers are little-endian.
_GET_DEVICE_MEMORY, _HELLO, _DEVICE_COUNT = 11, 14, 15
_N_CAPS = 24  # bytes in which each side lists transports other than TCP; zeros mean none
_MIB = 1 << 20


class WorkerError(Exception):
    """A worker cannot be used. str() names the endpoint. With `is_refused`, something other than a worker of this
    llama.cpp listens there; else the worker may work later."""

    def __init__(self, endpoint: str, what: str, *, is_refused: bool = False) -> None:
        super().__init__(f"RPC worker {endpoint}: {what}")
        self.is_refused = is_refused


class Worker(msgspec.Struct, frozen=True):
    """A worker that has answered. `devices` are (free, total) in bytes."""

    endpoint: str
    address: tuple[str, int]
    version: tuple[int, int, int]
    devices: list[tuple[int, int]]

    def text(self) -> str:
        free = ", ".join(f"{free // _MIB} of {total // _MIB} MiB free" for free, total in self.devices)
        n = len(self.devices)
        version = ".".join(map(str, self.version))
        return f"{self.endpoint} (protocol {version}) has {n} device{'s' if n > 1 else ''}: {free}"


class _Foreign(Exception):
    """The program that listens there is not a worker of this llama.cpp."""


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: int, data: bytes, n_reply: int
) -> bytes:
    writer.write(struct.pack("<BQ", command, len(data)) + data)
    (n,) = struct.unpack("<Q", await reader.readexactly(8))
    if n != n_reply:
        raise _Foreign("what listens there does not speak llama.cpp's RPC protocol")
    return await reader.readexactly(n_reply)


async def _interview(endpoint: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Worker:
    reply = await _ask(reader, writer, _HELLO, bytes(_N_CAPS), 4 + _N_CAPS)
    version = (reply[0], reply[1], reply[2])
    if version[0] != VERSION[0] or version[1] > VERSION[1]:
        raise _Foreign(
            f"it speaks version {version[0]}.{version[1]} of the protocol, this llama.cpp {VERSION[0]}.{VERSION[1]};"
            " run `llamad rpc-server` of the same version there"
        )
    (n,) = struct.unpack("<I", await _ask(reader, writer, _DEVICE_COUNT, b"", 4))
    if not 1 <= n <= DEVICES_MAX:
        raise _Foreign(f"it reports {n} devices, but only 1 to {DEVICES_MAX} are possible")
    devices = []
    for i in range(n):
        memory = await _ask(reader, writer, _GET_DEVICE_MEMORY, struct.pack("<I", i), 16)
        free, total = struct.unpack("<QQ", memory)
        devices.append((free, total))
    host, port = writer.get_extra_info("peername")[:2]
    return Worker(endpoint, (host, port), version, devices)


async def probe(endpoint: str) -> Worker:
    """Connect to an endpoint and ask for its version and devices. Raises WorkerError."""
    host, _, port = endpoint.rpartition(":")
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            # llama.cpp supports only IPv4.
            reader, writer = await asyncio.open_connection(host, int(port), family=socket.AF_INET)
            return await _interview(endpoint, reader, writer)
    except _Foreign as error:
        raise WorkerError(endpoint, str(error), is_refused=True) from None
    except TimeoutError:
        silent = "it does not answer; a worker serves one client at a time, and may be serving another one"
        absent = f"no connection within {PROBE_SECONDS:g} s"
        raise WorkerError(endpoint, silent if writer is not None else absent) from None
    except socket.gaierror as error:
        raise WorkerError(endpoint, f"its name cannot be resolved: {error.strerror}") from None
    except (asyncio.IncompleteReadError, OSError) as error:
        if writer is None:
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number is not None else str(error)  # asyncio's own text differs
            raise WorkerError(endpoint, f"no connection: {reason}") from None
        closed = "it closes the connection instead of answering, as a worker of another llama.cpp does"
        raise WorkerError(endpoint, closed, is_refused=True) from None
    finally:
        if writer is not None:
            writer.transport.abort()


async def probe_all(endpoints: Sequence[str]) -> list[Worker]:
    """Probe all endpoints at the same time. Raises WorkerError; if there are several errors, one with is_refused."""
    results = await asyncio.gather(*(probe(one) for one in endpoints), return_exceptions=True)
    errors = [one for one in results if isinstance(one, WorkerError)]
    for error in sorted(errors, key=lambda one: not one.is_refused):
        raise error
    workers: list[Worker] = []
    for one in results:
        if isinstance(one, BaseException):
            raise one
        for other in workers:
            if other.address == one.address:
                # The second connection would wait for the end of the first.
                raise WorkerError(one.endpoint, f"it is the same as {other.endpoint}", is_refused=True)
        workers.append(one)
    return workers
