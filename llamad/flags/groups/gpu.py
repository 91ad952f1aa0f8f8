"""Owns the flags about GPUs and other devices. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Later
from llamad.flags.types.kinds import Choice, Float, Int, Many, Switch, Text
from llamad.flags.types.special import Placements

flag = partial(Flag, group="GPU")

FIT = Later("fitting the settings to the devices' memory")

READY_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-ngl", "--gpu-layers", "--n-gpu-layers"),
        env=("LLAMA_ARG_N_GPU_LAYERS",),
        dest="n_gpu_layers",
        kind=Int(low=-1, words={"auto": -1, "all": -1}),
        default=-1,
        help="Layers to keep on the GPUs, where there are any; -1 for all.",
    ),
    flag(
        names=("-sm", "--split-mode"),
        env=("LLAMA_ARG_SPLIT_MODE",),
        dest="split_mode",
        kind=Choice(("none", "layer", "row", "tensor")),
        default="layer",
        metavar="MODE",
        help="How several GPUs share the model.",
    ),
    flag(
        names=("-ts", "--tensor-split"),
        env=("LLAMA_ARG_TENSOR_SPLIT",),
        dest="tensor_split",
        kind=Many(Float(low=0.0), cut=",/"),
        default=(),
        metavar="N0,N1,...",
        help="Each GPU's share of the model, for example 3,1; by default their free memory decides.",
    ),
    flag(
        names=("-mg", "--main-gpu"),
        env=("LLAMA_ARG_MAIN_GPU",),
        dest="main_gpu",
        kind=Int(low=0),
        default=0,
        help="The GPU for the whole model with --split-mode none, for the small parts with row.",
    ),
    flag(
        names=("-dev", "--device"),
        env=("LLAMA_ARG_DEVICE",),
        dest="devices",
        kind=Many(Text()),
        default=(),
        metavar="NAME,...",
        help="The devices to use, by llama.cpp's names (CUDA0, ...), or none; by default all.",
    ),
    flag(
        names=("-ot", "--override-tensor"),
        env=("LLAMA_ARG_OVERRIDE_TENSOR",),
        dest="override_tensor",
        kind=Placements(),
        default=(),
        repeat=True,
        help="Keep tensors whose names a regular expression is found in elsewhere: CPU, CUDA0, ... The first that fits"
        " counts. May be repeated.",
    ),
    flag(
        names=("-cmoe", "--cpu-moe"),
        env=("LLAMA_ARG_CPU_MOE",),
        dest="cpu_moe",
        kind=Switch(),
        default=False,
        help="Keep the experts of all layers in the machine's memory.",
    ),
    flag(
        names=("-ncmoe", "--n-cpu-moe"),
        env=("LLAMA_ARG_N_CPU_MOE",),
        dest="n_cpu_moe",
        kind=Int(low=0, high=4096),
        default=0,
        help="Keep the experts of the first N layers in the machine's memory.",
    ),
    flag(
        names=("-ncffn", "--n-cpu-ffn"),
        env=("LLAMA_ARG_N_CPU_FFN",),
        dest="n_cpu_ffn",
        kind=Int(low=0, high=4096),
        default=0,
        help="Keep the feed-forward weights of the first N layers in the machine's memory, where they are no experts.",
    ),
)

LATER_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--list-devices",),
        dest="list_devices",
        kind=Switch(),
        default=False,
        status=Later("a list of the devices"),
    ),
    flag(
        names=("--rpc",),
        env=("LLAMA_ARG_RPC",),
        dest="rpc",
        kind=Many(Text()),
        default=(),
        status=Later("RPC backends"),
    ),
    flag(
        names=("--repack",),
        off=("-nr", "--no-repack"),
        env=("LLAMA_ARG_REPACK",),
        dest="repack",
        kind=Switch(),
        default=True,
        status=Later("loading without repacked weights"),
    ),
    flag(
        names=("--no-host",),
        env=("LLAMA_ARG_NO_HOST",),
        dest="no_host",
        kind=Switch(),
        default=False,
        status=Later("loading without host buffers"),
    ),
    flag(
        names=("--op-offload",),
        off=("--no-op-offload",),
        dest="op_offload",
        kind=Switch(),
        default=True,
        status=Later("keeping host tensors' operations on the processor"),
    ),
    flag(
        names=("-fit", "--fit"),
        env=("LLAMA_ARG_FIT",),
        dest="fit",
        kind=Choice(("on", "off")),
        default="off",
        status=FIT,
    ),
    flag(
        names=("-fitt", "--fit-target"),
        env=("LLAMA_ARG_FIT_TARGET",),
        dest="fit_target",
        kind=Text(),
        default=None,
        status=FIT,
    ),
    flag(
        names=("-fitc", "--fit-ctx"),
        env=("LLAMA_ARG_FIT_CTX",),
        dest="fit_ctx",
        kind=Int(low=0),
        default=None,
        status=FIT,
    ),
)

FLAGS: tuple[Flag, ...] = READY_FLAGS + LATER_FLAGS
