"""Owns the flags about processors and threads. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Later
from llamad.flags.types.kinds import Choice, Int, Text

flag = partial(Flag, group="Processor")

# 512 is the most that ggml's thread pools hold; -1 is how llama-server writes "choose".
THREADS = Int(low=0, high=512, words={"auto": 0, "-1": 0})
PINNING = Later("processor pinning and thread priorities")

READY_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-t", "--threads"),
        env=("LLAMA_ARG_THREADS",),
        dest="n_threads",
        kind=THREADS,
        default=0,
        help="Threads that compute single tokens; 0 takes the cores that this process may use (hyper-threads once, "
        "a container's quota in whole cores), less one where these are 8 or fewer.",
    ),
    flag(
        names=("-tb", "--threads-batch"),
        env=("LLAMA_ARG_THREADS_BATCH",),
        dest="n_threads_batch",
        kind=THREADS,
        default=0,
        help="Threads that compute prompts and batches; 0 takes as many as --threads.",
    ),
    flag(
        names=("--threads-sampling",),
        env=("LLAMA_ARG_THREADS_SAMPLING",),
        dest="n_threads_sampling",
        kind=Int(low=0, high=256, words={"auto": 0, "-1": 0}),
        default=0,
        help="Threads that choose the slots' next tokens side by side; 0 chooses by the machine and the slots.",
    ),
    flag(
        names=("--numa",),
        env=("LLAMA_ARG_NUMA",),
        dest="numa",
        kind=Choice(("distribute", "isolate", "numactl"), optional=True),
        default=None,
        bare="distribute",
        metavar="distribute|isolate|numactl",
        help="Spread over all memory nodes, stay on the first, or follow numactl; alone, the flag means distribute.",
    ),
)

LATER_FLAGS: tuple[Flag, ...] = (
    flag(names=("-C", "--cpu-mask"), dest="cpu_mask", kind=Text(), default=None, status=PINNING),
    flag(names=("-Cr", "--cpu-range"), dest="cpu_range", kind=Text(), default=None, status=PINNING),
    flag(names=("--cpu-strict",), dest="cpu_strict", kind=Int(0, 1), default=0, status=PINNING),
    flag(names=("--prio",), dest="prio", kind=Int(-1, 3), default=0, status=PINNING),
    flag(names=("--poll",), dest="poll", kind=Int(0, 100), default=50, status=PINNING),
    flag(names=("-Cb", "--cpu-mask-batch"), dest="cpu_mask_batch", kind=Text(), default=None, status=PINNING),
    flag(
        names=("-Crb", "--cpu-range-batch"), dest="cpu_range_batch", kind=Text(), default=None, status=PINNING
    ),
    flag(names=("--cpu-strict-batch",), dest="cpu_strict_batch", kind=Int(0, 1), default=0, status=PINNING),
    flag(names=("--prio-batch",), dest="prio_batch", kind=Int(-1, 3), default=0, status=PINNING),
    flag(names=("--poll-batch",), dest="poll_batch", kind=Int(0, 100), default=50, status=PINNING),
)

FLAGS: tuple[Flag, ...] = READY_FLAGS + LATER_FLAGS
