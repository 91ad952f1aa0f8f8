"""Owns the flags about embeddings and reranking. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.flag import Flag, Later
from llamad.flags.kinds import Choice, Int, Switch

flag = partial(Flag, group="Embedding")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--pooling",),
        env=("LLAMA_ARG_POOLING",),
        dest="pooling",
        kind=Choice(("none", "mean", "cls", "last", "rank"), optional=True),
        default=None,
        metavar="TYPE",
        help="How a text's token vectors become one; by default what the model says.",
    ),
    flag(
        names=("--attention",),
        env=("LLAMA_ARG_ATTENTION",),
        dest="attention",
        kind=Choice(("causal", "non-causal"), optional=True),
        default=None,
        metavar="TYPE",
        help="Which tokens a token sees; by default what the model says.",
    ),
    flag(
        names=("--embedding", "--embeddings"),
        env=("LLAMA_ARG_EMBEDDINGS",),
        dest="embeddings",
        kind=Switch(),
        default=False,
        status=Later("embeddings"),
    ),
    flag(
        names=("--rerank", "--reranking"),
        env=("LLAMA_ARG_RERANKING",),
        dest="reranking",
        kind=Switch(),
        default=False,
        status=Later("reranking"),
    ),
    flag(
        names=("--embd-normalize",), dest="embd_normalize", kind=Int(), default=2, status=Later("embeddings")
    ),
)
