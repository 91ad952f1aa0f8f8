"""Saves and restores slot states: allocates buffers, validates blobs, turns the engine's results into exceptions.

Runs on the event loop; long work runs on workers. Must not know HTTP, files or sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from llamad.client.adapters import Adapters, UnknownAdapter
from llamad.client.engine_client import EngineClient
from llamad.client.events import Acted
from llamad.client.task import Action
from llamad.protocol import messages
from llamad.protocol.blobs import Arena, Blob
from llamad.ses1 import ses1
from llamad.ses1.ses1 import Layout, StateError

T = TypeVar("T")

# A slot may grow while its buffer is allocated; after this many tries the buffer gets the maximum size.
N_TRIES = 3
N_WORKERS = 2
TOKENS_INLINE_MAX = 16384  # so many tokens are read on the event loop, which takes about a millisecond

# A state that adapters computed ends with this, followed by the SHA-256 of their set.
LORA = b"LORA"
DIGEST_BYTES = 32


class SlotBusy(Exception):
    """The slot is busy, and the action had `nowait`."""


class StateRefused(Exception):
    """`status` is the HTTP status; str() is a message for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Saved(msgspec.Struct, frozen=True):
    blob: Blob
    n_tokens: int
    stall_us: int


class Restored(msgspec.Struct, frozen=True):
    n_tokens: int
    n_bytes: int
    stall_us: int


class SlotTokens(msgspec.Struct, frozen=True):
    tokens: list[int]
    n_processed: int  # prompt tokens that its last task prefilled


