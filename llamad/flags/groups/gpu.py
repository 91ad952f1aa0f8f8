"""The flags about GPUs and other devices. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import ON_OFF, Float, Int, Many, OnOff, Text
from llamad.flags.types.network import Endpoint
from llamad.flags.types.placement import Placements
from llamad.flags.types.values import Placement

CTX_MIN = 256  # tokens
ALL_LAYERS = 9999  # more than any model has


class Gpu:
    """Settings about GPUs and other devices, and how a model is fitted to their memory."""

    n_gpu_layers: int = flag(
        names=("-ngl", "--gpu-layers", "--n-gpu-layers"),
        kind=Int(low=-1, words={"auto": -1, "all": ALL_LAYERS}),
        default=-1,
        help="Layers to offload to the GPUs, if there are any; auto, -1: as many as fit (--fit).",
    )
    split_mode: Literal["none", "layer", "row", "tensor"] = flag(
        names=("-sm", "--split-mode"),
        default="layer",
        metavar="MODE",
        help="How to split the model across several GPUs.",
    )
    tensor_split: tuple[float, ...] = flag(
        names=("-ts", "--tensor-split"),
        kind=Many(Float(low=0.0), cut=",/"),
        default=(),
        metavar="N0,N1,...",
        help="Share of the model for each GPU, for example 3,1; default: by free memory.",
    )
    main_gpu: int = flag(
        names=("-mg", "--main-gpu"),
        kind=Int(low=0),
        default=0,
        help="GPU for the whole model with --split-mode none, for intermediate results with row.",
    )
    # ("none",): no GPU.
    devices: tuple[str, ...] = flag(
        names=("-dev", "--device"),
        kind=Many(Text()),
        default=(),
        metavar="NAME,...",
        help="Devices to use, by llama.cpp's names (CUDA0, RPC0, ...), or none; default: all.",
    )
    rpc: tuple[str, ...] = flag(
        kind=Many(Endpoint()),
        default=(),
        metavar="HOST:PORT,...",
        help="RPC workers whose devices to use too (`llamad rpc-server` on other machines). The protocol has no"
        " authentication: private networks only.",
    )
    override_tensor: tuple[Placement, ...] = flag(
        names=("-ot", "--override-tensor"),
        kind=Placements(),
        default=(),
        repeat=True,
        help="Buffer (CPU, CUDA0, ...) for tensors whose name matches a regular expression; the first match"
        " wins. May be repeated.",
    )
    cpu_moe: bool = flag(
        names=("-cmoe", "--cpu-moe"),
        default=False,
        help="Keep the expert weights of all layers in host memory.",
    )
    n_cpu_moe: int = flag(
        names=("-ncmoe", "--n-cpu-moe"),
        kind=Int(low=0, high=4096),
        default=0,
        help="Keep the expert weights of the first N layers in host memory.",
    )
    n_cpu_ffn: int = flag(
        names=("-ncffn", "--n-cpu-ffn"),
        kind=Int(low=0, high=4096),
        default=0,
        help="Keep the dense feed-forward weights of the first N layers in host memory.",
    )
    repack: bool = flag(
        off=("-nr", "--no-repack"),
        default=True,
        help="Repack weights for the CPU where that is faster.",
    )
    no_host: bool = flag(
        default=False,
        help="Bypass the GPUs' host buffers, so that weights in RAM can be repacked.",
    )
    op_offload: bool = flag(
        off=("--no-op-offload",),
        default=True,
        help="Let GPUs compute large batches with weights in RAM.",
    )
    fit: OnOff = flag(
        names=("-fit", "--fit"),
        kind=ON_OFF,
        default="on",
        help="Fit the model to the memory that is free: a smaller context, then experts, then layers in RAM. Only"
        " what no flag sets is changed (-c, -ngl, -ts, -ot, -cmoe, -ncmoe).",
    )
    fit_target: tuple[int, ...] = flag(
        names=("-fitt", "--fit-target"),
        kind=Many(Int(low=0, high=1 << 30)),
        default=(1024,),
        metavar="MIB0,MIB1,...",
        help="Memory that --fit leaves free on each device, and without one on the machine; one value is for all.",
    )
    fit_ctx: int = flag(
        names=("-fitc", "--fit-ctx"),
        kind=Int(low=CTX_MIN),
        default=4096,
        help="The smallest context that --fit chooses.",
    )


FLAGS = flags_of(Gpu, "GPU")
