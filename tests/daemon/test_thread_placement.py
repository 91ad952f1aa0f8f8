"""Where llama.cpp's threads really run: --cpu-mask, --cpu-range and the like, seen in /proc."""

import os
import re
import time
from pathlib import Path

import pytest
from support.live_daemon import WAIT_SECONDS, Live

from llamad._llama import lib

TWO = sorted(os.sched_getaffinity(0))[:2]
needs_two = pytest.mark.skipif(len(TWO) < 2, reason="this machine has one CPU")


def engine_of(server: Live) -> int:
    """The engine's process."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    (found,) = [int(pid) for pid in children if b"llamad.engine" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def busy_threads(pid: int) -> dict[str, tuple[int, str]]:
    """Ticks and allowed CPUs of each thread."""
    threads = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = (task / "status").read_text()
        cpus = re.search(r"Cpus_allowed_list:\t(.*)", status)
        ticks = (task / "stat").read_text().rpartition(")")[2].split()[11]
        assert cpus is not None
        threads[task.name] = (int(ticks), cpus[1])
    return threads


def computing(server: Live, n: int) -> list[str]:
    """The CPUs of the n threads that work most while a text is made."""
    pid = engine_of(server)
    before = busy_threads(pid)
    t_end = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < t_end:
        server.client.post("/completion", {"prompt": "x", "n_predict": 16, "ignore_eos": True})
        after = busy_threads(pid)
        spent = sorted(((after[t][0] - before.get(t, (0, ""))[0], after[t][1]) for t in after), reverse=True)
        if spent[n - 1][0] >= 3:  # ticks of 10 ms
            return sorted(cpus for _, cpus in spent[:n])
    raise AssertionError(f"no {n} threads computed: {spent}")


@needs_two
@pytest.mark.parametrize(
    ("flags", "n", "cpus"),
    [
        (["-t", "1", "--cpu-mask", f"{1 << TWO[1]:x}"], 1, [str(TWO[1])]),
        (
            ["-t", "2", "--cpu-range", f"{TWO[0]}-{TWO[1]}", "--cpu-strict", "1"],
            2,
            [str(TWO[0]), str(TWO[1])],
        ),
    ],
)
def test_compute_threads_are_where_the_flags_say(tiny, flags, n, cpus):
    with Live("-c", "512", *flags, model=tiny) as server:
        assert computing(server, n) == cpus
        others = {allowed for _, allowed in busy_threads(engine_of(server)).values()} - set(cpus)
        assert others  # the main thread and the samplers are not bound


@needs_two
def test_threads_leave_the_cpus_of_the_draft_model_again(tiny):
    """The same threads compute both models, if they are OpenMP's, and the served one is the last."""
    flags = ["-md", tiny, "-t", "2", "-td", "2", "-Cd", f"{1 << TWO[1]:x}", "--spec-fixed", "3"]
    own = re.search(r"Cpus_allowed_list:\t(.*)", Path("/proc/self/status").read_text())
    with Live(*flags, model=tiny) as server:
        assert computing(server, 2) == [own[1]] * 2


def test_cpus_that_do_not_exist_are_refused(tiny):
    with Live("-c", "512", "--cpu-range", "500-511", model=tiny, ready=False) as server:
        server.wait_line("--cpu-range name none of the CPUs that this process may use")


def test_what_has_no_effect_is_said_once(tiny):
    with Live("-c", "512", "-t", "2", "--poll", "0", model=tiny) as server:
        server.client.post("/completion", {"prompt": "x", "n_predict": 4})
        lines = [line for line in server.lines if "--poll" in line]
        assert len(lines) == (1 if lib.llamad_has_openmp() else 0)
