"""Fills, saves, restores and reads slots of an engine harness."""

from llamad.protocol.blobs import Blob
from llamad.protocol.messages import (
    ACTION_RESTORE,
    ACTION_SAVE,
    ACTION_TOKENS,
)
from llamad.ses1 import ses1

PROMPT = b"what the slot holds"
SIZE = 1 << 16


def tokens_of(text):
    return [0, *(3 + byte for byte in text)]


def fill(h, slot, text=PROMPT, n_predict=1):
    """The slot holds the prompt and, with n_predict, n - 1 more tokens."""
    task = h.submit(text, id_slot=slot, n_predict=n_predict)
    h.wait(task)
    return task


def save(h, slot, **options):
    blob = Blob(SIZE)
    return h.done(h.act(ACTION_SAVE, slot, blob, **options)), blob


def restore(h, slot, blob, **options):
    return h.done(h.act(ACTION_RESTORE, slot, blob, n_tokens=ses1.n_tokens(blob), **options))


def told(h, slot, kind=ACTION_TOKENS):
    blob = Blob(SIZE)
    acted = h.done(h.act(kind, slot, blob))
    assert acted.n_bytes == blob.size == 4 * acted.n_tokens
    return memoryview(blob).cast("i").tolist()


def counted(text, n):
    """What the fake writes behind a prompt: it counts on from its last byte."""
    return bytes((text[-1] + 1 + i) % 256 for i in range(n))
