"""The flags about CPUs and threads. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import Int
from llamad.flags.types.placement import CpuMask, CpuRange

# 512 is the limit of ggml's thread pools; -1 is llama-server's "automatic".
THREADS = Int(low=0, high=512, words={"auto": 0, "-1": 0})


class Cpu:
    """Settings about CPUs and threads."""

    n_threads: int = flag(
        names=("-t", "--threads"),
        kind=THREADS,
        default=0,
        help="Threads for decoding; 0: the available cores (hyper-threads count once, a container's quota in"
        " whole cores), minus one if there are 8 or fewer.",
    )
    n_threads_batch: int = flag(
        names=("-tb", "--threads-batch"),
        kind=THREADS,
        default=0,
        help="Threads for prompts and batches; 0: same as --threads.",
    )
    n_threads_sampling: int = flag(
        names=("--threads-sampling",),
        kind=Int(low=0, high=256, words={"auto": 0, "-1": 0}),
        default=0,
        help="Threads that sample slots in parallel; 0: automatic.",
    )
    numa: Literal["distribute", "isolate", "numactl"] | None = flag(
        default=None,
        bare="distribute",
        metavar="distribute|isolate|numactl",
        help="NUMA policy: spread over all nodes, stay on the first, or follow numactl. Without a value:"
        " distribute.",
    )
    # CPU numbers; any CPU if this and the range are empty.
    cpu_mask: tuple[int, ...] = flag(
        names=("-C", "--cpu-mask"),
        kind=CpuMask(),
        default=(),
        help="CPUs that the threads of --threads may run on, as a mask; those of --cpu-range are added.",
    )
    cpu_range: tuple[int, ...] = flag(
        names=("-Cr", "--cpu-range"),
        kind=CpuRange(),
        default=(),
        help="The same as a range.",
    )
    cpu_strict: int = flag(
        kind=Int(0, 1),
        default=0,
        help="1: one of these CPUs for each thread.",
    )
    prio: int = flag(
        kind=Int(-1, 3),
        default=0,
        help="Scheduling priority of these threads; -1: low, 0: normal, 1 to 3: real-time, which needs CAP_SYS_NICE.",
    )
    poll: int = flag(
        kind=Int(0, 100),
        default=50,
        help="How long these threads spin for work; without effect where llama.cpp is built with OpenMP.",
    )
    cpu_mask_batch: tuple[int, ...] = flag(
        names=("-Cb", "--cpu-mask-batch"),
        kind=CpuMask(),
        default=(),
        help="CPUs of --threads-batch; without it and --cpu-range-batch, those of --threads.",
    )
    cpu_range_batch: tuple[int, ...] = flag(
        names=("-Crb", "--cpu-range-batch"),
        kind=CpuRange(),
        default=(),
        help="The same as a range.",
    )
    cpu_strict_batch: int | None = flag(
        kind=Int(0, 1),
        default=None,
        help="--cpu-strict of --threads-batch; the same without it.",
    )
    prio_batch: int | None = flag(
        kind=Int(-1, 3),
        default=None,
        help="--prio of --threads-batch; the same without it.",
    )
    poll_batch: int | None = flag(
        kind=Int(0, 100),
        default=None,
        help="--poll of --threads-batch; the same without it.",
    )


FLAGS = flags_of(Cpu, "CPU")
