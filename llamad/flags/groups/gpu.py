"""Owns the flags about GPUs and other devices. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import ON_OFF, Choice, Float, Int, Many, Switch, Text
from llamad.flags.types.special import Endpoint, Placements

flag = partial(Flag, group="GPU")

CTX_MIN = 256  # tokens
ALL_LAYERS = 9999  # more than any model has

READY_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-ngl", "--gpu-layers", "--n-gpu-layers"),
        env=("LLAMA_ARG_N_GPU_LAYERS",),
        dest="n_gpu_layers",
        kind=Int(low=-1, words={"auto": -1, "all": ALL_LAYERS}),
        default=-1,
        help="Layers to offload to the GPUs, if there are any; auto, -1: as many as fit (--fit).",
    ),
    flag(
        names=("-sm", "--split-mode"),
        env=("LLAMA_ARG_SPLIT_MODE",),
        dest="split_mode",
        kind=Choice(("none", "layer", "row", "tensor")),
        default="layer",
        metavar="MODE",
        help="How to split the model across several GPUs.",
    ),
    flag(
        names=("-ts", "--tensor-split"),
        env=("LLAMA_ARG_TENSOR_SPLIT",),
        dest="tensor_split",
        kind=Many(Float(low=0.0), cut=",/"),
        default=(),
        metavar="N0,N1,...",
        help="Share of the model for each GPU, for example 3,1; default: by free memory.",
    ),
    flag(
        names=("-mg", "--main-gpu"),
        env=("LLAMA_ARG_MAIN_GPU",),
        dest="main_gpu",
        kind=Int(low=0),
        default=0,
        help="GPU for the whole model with --split-mode none, for intermediate results with row.",
    ),
    flag(
        names=("-dev", "--device"),
        env=("LLAMA_ARG_DEVICE",),
        dest="devices",
        kind=Many(Text()),
        default=(),
        metavar="NAME,...",
        help="Devices to use, by llama.cpp's names (CUDA0, RPC0, ...), or none; default: all.",
    ),
    flag(
        names=("--rpc",),
        env=("LLAMA_ARG_RPC",),
        dest="rpc",
        kind=Many(Endpoint()),
        default=(),
        metavar="HOST:PORT,...",
        help="RPC workers whose devices to use too (`llamad rpc-server` on other machines). The protocol has no"
        " authentication: private networks only.",
    ),
    flag(
        names=("-ot", "--override-tensor"),
        env=("LLAMA_ARG_OVERRIDE_TENSOR",),
        dest="override_tensor",
        kind=Placements(),
        default=(),
        repeat=True,
        help="Buffer (CPU, CUDA0, ...) for tensors whose name matches a regular expression; the first match"
        " wins. May be repeated.",
    ),
    flag(
        names=("-cmoe", "--cpu-moe"),
        env=("LLAMA_ARG_CPU_MOE",),
        dest="cpu_moe",
        kind=Switch(),
        default=False,
        help="Keep the expert weights of all layers in host memory.",
    ),
    flag(
        names=("-ncmoe", "--n-cpu-moe"),
        env=("LLAMA_ARG_N_CPU_MOE",),
        dest="n_cpu_moe",
        kind=Int(low=0, high=4096),
        default=0,
        help="Keep the expert weights of the first N layers in host memory.",
    ),
    flag(
        names=("-ncffn", "--n-cpu-ffn"),
        env=("LLAMA_ARG_N_CPU_FFN",),
        dest="n_cpu_ffn",
        kind=Int(low=0, high=4096),
        default=0,
        help="Keep the dense feed-forward weights of the first N layers in host memory.",
    ),
    flag(
        names=("--repack",),
        off=("-nr", "--no-repack"),
        env=("LLAMA_ARG_REPACK",),
        dest="repack",
        kind=Switch(),
        default=True,
        help="Repack weights for the CPU where that is faster.",
    ),
    flag(
        names=("--no-host",),
        env=("LLAMA_ARG_NO_HOST",),
        dest="no_host",
        kind=Switch(),
        default=False,
        help="Bypass the GPUs' host buffers, so that weights in RAM can be repacked.",
    ),
    flag(
        names=("--op-offload",),
        off=("--no-op-offload",),
        env=("LLAMA_ARG_OP_OFFLOAD",),
        dest="op_offload",
        kind=Switch(),
        default=True,
        help="Let GPUs compute large batches with weights in RAM.",
    ),
)

FIT_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-fit", "--fit"),
        env=("LLAMA_ARG_FIT",),
        dest="fit",
        kind=ON_OFF,
        default="on",
        help="Fit the model to the memory that is free: a smaller context, then experts, then layers in RAM. Only"
        " what no flag sets is changed (-c, -ngl, -ts, -ot, -cmoe, -ncmoe).",
    ),
    flag(
        names=("-fitt", "--fit-target"),
        env=("LLAMA_ARG_FIT_TARGET",),
        dest="fit_target",
        kind=Many(Int(low=0, high=1 << 30)),
        default=(1024,),
        metavar="MIB0,MIB1,...",
        help="Memory that --fit leaves free on each device, and without one on the machine; one value is for all.",
    ),
    flag(
        names=("-fitc", "--fit-ctx"),
        env=("LLAMA_ARG_FIT_CTX",),
        dest="fit_ctx",
        kind=Int(low=CTX_MIN),
        default=4096,
        help="The smallest context that --fit chooses.",
    ),
)

FLAGS: tuple[Flag, ...] = READY_FLAGS + FIT_FLAGS
