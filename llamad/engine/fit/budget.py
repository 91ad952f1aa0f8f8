"""Computes the memory that one model of several may take, and what it takes: in bytes by device, "host" included.

Runs in the thread that loads. The results must not depend on which other models are loaded: what this daemon's other
engines hold counts as if it were free, because they can be unloaded.

What counts: on a device everything that llama.cpp allocates, and the driver's own memory for a process. "host" is the
memory of the machine: everything that llama.cpp allocates there, the process itself, and the weights in a mapped file.
These weights are pages of the system's file cache. They count, because the model is slow while they are not in memory;
but a model larger than the memory still runs, so they count at most what all others leave. As the system regards such
pages as available, whoever has mapped them, only the private memory of this daemon's processes is added to that.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from llamad.engine.fit.measure import Device, all_devices, described
from llamad.engine.fit.usage import Usage, Use
from llamad.engine.loading import daemon_memory, memory
from llamad.protocol.control_messages import Budget
from llamad.protocol.errors import MemoryShort

HOST = "host"
MIB = 1 << 20
# The memory of an engine's process in addition to the model's: Python, the libraries and the rings.
PROCESS_BYTES = 64 * MIB
# The memory that a GPU's driver takes for each process: its context and the kernels. An H200 showed 590 MiB.
CONTEXT_BYTES = 640 * MIB
# Free memory is never quite the same: the capacity stays as it was if it changes by less than this part of the margin.
MARGIN_PART = 0.5
# How long an engine waits for memory that another engine has just given back.
WAIT_SECONDS = 10.0
POLL_SECONDS = 0.05
# An estimate is known to be so exact.
EXACT_PART = 0.02
EXACT_BYTES = 64 * MIB


class Available(msgspec.Struct, frozen=True):
    """The bytes of each device and of the host that a model may take, and those of them that should stay free on each
    device (on the host, if there is none). `capacity` is for all models of the daemon together."""

    devices: tuple[int, ...]
    host: int
    margins: tuple[int, ...]
    capacity: dict[str, int] = {}

    def need(self, usage: Usage, is_mapped: bool) -> dict[str, int]:
        """Return the bytes that a model takes by device."""
        names = daemon_names()
        devices = {names.get(name, name): use.total + CONTEXT_BYTES for name, use in usage.devices.items()}
        host = max(usage.held(is_mapped), min(usage.host.total, self.host))
        return {**devices, HOST: host + PROCESS_BYTES}


def daemon_names() -> dict[str, str]:
    """Return the names that all engines of the daemon use for devices, by llama.cpp's names. Each process numbers the
    devices of RPC workers by its own flags; their description is the worker's address."""
    counts = Counter[str]()
    names = {}
    for device in all_devices():
        names[device.name] = device.name
        if device.name.startswith("RPC"):
            names[device.name] = f"RPC{counts[device.description]}[{device.description}]"
            counts[device.description] += 1
    return names


def available(budget: Budget, devices: list[Device], margins: list[int]) -> Available:
    """Return what a budget offers to a model, whatever else is loaded now."""
    names = daemon_names()
    whole = {
        names.get(one.name, one.name): _device_bytes(one, names.get(one.name, one.name), budget, margin)
        for one, margin in zip(devices, margins, strict=False)
    }
    whole[HOST] = _host_bytes(budget, margins[0])
    capacity = {name: _limited(n, budget) for name, n in whole.items()}
    offers = {name: n - budget.pinned.get(name, 0) for name, n in capacity.items()}
    host = offers.pop(HOST) - PROCESS_BYTES
    # What is beyond a limit of the user's stays free anyway.
    kept_free = tuple(
        max(0, margin - (whole[name] - capacity[name]))
        for name, margin in zip(capacity, margins, strict=False)
    )
    return Available(tuple(n - CONTEXT_BYTES for n in offers.values()), host, kept_free, capacity)


def device_capacity(device: Device, name: str, budget: Budget) -> int:
    """Return the bytes of a device that all models of the daemon together may take."""
    return _limited(_device_bytes(device, name, budget, 0), budget)


def _limited(n: int, budget: Budget) -> int:
    return min(n, budget.bytes_max) if budget.bytes_max else n


def _known(name: str, budget: Budget) -> int | None:
    """Return the capacity that was known before, unless it was only the user's limit."""
    known = budget.capacity.get(name)
    return known if known != budget.bytes_max else None


def _device_bytes(device: Device, name: str, budget: Budget, margin: int) -> int:
    ours, known = budget.ours.get(name, 0), _known(name, budget)
    seen = device.free + CONTEXT_BYTES + ours  # this process has its context already
    if device.total:
        seen = min(seen, device.total)
    if known is not None and ours and seen > known:
        return known  # an engine that is loading counts twice: it has reserved memory that is still free
    return _settled(seen, known, margin)


def _host_bytes(budget: Budget, margin: int) -> int:
    seen = memory.host_free(with_files=True) + daemon_memory.private_bytes() + budget.cache_bytes
    return _settled(seen, _known(HOST, budget), margin)


def _settled(seen: int, known: int | None, margin: int) -> int:
    """Return what was known before, unless it has changed by more than the margin can bear."""
    return seen if known is None or abs(seen - known) > margin * MARGIN_PART else known


def wait(usage: Usage, is_mapped: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until the memory of a plan is free: an engine that has just ended may still hold it. Raises MemoryShort if
    that takes too long, and the load would certainly fail."""
    # The front opens the projector at the same time.
    devices = {name: use.total - use.projector for name, use in usage.devices.items()}
    host = usage.held(is_mapped) - usage.host.projector
    left = WAIT_SECONDS
    while missing := _missing(devices, host):
        if left <= 0:
            break
        sleep(POLL_SECONDS)
        left -= POLL_SECONDS
    for name, (needed, free) in missing.items():
        if needed - max(needed * EXACT_PART, EXACT_BYTES) > free:
            raise MemoryShort(
                f"the model takes {needed / MIB:.0f} MiB of {name}, and {free / MIB:.0f} MiB are free there: another"
                " program has taken memory that this daemon counted on; end it, or lower -c or --models-memory-max"
            )


def _missing(devices: dict[str, int], host: int) -> dict[str, tuple[int, int]]:
    """Return the bytes that are needed and free, for each device that lacks memory."""
    free = {name: described(name).free for name in devices}
    missing = {name: (n, free[name]) for name, n in devices.items() if n > free[name]}
    if host > (host_free := memory.host_free(with_files=True)):
        missing[HOST] = host, host_free
    return missing


def beside(plan: Usage) -> Usage:
    """Return what a plan has of memory that llama.cpp's contexts do not report: the projector and the adapters."""
    devices = {name: _beside(use) for name, use in plan.devices.items()}
    return Usage(devices, _beside(plan.host))


def _beside(use: Use) -> Use:
    return Use(projector=use.projector, adapters=use.adapters)
