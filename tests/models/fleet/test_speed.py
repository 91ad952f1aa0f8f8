"""An event is cheap also in a large fleet: the event loop makes every one of them."""

from __future__ import annotations

import random
import statistics
import time

from support.fleet.driver import Fleet


def test_an_event_in_a_large_fleet_keeps_the_loop_for_no_time_to_speak_of():
    """50 models on two devices, 1,000 requests that wait, and busy models that must make room."""
    rng = random.Random(1)
    needs = {f"m{i}": {f"CUDA{i % 2}": 7 + i % 4, "host": 3} for i in range(50)}
    fleet = Fleet(needs, capacity={"CUDA0": 70, "CUDA1": 70, "host": 10_000}, queue_max=0)
    for ticket in range(14):
        fleet.do("request", f"m{ticket}", ticket)
    for ticket in range(14, 1014):
        fleet.do("request", f"m{rng.randrange(14, 50)}", ticket, deadline=fleet.now + 600.0)
    n_waiting = sum(fleet.scheduler.waiting(name) for name in needs)
    assert n_waiting > 900
    fleet.wait(31.0)
    assert "draining" in fleet.states().values()
    seconds = []
    for _ in range(100):
        begin = time.thread_time()
        fleet.scheduler.tick(fleet.now)
        fleet.scheduler.next_tick(fleet.now)
        seconds.append(time.thread_time() - begin)
    assert statistics.median(seconds) < 0.05  # it takes about half a millisecond
