"""Owns the flags about CPUs and threads. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Inert
from llamad.flags.types.kinds import Choice, Int, Text

flag = partial(Flag, group="CPU")

# 512 is the limit of ggml's thread pools; -1 is llama-server's "automatic".
THREADS = Int(low=0, high=512, words={"auto": 0, "-1": 0})
PINNING = Inert("llamad leaves CPU affinity, priority and polling of its threads to the system")

READY_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-t", "--threads"),
        env=("LLAMA_ARG_THREADS",),
        dest="n_threads",
        kind=THREADS,
        default=0,
        help="Threads for decoding; 0: the available cores (hyper-threads count once, a container's quota in"
        " whole cores), minus one if there are 8 or fewer.",
    ),
    flag(
        names=("-tb", "--threads-batch"),
        env=("LLAMA_ARG_THREADS_BATCH",),
        dest="n_threads_batch",
        kind=THREADS,
        default=0,
        help="Threads for prompts and batches; 0: same as --threads.",
    ),
    flag(
        names=("--threads-sampling",),
        env=("LLAMA_ARG_THREADS_SAMPLING",),
        dest="n_threads_sampling",
        kind=Int(low=0, high=256, words={"auto": 0, "-1": 0}),
        default=0,
        help="Threads that sample slots in parallel; 0: automatic.",
    ),
    flag(
        names=("--numa",),
        env=("LLAMA_ARG_NUMA",),
        dest="numa",
        kind=Choice(("distribute", "isolate", "numactl"), optional=True),
        default=None,
        bare="distribute",
        metavar="distribute|isolate|numactl",
        help="NUMA policy: spread over all nodes, stay on the first, or follow numactl. Without a value:"
        " distribute.",
    ),
)

INERT_FLAGS: tuple[Flag, ...] = (
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

FLAGS: tuple[Flag, ...] = READY_FLAGS + INERT_FLAGS
