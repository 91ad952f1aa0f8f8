"""Owns the flags about CPUs and threads. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import Choice, Int
from llamad.flags.types.special import CpuMask, CpuRange

flag = partial(Flag, group="CPU")

# 512 is the limit of ggml's thread pools; -1 is llama-server's "automatic".
THREADS = Int(low=0, high=512, words={"auto": 0, "-1": 0})

FLAGS: tuple[Flag, ...] = (
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
    flag(
        names=("-C", "--cpu-mask"),
        env=("LLAMA_ARG_CPU_MASK",),
        dest="cpu_mask",
        kind=CpuMask(),
        default=(),
        help="CPUs that the threads of --threads may run on, as a mask; with those of --cpu-range.",
    ),
    flag(
        names=("-Cr", "--cpu-range"),
        env=("LLAMA_ARG_CPU_RANGE",),
        dest="cpu_range",
        kind=CpuRange(),
        default=(),
        help="The same as a range.",
    ),
    flag(
        names=("--cpu-strict",),
        env=("LLAMA_ARG_CPU_STRICT",),
        dest="cpu_strict",
        kind=Int(0, 1),
        default=0,
        help="1: one of these CPUs for each thread.",
    ),
    flag(
        names=("--prio",),
        env=("LLAMA_ARG_PRIO",),
        dest="prio",
        kind=Int(-1, 3),
        default=0,
        help="Scheduling priority of these threads; -1: low, 0: normal, 1 to 3: real-time, which needs CAP_SYS_NICE.",
    ),
    flag(
        names=("--poll",),
        env=("LLAMA_ARG_POLL",),
        dest="poll",
        kind=Int(0, 100),
        default=50,
        help="How long these threads spin for work; without effect where llama.cpp is built with OpenMP.",
    ),
    flag(
        names=("-Cb", "--cpu-mask-batch"),
        env=("LLAMA_ARG_CPU_MASK_BATCH",),
        dest="cpu_mask_batch",
        kind=CpuMask(),
        default=(),
        help="CPUs of --threads-batch; without it and --cpu-range-batch, those of --threads.",
    ),
    flag(
        names=("-Crb", "--cpu-range-batch"),
        env=("LLAMA_ARG_CPU_RANGE_BATCH",),
        dest="cpu_range_batch",
        kind=CpuRange(),
        default=(),
        help="The same as a range.",
    ),
    flag(
        names=("--cpu-strict-batch",),
        env=("LLAMA_ARG_CPU_STRICT_BATCH",),
        dest="cpu_strict_batch",
        kind=Int(0, 1, optional=True),
        default=None,
        help="--cpu-strict of --threads-batch; the same without it.",
    ),
    flag(
        names=("--prio-batch",),
        env=("LLAMA_ARG_PRIO_BATCH",),
        dest="prio_batch",
        kind=Int(-1, 3, optional=True),
        default=None,
        help="--prio of --threads-batch; the same without it.",
    ),
    flag(
        names=("--poll-batch",),
        env=("LLAMA_ARG_POLL_BATCH",),
        dest="poll_batch",
        kind=Int(0, 100, optional=True),
        default=None,
        help="--poll of --threads-batch; the same without it.",
    ),
)
