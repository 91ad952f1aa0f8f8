"""Waits for RPC workers before llama.cpp connects to them: probes an absent worker again until it answers.

Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from llamad.models.rpc_probe import WorkerError, probe_all
from llamad.protocol.errors import LoadError

log = logging.getLogger("llamad.rpc")

DELAY_MAX_SECONDS = 8.0


async def reach_once(endpoints: Sequence[str]) -> None:
    """Raise LoadError unless every endpoint answers as a worker now."""
    try:
        await probe_all(endpoints)
    except WorkerError as error:
        raise LoadError(f"--rpc: {error}") from None


async def reach(endpoints: Sequence[str], waiting: Callable[[str], None], *, is_patient: bool) -> None:
    """Wait until every endpoint answers as a worker. `waiting` is called with the reason for each further wait. Raises
    LoadError if something else listens there, unless `is_patient`: a worker was there before, and may return."""
    delay, last = 1.0, ""
    while True:
        try:
            for worker in await probe_all(endpoints):
                log.info("RPC worker %s", worker.text())
            return
        except WorkerError as error:
            if error.is_refused and not is_patient:
                raise LoadError(f"--rpc: {error}") from None
            if str(error) != last:
                last = str(error)
                log.warning("%s; waiting for it", last)
            waiting(last)
        await asyncio.sleep(delay)
        delay = min(DELAY_MAX_SECONDS, 2 * delay)
