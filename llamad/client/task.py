"""Owns the types that cross from the API to the engine: what a task is, and who receives its events.

Made and read on the event loop. Must not know HTTP or JSON.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from llamad.client.adapters import NO_ADAPTERS, AdapterSet
from llamad.client.events import Done, TokenProbs
from llamad.client.grammar import EngineGrammar
from llamad.client.media_embeddings import MediaEmbeddings
from llamad.client.text_event import TextEvent
from llamad.protocol.command import Command
from llamad.protocol.messages import STOP_EOS, STOP_LIMIT, STOP_NONE, STOP_WORD
from llamad.protocol.sampling_params import Sampling
from llamad.tokenizer.vocab import Vocab

STOP_NAMES = {STOP_NONE: "none", STOP_EOS: "eos", STOP_LIMIT: "limit", STOP_WORD: "word"}
ENGINE_ABSENT = 1  # the code of FAILURE_ENGINE for a task that no engine had


class RequestContext(msgspec.Struct, frozen=True):
    """What the engine knows of a request."""

    request_id: str
    key_name: str = ""
    client: int = 0  # clients take turns in the queue
    owner: int = 0  # with whom it shares cached prefixes; 0: all
    session: int = 0  # its conversation, a hint for the choice of a slot; 0: none
    priority: int = 0
    deadline_us: int = 0  # on base.clock_us(); 0: none


class Task(msgspec.Struct):
    """One generation of one prompt."""

    context: RequestContext
    prompt: bytes  # token ids as int32
    sampling: Sampling
    vocab: Vocab | None = None  # that the tokens are of; an engine with another one refuses the task
    stops: list[bytes] = msgspec.field(default_factory=list)
    bias: bytes = b""  # packed: command.packed_biases()
    breakers: bytes = b""  # DRY's, packed: breakers.pack_breakers()
    id_slot: int = -1
    n_predict: int = -1
    n_keep: int = 0
    n_discard: int = 0
    t_max_predict_us: int = 0
    stream: bool = False
    cache_prompt: bool = True
    n_cache_reuse: int = 0  # least tokens of a chunk of an old prompt that is moved; 0: off
    context_shift: bool = True
    grammar: EngineGrammar | None = None  # lives as long as the task
    markers: bool = False  # special tokens that mark calls and reasoning are part of the text
    group: int = 0  # tasks that share the prefill of one prompt, from Engine.new_group(); 0: none
    n_indent: int = 0
    n_probs: int = 0
    post_sampling_probs: bool = False
    prompt_probs: bool = False  # also the prompt's own logprobs; disables the prefix cache
    progress: bool = False  # the sink hears of every step that prefills
    answer_bytes_max: int = 0  # approximate limit on its JSON; 0: none
    penalty: bytes | None = None  # token ids for the penalties instead of the prompt's
    adapters: AdapterSet = NO_ADAPTERS
    rows: MediaEmbeddings | None = (
        None  # of images and sound in the prompt; their memory lives as long as the task
    )

    def command(self) -> Command:
        """The engine's parameters, without the prompt and the request context."""
        return Command(
            self.sampling,
            stops=self.stops,
            bias=self.bias,
            breakers=self.breakers,
            priority=self.context.priority,
            adapter_set=self.adapters.number,
            adapters=list(self.adapters.uses),
            base_set=self.adapters.base,
            n_base=self.adapters.n_base,
            n_base_adapters=self.adapters.n_base_uses,
            id_slot=self.id_slot,
            n_predict=self.n_predict,
            n_keep=self.n_keep,
            n_discard=self.n_discard,
            t_max_predict_us=self.t_max_predict_us,
            stream=self.stream,
            cache_prompt=self.cache_prompt,
            n_cache_reuse=self.n_cache_reuse,
            context_shift=self.context_shift,
            group=self.group,
            grammar=self.grammar.id if self.grammar is not None else 0,
            markers=self.markers,
            n_indent=self.n_indent,
            n_probs=self.n_probs,
            post_sampling_probs=self.post_sampling_probs,
            penalty=self.penalty,
            prompt_probs=self.prompt_probs,
            answer_bytes_max=self.answer_bytes_max,
            progress=self.progress,
            runs=self.rows.packed if self.rows is not None else b"",
        )


class Ended(msgspec.Struct, frozen=True):
    """What a slot remembers of its last task."""

    owner: int
    stop_type: int
    stop_word: bytes


class Sink(Protocol):
    """Receives the events of one task, on the event loop. on_done or on_failed is the last."""

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None: ...

    def on_prompt(self, tokens: list[int], probs: list[TokenProbs]) -> None:
        """Only with prompt_probs: the prompt's tokens from the second on, in order, before any text."""
        ...

    def on_progress(self, n_processed: int, prompt_us: int) -> None:
        """Only with progress: how many of the prompt's tokens the slot holds, and the time that took."""
        ...

    def on_text(self, text: TextEvent) -> None: ...

    def on_done(self, done: Done) -> None: ...

    def on_failed(self, failure: int, code: int) -> None: ...

    def on_broken(self) -> None:
        """One of the calls above raised: the sink's last chance to clean up."""


class WatchingSink(Sink, Protocol):
    """The sink of a task whose reasoning can be ended."""

    def end_thinking(self) -> None: ...
