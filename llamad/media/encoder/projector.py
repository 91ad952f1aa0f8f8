"""A projector: mtmd's context over the vocabulary of its model. Runs in the encoder process."""

from __future__ import annotations

import mmap
import os

from llamad._llama import ffi, lib
from llamad.media.messages import Encode, Encoded, Open, Opened, Piece

FLOAT_BYTES = INT_BYTES = 4
FLASH_ATTN = {
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
}


class ProjectorError(Exception):
    """The projector does not fit the model, or it cannot encode the file."""


def _why() -> str:
    return str(ffi.string(lib.llamad_last_error()).decode("utf-8", "replace"))


class Projector:
    def __init__(self, request: Open) -> None:
        device = ffi.NULL if request.device is None else ffi.new("char[]", request.device.encode())
        params = ffi.new(
            "llamad_media_params *",
            {
                "n_threads": request.n_threads,
                "uses_gpu": request.uses_gpu,
                "image_min_tokens": request.image_min_tokens,
                "image_max_tokens": request.image_max_tokens,
                "flash_attn": FLASH_ATTN[request.flash_attn],
                "device": device,
            },
        )
        self._media = lib.llamad_media_open(
            os.fsencode(request.projector), os.fsencode(request.model), params
        )
        if self._media == ffi.NULL:
            raise ProjectorError(_why())
        info = ffi.new("llamad_media_info *")
        lib.llamad_media_describe(self._media, info)
        self.info = Opened(
            bool(info.sees), bool(info.hears), info.sample_rate, bool(info.has_mrope), info.n_row
        )

    def encode(self, request: Encode, source: int, target: int) -> Encoded:
        """Encode the pixels or samples of `source`, and write the embeddings to `target`. Raises ProjectorError."""
        n_bytes = request.width * request.height * 3 or request.width * FLOAT_BYTES
        # The front has checked that it has this size and that nobody can truncate it (llamad/media/received.py).
        with mmap.mmap(source, n_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as data:
            n = lib.llamad_media_cut(self._media, ffi.from_buffer(data), request.width, request.height)
        if n < 0:
            raise ProjectorError(_why())
        pieces = [self._piece(i) for i in range(n)]
        n_tokens = sum(piece.n_tokens for piece in pieces)
        if n_tokens > request.tokens_max:
            raise ProjectorError(f"becomes {n_tokens} tokens; {request.tokens_max} fit")
        self._write_rows(pieces, target)
        return Encoded(pieces)

    def _piece(self, index: int) -> Piece:
        info = ffi.new("llamad_piece *")
        if lib.llamad_media_piece(self._media, index, info) != 0:
            raise ProjectorError("llama.cpp could not prepare it")
        piece = Piece(info.n_tokens, info.n_pos, bool(info.is_non_causal), bool(info.is_grid))
        if info.is_text:
            tokens = ffi.new("int32_t[]", piece.n_tokens)
            lib.llamad_media_tokens(self._media, index, tokens, piece.n_tokens)
            piece.tokens = list(tokens)
        return piece

    def _write_rows(self, pieces: list[Piece], target: int) -> None:
        n_row = self.info.n_row
        n_rows = sum(piece.n_tokens for piece in pieces if not piece.tokens)
        n_grid = sum(piece.n_tokens for piece in pieces if piece.is_grid)
        n_bytes = n_rows * n_row * FLOAT_BYTES + n_grid * 3 * INT_BYTES
        if n_bytes == 0:
            raise ProjectorError("holds nothing that the projector can take")
        os.ftruncate(target, n_bytes)
        with mmap.mmap(target, n_bytes) as memory:
            base = ffi.cast("char *", ffi.from_buffer(memory))
            at = 0
            for i, piece in enumerate(pieces):
                if piece.tokens:
                    continue
                n_floats = piece.n_tokens * n_row
                if lib.llamad_media_encode(self._media, i, ffi.cast("float *", base + at), n_floats) != 0:
                    raise ProjectorError(_why())
                at += n_floats * FLOAT_BYTES
            for i, piece in enumerate(pieces):
                if piece.is_grid:
                    positions = ffi.cast("int32_t *", base + at)
                    if lib.llamad_media_positions(self._media, i, positions, piece.n_tokens) != 0:
                        raise ProjectorError("llama.cpp could not place it")
                    at += piece.n_tokens * 3 * INT_BYTES
            del base