class States:
    """`layout` is None if states cannot be saved; `refusal` says why. States are allocated in `arena`, which engines
    map."""

    def __init__(
        self,
        engine: EngineClient,
        layout: Layout | None,
        refusal: str,
        *,
        n_vocab: int,
        n_ctx: int,
        adapters: Adapters | None = None,
        arena: Arena | None = None,
    ) -> None:
        self.layout = layout
        self.arena = arena
        self.refusal = refusal
        self.takes_parts = False  # the engine's prompt cache takes states in parts
        self.n_ctx = n_ctx  # of one slot
        self._engine = engine
        self._adapters = adapters or Adapters((), apply=True)
        # Separate workers: a large state must not delay the small jobs of other requests.
        self.workers = ThreadPoolExecutor(N_WORKERS, thread_name_prefix="llamad-state")
        self._n_vocab = n_vocab

    @property
    def bytes_max(self) -> int:
        """The size of a slot's largest state; 0 if states cannot be saved."""
        return self.layout.bytes_max(self.n_ctx) + len(LORA) + DIGEST_BYTES if self.layout is not None else 0

    async def save(self, slot: int, *, nowait: bool = False, owner: int = 0) -> Saved:
        """Return the slot's state as SES1. The engine writes it in one call into a buffer that was allocated before,
        with room for the signature after the state. If the slot has grown so much that the state does not fit before
        the signature, it is saved again into a larger buffer."""
        layout = self._known()
        n_bytes = layout.bytes(self._n_tokens(slot))
        for n_try in range(N_TRIES + 1):
            blob = await self.work(lambda: _ready_blob(n_bytes + len(LORA) + DIGEST_BYTES, self.arena))  # noqa: B023  (awaited at once)
            acted = await self._act(Action(messages.ACTION_SAVE, slot, blob, nowait, owner))
            if acted.result != messages.RESULT_TOO_SMALL and acted.n_bytes <= n_bytes:
                self._sign(blob, acted)
                return Saved(blob, acted.n_tokens, acted.stall_us)
            n_bytes = self.bytes_max if n_try + 1 == N_TRIES else acted.n_bytes
        raise StateRefused(500, "The slot's state is larger than this model's states can be")

    async def restore(self, slot: int, blob: Blob, *, nowait: bool = False, owner: int = 0) -> Restored:
        """Restore a state. The whole blob is validated before the engine gets it."""
        layout = self._known()
        n_bytes = blob.size
        signed = _signature(blob)

        def check() -> tuple[int, Blob, int]:
            """Return the number of tokens, the checked blob, and the state's size without a signature. `blob` is not
            changed, because several requests may restore the same session at the same time."""
            try:
                return *ses1.check(layout, blob, self._n_vocab, self.n_ctx, n_bytes), n_bytes
            except StateError:
                if signed is None:
                    raise
            n_state = n_bytes - len(LORA) - DIGEST_BYTES
            return *ses1.check(layout, blob, self._n_vocab, self.n_ctx, n_state), n_state

        try:
            n_tokens, checked, n_state = await self.work(check)
        except StateError as error:
            raise StateRefused(400, f"The state cannot be restored: {error}") from None
        adapters = self._signed(signed) if n_state < n_bytes and signed is not None else 0
        action = Action(
            messages.ACTION_RESTORE,
            slot,
            checked,
            nowait,
            owner,
            n_tokens=n_tokens,
            n_bytes=n_state if checked is blob else checked.size,
            adapters=(adapters, 0, 0),
        )
        acted = await self._act(action)
        return Restored(acted.n_tokens, n_bytes, acted.stall_us)

    def _sign(self, blob: Blob, acted: Acted) -> None:
        """Append the digest of the adapters to a state that adapters computed."""
        number, base, n_base = acted.adapters
        if n_base and acted.n_tokens > n_base:
            raise StateRefused(
                501, "The slot's state was computed by an activated adapter (aLoRA), which SES1 cannot store"
            )
        number = base if n_base else number
        if number == 0:
            return
        digest = self._adapters.digest_of(number)
        if digest is None:
            raise StateRefused(500, "The adapters that computed the slot's state are not known any more")
        n_state = blob.size
        blob.size = n_state + len(LORA) + DIGEST_BYTES
        memoryview(blob)[n_state:] = LORA + digest

    def _signed(self, digest: bytes) -> int:
        try:
            return self._adapters.number_for(digest)
        except UnknownAdapter:
            raise StateRefused(
                400,
                "The state was computed by LoRA adapters, or scales of them, that are not in use here; start the"
                " server with them, or send a request with them first",
            ) from None

    async def erase(self, slot: int, *, nowait: bool = False, owner: int = 0) -> int:
        """Erase the slot and return how many tokens it held."""
        return (await self._act(Action(messages.ACTION_ERASE, slot, nowait=nowait, owner=owner))).n_tokens

    async def shift(
        self, slot: int, n_keep: int, n_discard: int, *, nowait: bool = False, owner: int = 0
    ) -> int:
        """Drop n_discard tokens after the first n_keep; returns how many are left. Both must fit 32 bits."""
        action = Action(
            messages.ACTION_SHIFT, slot, nowait=nowait, owner=owner, n_keep=n_keep, n_discard=n_discard
        )
        return (await self._act(action)).n_tokens

    async def tokens(self, slot: int, *, nowait: bool = False, owner: int = 0) -> SlotTokens:
        """Return the slot's tokens once it is idle."""
        return await self._tokens(messages.ACTION_TOKENS, slot, nowait, owner)

    async def look(self, slot: int, *, owner: int = 0) -> SlotTokens:
        """Return the slot's tokens between two steps, whether it is busy or not."""
        return await self._tokens(messages.ACTION_LOOK, slot, False, owner)

    async def _tokens(self, kind: int, slot: int, nowait: bool, owner: int) -> SlotTokens:
        blob = Blob(4 * self.n_ctx, self.arena)
        acted = await self._act(Action(kind, slot, blob, nowait, owner))
        if blob.size <= 4 * TOKENS_INLINE_MAX:
            tokens = _token_list(blob)
        else:
            tokens = await self.work(lambda: _token_list(blob))
        return SlotTokens(tokens, acted.n_processed)

    def _n_tokens(self, slot: int) -> int:
        return self._engine.slots()[slot].n_tokens

    def _known(self) -> Layout:
        if self.layout is None:
            raise StateRefused(501, f"The slots of this model cannot be saved: {self.refusal}")
        return self.layout

    def close(self) -> None:
        self.workers.shutdown(wait=False, cancel_futures=True)

    async def work(self, work: Callable[[], T]) -> T:
        """Run a long function on a worker thread."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.workers, work)
        except MemoryError:
            raise StateRefused(503, "Not enough memory for this state") from None

    async def _act(self, action: Action) -> Acted:
        """Run an action and return its result, RESULT_DONE or RESULT_TOO_SMALL; other results raise an exception."""
        acted = await self._engine.act(action)
        if acted.result == messages.RESULT_DONE or acted.result == messages.RESULT_TOO_SMALL:
            return acted
        if acted.result == messages.RESULT_BUSY:
            raise SlotBusy
        raise _refusal(action, acted)


def _signature(blob: Blob) -> bytes | None:
    """Return the digest of the adapters at the end of a state, or None if it has no signature."""
    tail = bytes(memoryview(blob)[-len(LORA) - DIGEST_BYTES :])
    return tail[len(LORA) :] if tail.startswith(LORA) and len(tail) == len(LORA) + DIGEST_BYTES else None


def _token_list(blob: Blob) -> list[int]:
    """Return the tokens in the blob. Embeddings of images and sound have no token and become -1."""
    return [max(token, -1) for token in memoryview(blob).cast("i")]


def _ready_blob(n_bytes: int, arena: Arena | None) -> Blob:
    blob = Blob(n_bytes, arena)
    blob.touch()
    return blob


def _refusal(action: Action, acted: Acted) -> StateRefused:
    if acted.result == messages.RESULT_ABORTED:
        return StateRefused(503, "The server is shutting down")
    if acted.result == messages.RESULT_ENGINE:
        return StateRefused(503, "The model's engine ended and is being started again; try again")
    if acted.result == messages.RESULT_ROWS:
        return StateRefused(501, "The slot holds images or sound, which a saved state cannot store")
    if acted.result == messages.RESULT_NOT_YOURS:
        return StateRefused(404, f"Slot {action.slot} was last used with another API key")
    if acted.result == messages.RESULT_NO_ROOM:
        return StateRefused(503, f"The unified KV cache has no room for {action.n_tokens} more tokens")
    if acted.result == messages.RESULT_OUTSIDE:
        return StateRefused(
            400,
            f"n_keep {action.n_keep} and n_discard {action.n_discard} must lie within the slot's"
            f" {acted.n_tokens} tokens: n_keep >= 0, n_discard > 0, n_keep + n_discard <= {acted.n_tokens}",
        )
    if acted.result == messages.RESULT_CANNOT:
        return StateRefused(
            501,
            "The slot's tokens cannot be moved: this model's memory does not support it (recurrent, M-RoPE), its"
            " sliding window no longer has the tokens before the rest, its positions are grouped (--grp-attn-n), or"
            " another slot shares the tokens (--kv-unified)",
        )
    if action.kind == messages.ACTION_RESTORE:
        return StateRefused(500, "llama.cpp refused the state; the slot is empty now")
    return StateRefused(500, "llama.cpp could not serialize the slot")
