"""The types that cross from the API to the engine: a task, the sink that receives its events, and a slot action.

Made and read on the event loop. Must not know HTTP or JSON.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from llamad.client.adapters import NO_ADAPTERS, AdapterSet
from llamad.client.events import Done, Span, TokenProbs
from llamad.client.grammar import EngineGrammar
from llamad.client.media_embeddings import MediaEmbeddings
from llamad.client.text_event import TextEvent
from llamad.options.table import Options
from llamad.protocol.blobs import Blob
from llamad.protocol.messages import STOP_EOS, STOP_LIMIT, STOP_LOOP, STOP_NONE, STOP_WORD
from llamad.protocol.sampling_params import Sampling
from llamad.tokenizer.vocab import Vocab

STOP_NAMES = {STOP_NONE: "none", STOP_EOS: "eos", STOP_LIMIT: "limit", STOP_WORD: "word", STOP_LOOP: "loop"}
ENGINE_ABSENT = 1  # the code of FAILURE_ENGINE for a task that was sent to no engine


class RequestContext(msgspec.Struct, frozen=True):
    """The properties of a request that the engine uses."""

    request_id: str
    key_name: str = ""
    client: int = 0  # clients take turns in the queue and in prefill
    owner: int = 0  # requests of one owner share cached prefixes; 0: all share them
    session: int = 0  # the conversation, a hint for the choice of a slot; 0: none
    priority: int = 0
    deadline_us: int = 0  # on base.clock_us(); 0: none
    # For so many seconds the client means to use the prompt again; 0: unknown, -1: it will not.
    retention_s: int = 0


class Task(msgspec.Struct):
    """One generation of one prompt: the request's options, and what is made of them and of the request for the
    engine. command.pyx packs it."""

    context: RequestContext
    prompt: bytes  # token ids as int32
    sampling: Sampling
    options: Options = msgspec.field(default_factory=Options)
    vocab: Vocab | None = None  # of the tokens; a task with another vocabulary than the engine's fails
    stops: list[bytes] = msgspec.field(default_factory=list)
    bias: bytes = b""  # as packed_biases() of command.pyx returns it
    breakers: bytes = (
        b""  # DRY's sequence breakers, as pack_breakers() of tokenizer/dry_breakers.pyx returns them
    )
    n_keep: int = 0  # the option of this name plus the system prompt's tokens
    stream: bool = False
    context_shift: bool = True
    grammar: EngineGrammar | None = None  # lives as long as the task
    markers: bool = False  # the text includes the special tokens that mark tool calls and reasoning
    group: int = 0  # tasks that share the prefill of one prompt, from EngineClient.new_group(); 0: none
    prompt_probs: bool = False  # report the logprobs of the prompt, too; disables the prefix cache
    progress: bool = False  # the sink gets on_progress() for every step that prefills
    answer_bytes_max: int = 0  # approximate limit on the response's JSON; 0: none
    penalty: bytes | None = None  # token ids that the penalties count instead of the prompt's
    adapters: AdapterSet = NO_ADAPTERS
    rows: MediaEmbeddings | None = None  # of images and sound; their memory lives as long as the task


class Ended(msgspec.Struct, frozen=True):
    """How the last task of a slot ended."""

    owner: int
    stop_type: int
    stop_word: bytes


class Sink(Protocol):
    """Receives the events of one task, on the event loop. on_done or on_failed is the last."""

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None: ...

    def on_prompt(self, tokens: list[int], probs: list[TokenProbs]) -> None:
        """Receive the prompt's tokens from the second on, in order and before any text. Only with prompt_probs."""
        ...

    def on_progress(self, n_processed: int, prompt_us: int) -> None:
        """Receive the number of prompt tokens in the slot and the prefill time so far. Only with progress."""
        ...

    def on_text(self, text: TextEvent) -> None: ...

    def on_done(self, done: Done) -> None: ...

    def on_failed(self, failure: int, code: int) -> None: ...

    def on_broken(self) -> None:
        """Clean up, because one of the calls above raised an exception."""


class WatchingSink(Sink, Protocol):
    """The sink of a task whose reasoning can be ended."""

    def end_thinking(self) -> None: ...


class Action(msgspec.Struct, frozen=True):
    """An action on a slot: save, restore, erase, shift or read it. ACTION_INSERT puts a state into the prompt cache
    instead, and its slot is any."""

    kind: int
    slot: int
    blob: Blob | None = None  # stays alive until the engine has answered
    nowait: bool = False
    owner: int = 0  # the same number as in RequestContext
    session: int = 0  # likewise, of a state to insert
    retention_s: int = 0  # likewise
    n_tokens: int = 0  # tokens of a state to restore or insert
    n_bytes: int = 0  # bytes of a state to restore or insert, at most the blob's size
    n_begin: int = 0  # tokens whose cells a state to insert lacks; they were inserted before
    n_keep: int = 0
    n_discard: int = 0
    adapters: Span = (0, 0, 0)  # the adapter sets that computed a state to restore or insert
