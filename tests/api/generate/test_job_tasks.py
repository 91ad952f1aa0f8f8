"""When a stream whose client does not read it ends, because other requests wait for a slot."""

from __future__ import annotations

import time
from typing import Any, cast

from llamad.api.generate.job_tasks import JobTasks
from llamad.client.engine_client import EngineClient
from llamad.client.running import Running

STALL_SECONDS = 30.0


class OneSink:
    """The sink of the first task."""

    index = 0
    task_id = 1


def paused(engine: EngineClient) -> JobTasks:
    """Return a job with one task, which is paused."""
    tasks = JobTasks(engine)
    engine.tasks[OneSink.task_id] = Running(cast(Any, OneSink), cast(Any, None))
    tasks._sinks = [cast(Any, OneSink)]
    tasks.pause()
    return tasks


def test_only_requests_that_never_had_a_slot_end_a_stalled_stream() -> None:
    """After a crash of the engine, all of its requests waited for a moment, even the stalled one itself. Each of them
    counted, so that the stream ended although nobody else needed its slot."""
    engine = EngineClient(n_slots=2, queue_max=8, resume_max=1)
    stalled = paused(engine)
    later = time.monotonic() + STALL_SECONDS
    assert not stalled.is_stalled(later, STALL_SECONDS)
    other = engine.tasks[2] = Running(cast(Any, None), cast(Any, None))
    assert stalled.is_stalled(later, STALL_SECONDS)
    assert not stalled.is_stalled(later, 0)
    assert not stalled.is_stalled(later - STALL_SECONDS, STALL_SECONDS)
    other.was_admitted = True  # by an engine that has ended
    assert not stalled.is_stalled(later, STALL_SECONDS)
