"""The description of a model: everything that the endpoints know of it.

Made when a model is loaded, then read-only on any thread. Has no pointers or handles, so it can cross to
another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from llamad.tokenizer.vocab import Vocab

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# NumPy takes as long to import as all of llamad, so it is imported only when vectors are computed.
Embeddings: TypeAlias = "npt.NDArray[np.float32]"


class ModelInfo(msgspec.Struct, frozen=True):
    """The properties of a model that the endpoints show or use."""

    path: str
    description: str  # architecture, size and file type in one text, as llama.cpp writes it
    vocab_type: int
    n_vocab: int
    n_ctx_train: int
    n_embd: int
    n_params: int
    size: int
    chat_template: str
    bos: int
    eos: int
    eot: int
    add_bos: bool
    nl: int = -1  # the newline token; -1: none
    sep: int = -1
    add_eos: bool = False
    add_sep: bool = False
    rerank_template: str | None = None
    fim_pre: int = -1  # the infilling tokens; -1: none
    fim_suf: int = -1
    fim_mid: int = -1
    fim_rep: int = -1
    fim_sep: int = -1
    arch: str = ""
    ftype: str = ""  # the file type: "Q4_1", "Q4_K - Medium"
    # The sampling defaults in the model's file, as texts, by the last part of their keys (options/from_model.py).
    sampling: dict[str, str] = msgspec.field(default_factory=dict)
    tool_use_template: str | None = None  # the chat template for chats with tools


class AdapterInfo(msgspec.Struct, frozen=True):
    """A LoRA adapter that the engine has opened."""

    id: int
    digest: bytes  # SHA-256 of its file
    rank: int  # the largest rank of its tensors
    task_name: str
    prompt_prefix: str
    invocation: tuple[int, ...]  # the tokens that switch an activated adapter (aLoRA) on; empty for others


class VectorInfo(msgspec.Struct, frozen=True):
    """The properties of a model's embeddings that the endpoints use to check a request."""

    pooling: str
    n_out: int  # numbers per embedding: the embedding size, or the number of the head's scores
    labels: tuple[str, ...]  # the labels of the scores, if the model has a head
    has_head: bool  # without one, scores are meaningless
    n_text_max: int  # maximum tokens of a text
    is_split: bool  # a text may be split over batches, so n_text_max is the context size
    n_mixed_max: int = 0  # maximum tokens of a text with images or sound; 0: they cannot be embedded
    is_pooling_open: bool = False  # pooling is "none" because neither a flag nor the model has chosen one


class VectorCounts(msgspec.Struct):
    """Counts of the embedder since its start. Read and written on the event loop."""

    n_texts: int = 0
    n_tokens: int = 0
    n_batches: int = 0
    n_failures: int = 0
    seconds: float = 0.0


class Model(msgspec.Struct, frozen=True):
    """A model as the endpoints see it."""

    info: ModelInfo
    vocab: Vocab
    n_ctx: int  # tokens of the whole KV cache
    n_ctx_slot: int
    can_generate: bool = True
    vectors: VectorInfo | None = None  # None if embeddings are not enabled
    # Tokens that this model must never generate.
    suppressed_tokens: list[int] = msgspec.field(default_factory=list)
