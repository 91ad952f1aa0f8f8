"""What the head of a GGUF file says about a model that is not loaded: its architecture, context, size, abilities.

Reading blocks for milliseconds and for longer if the disk is slow, so it belongs in a thread. Results are kept by the
file's identity, so that a file that was replaced is read again. A file that cannot be read has no head.
"""

from __future__ import annotations

import os

import msgspec

from llamad.engine.loading.gguf_head import Head, read_head
from llamad.flags.settings import ModelSettings
from llamad.models.hub.names import shard_names
from llamad.protocol.errors import LoadError

KEPT_MAX = 4096
_VISION, _AUDIO = "clip.has_vision_encoder", "clip.has_audio_encoder"

_FileId = tuple[int, int, int, int]


class ModelHead(msgspec.Struct, frozen=True):
    """Describes one file, or all parts of a split model together. 0 stands for an unknown number."""

    architecture: str
    name: str
    n_ctx_train: int
    n_embd: int
    n_vocab: int
    n_params: int
    size: int  # bytes of the tensors
    reads_images: bool = False
    reads_audio: bool = False


class Heads:
    """Heads by path. read() may be called on any thread; known() never blocks for long."""

    def __init__(self) -> None:
        self._heads: dict[_FileId, ModelHead | None] = {}

    def read(self, path: str) -> ModelHead | None:
        """Return the head of a model or a projector, or None if it has none."""
        file_id = _file_id(path)
        if file_id is None:
            return None
        if file_id not in self._heads:
            if len(self._heads) >= KEPT_MAX:
                self._heads.clear()
            self._heads[file_id] = _read(path)
        return self._heads.get(file_id)

    def known(self, path: str) -> ModelHead | None:
        """Return the head if the file was read before."""
        file_id = _file_id(path)
        return None if file_id is None else self._heads.get(file_id)

    def of_model(self, settings: ModelSettings) -> ModelHead | None:
        return None if settings.is_remote else self.read(settings.model)

    def modalities(self, settings: ModelSettings | None) -> tuple[str, ...]:
        """Return what the model reads: "text", and "image" and "audio" if its projector does."""
        head = self.read(settings.mmproj) if settings is not None and settings.mmproj else None
        if head is None:
            return ("text",)
        return ("text", *(["image"] if head.reads_images else []), *(["audio"] if head.reads_audio else []))


def _file_id(path: str) -> _FileId | None:
    try:
        stat = os.stat(path)
    except (OSError, ValueError):
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(path: str) -> ModelHead | None:
    try:
        first = _of_file(path)
        others = [_of_file(one) for one in shard_names(path) if one != path]
    except LoadError:
        return None
    return msgspec.structs.replace(
        first,
        n_params=first.n_params + sum(one.n_params for one in others),
        size=first.size + sum(one.size for one in others),
    )


def _of_file(path: str) -> ModelHead:
    """Read one file. Raises LoadError."""
    head = read_head(path)
    try:
        architecture = _text(head, "general.architecture")
        n_params = 0
        for tensor in head.tensors.values():
            n = 1
            for size in tensor.dims:
                n *= size
            n_params += n
        vocab = head.keys.get("tokenizer.ggml.tokens")
        return ModelHead(
            architecture=architecture,
            name=_text(head, "general.name"),
            n_ctx_train=_number(head, f"{architecture}.context_length"),
            n_embd=_number(head, f"{architecture}.embedding_length"),
            n_vocab=getattr(vocab, "n", 0),
            n_params=n_params,
            size=head.n_bytes - head.data_at if head.tensors else 0,
            reads_images=head.keys.get(_VISION) is True,
            reads_audio=head.keys.get(_AUDIO) is True,
        )
    finally:
        head.close()


def _text(head: Head, key: str) -> str:
    value = head.keys.get(key, b"")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _number(head: Head, key: str) -> int:
    value = head.keys.get(key, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
