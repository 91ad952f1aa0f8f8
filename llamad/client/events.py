"""The structs for what an engine reports: its events, and the counts of its slots.

port.pyx makes them, with positional arguments in the order of the fields; the text of a task has a struct of its own
(text_event.pyx). Read on the event loop. Must not know HTTP or JSON.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

# The sampled token's logprob (or probability), and those of the top tokens, most likely first.
TokenProbs: TypeAlias = tuple[float, list[tuple[int, float]]]

# The adapter sets that computed a sequence, as in ext/llamad/protocol/adapter_span.pxd: set, base, n_base.
Span: TypeAlias = tuple[int, int, int]


class Admitted(msgspec.Struct, frozen=True):
    """A task has got a slot."""

    slot: int
    n_cached: int
    t_us: int


class PromptTokens(msgspec.Struct, frozen=True):
    """Tokens of a task's prompt, from the second token on, with their probabilities."""

    tokens: list[int]
    probs: list[TokenProbs]


class Progress(msgspec.Struct, frozen=True):
    """How far the prefill of a task has come."""

    n_processed: int  # prompt tokens in the slot, including those from the cache
    prompt_us: int


class Done(msgspec.Struct, frozen=True):
    """How a task ended."""

    stop_type: int
    stop_word: int = -1  # index into the stop strings; -1: none
    slot: int = -1
    n_prompt: int = 0
    n_cached: int = 0
    n_decoded: int = 0
    n_slot_tokens: int = 0  # all tokens in the slot at the end
    truncated: bool = False
    has_new_line: bool = False
    t_us: int = 0
    prompt_us: int = 0
    predict_us: int = 0
    n_drafted: int = 0  # tokens that were drafted and verified
    n_accepted: int = 0  # those of them that were right


class Failed(msgspec.Struct, frozen=True):
    """Why a task failed."""

    failure: int
    code: int  # its meaning depends on the failure


class Acted(msgspec.Struct, frozen=True):
    """The result of an action."""

    result: int
    n_tokens: int = 0  # tokens in the slot, or erased tokens
    n_bytes: int = 0
    stall_us: int = 0  # how long the engine did nothing else
    n_processed: int = 0
    adapters: Span = (0, 0, 0)  # the adapter sets that computed the saved state


class SlotStep(msgspec.Struct, frozen=True, array_like=True):
    """The tokens of a slot in a step."""

    slot: int
    n_tokens: int
    is_decoding: bool


class Step(msgspec.Struct, frozen=True):
    """One step of the engine, if steps are traced. Its JSON is the first part of a line of the trace."""

    step: int
    t_us: int
    plan_us: int
    decode_us: int
    sample_us: int
    emit_us: int
    budget: int
    n_tokens: int
    n_decoding: int = msgspec.field(name="n_writing")  # slots that decode
    slots: list[SlotStep]
    wait_us: int
    n_fillers: int
    n_media: int


class SlotCounts(msgspec.Struct, frozen=True):
    """The number of a slot's tokens, and the progress of its current or last task."""

    is_busy: bool = False
    is_suspended: bool = False
    n_tokens: int = 0
    n_decoded: int = 0
    n_cached: int = 0  # prompt tokens taken from the cache
    n_processed: int = 0  # prompt tokens prefilled so far
    has_new_line: bool = False
    n_drafted: int = 0
    n_accepted: int = 0
