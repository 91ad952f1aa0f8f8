"""Puts a model to sleep that nobody has used for a while (--sleep-idle-seconds). waking.py wakes it.

A task on the event loop. A request that has begun keeps the model awake; nothing is awaited between the check and the
change of the state, so a request comes either before or after it.
"""

from __future__ import annotations

import asyncio
import logging
import time

from llamad.api.service.served_model import ServedModel
from llamad.models.host_state import State

log = logging.getLogger("llamad.api")

POLL_SECONDS = 1.0


async def sleep_when_idle(served: ServedModel) -> None:
    """Unload the model's engine whenever it was idle for so long. Runs until it is cancelled."""
    while True:
        left = seconds_left(served)
        if left > 0:
            await asyncio.sleep(min(left, POLL_SECONDS))
            continue
        log.info(
            "the model sleeps, because nobody has used it for %d s; the next request loads it again",
            idle_limit(served),
        )
        served.usage.keep_seconds = 0.0
        await served.host.unload(State.SLEEPING)


def seconds_left(served: ServedModel) -> float:
    """Return after how many seconds the model may sleep, or must be checked again."""
    limit = idle_limit(served)
    is_awake = served.host.state is State.READY and not served.service.is_leaving
    if limit < 0 or not is_awake or not served.is_idle:
        return POLL_SECONDS
    return served.usage.last_used + limit - time.monotonic()


def idle_limit(served: ServedModel) -> float:
    """Return after how many idle seconds the model sleeps; negative: never. A client can make it longer, not shorter,
    because the next client would wait for the load."""
    limit = served.settings.sleep_idle_seconds
    return limit if limit < 0 else max(limit, served.usage.keep_seconds)
