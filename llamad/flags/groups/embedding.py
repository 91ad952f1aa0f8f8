"""The flags about embeddings and reranking. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import Int


class Embedding:
    """Settings about embeddings and reranking."""

    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = flag(
        default=None,
        metavar="TYPE",
        help="Pooling of token embeddings; default: from the model, else none, and the mean on /v1/embeddings.",
    )
    attention: Literal["causal", "non-causal"] | None = flag(
        default=None,
        metavar="TYPE",
        help="Attention type; default: from the model.",
    )
    embeddings: bool = flag(
        names=("--embedding", "--embeddings"),
        default=False,
        help="Enable the embedding endpoints; a model that can generate still does.",
    )
    reranking: bool = flag(
        names=("--rerank", "--reranking"),
        default=False,
        help="Enable the rerank and classify endpoints; same as --embedding --pooling rank.",
    )
    embd_normalize: int = flag(
        kind=Int(low=-1),
        default=2,
        help="Normalization of embeddings; -1: none, 0: maximum 32760, 1: taxicab, 2: Euclidean, above:"
        " p-norm.",
    )


FLAGS = flags_of(Embedding, "Embedding")
