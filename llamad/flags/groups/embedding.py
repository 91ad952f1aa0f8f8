"""Owns the flags about embeddings and reranking. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import Choice, Int, Switch

flag = partial(Flag, group="Embedding")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--pooling",),
        env=("LLAMA_ARG_POOLING",),
        dest="pooling",
        kind=Choice(("none", "mean", "cls", "last", "rank"), optional=True),
        default=None,
        metavar="TYPE",
        help="Pooling of token embeddings; default: from the model, else none, and the mean on /v1/embeddings.",
    ),
    flag(
        names=("--attention",),
        env=("LLAMA_ARG_ATTENTION",),
        dest="attention",
        kind=Choice(("causal", "non-causal"), optional=True),
        default=None,
        metavar="TYPE",
        help="Attention type; default: from the model.",
    ),
    flag(
        names=("--embedding", "--embeddings"),
        env=("LLAMA_ARG_EMBEDDINGS",),
        dest="embeddings",
        kind=Switch(),
        default=False,
        help="Enable the embedding endpoints; a model that can generate still does.",
    ),
    flag(
        names=("--rerank", "--reranking"),
        env=("LLAMA_ARG_RERANKING",),
        dest="reranking",
        kind=Switch(),
        default=False,
        help="Enable the rerank and classify endpoints; same as --embedding --pooling rank.",
    ),
    flag(
        names=("--embd-normalize",),
        env=("LLAMA_ARG_EMBD_NORMALIZE",),
        dest="embd_normalize",
        kind=Int(low=-1),
        default=2,
        help="Normalization of embeddings; -1: none, 0: maximum 32760, 1: taxicab, 2: Euclidean, above:"
        " p-norm.",
    ),
)
