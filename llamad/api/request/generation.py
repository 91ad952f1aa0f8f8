"""Turns generation options into the engine's parameters and into `generation_settings`.

Pure functions on the event loop or a worker. parse.py reads the options from JSON.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from llamad.api.request.constraints import ConstraintSource
from llamad.api.request.errors import bad
from llamad.api.request.parse import UINT32_MAX
from llamad.api.request.triggers import shown_triggers
from llamad.client.command import packed_biases
from llamad.flags.groups.speculative import DRAFT_MAX
from llamad.flags.settings import ModelSettings
from llamad.flags.types.speculation import MODEL_TYPE
from llamad.options.option import LEFT_OUT
from llamad.options.table import FIELDS, Options, names_of
from llamad.options.values import Biases, LogitBias
from llamad.protocol.messages import PROB_JSON_BYTES
from llamad.protocol.model_info import ModelInfo
from llamad.protocol.sampling_params import Sampling

ECHO_BYTES_MAX = 64 << 20
NEVER_MAX = 8  # sets of forbidden tokens whose biases are kept; a model has up to four
PART_BYTES = 8192  # memory of a task besides its prompt and its packed options


class Parsing(msgspec.Struct, frozen=True):
    """How the generated text is parsed; by default it is not."""

    chat_format: str = "Content-only"
    reasoning_format: str = "none"
    reasoning_in_content: bool = False
    generation_prompt: str = ""  # the end of the prompt, which begins the model's turn


PLAIN = Parsing()

# The names in generation_settings, and the option of each.
_ECHOED = {
    shown: field.attribute
    for name, field in FIELDS.items()
    if field.option is not None and field.option.echo
    for shown in names_of(name)
}
_echoed_values = attrgetter(*_ECHOED.values())


class Drafting(msgspec.Struct, frozen=True):
    """How the server drafts, and the limits of requests that have none of their own. Drafts from text have none, and
    show llama-server's documented defaults."""

    types: str = "none"
    n_max: int = 16
    n_min: int = 5
    p_min: float = 0.9


NO_DRAFTS = Drafting()


def drafting_of(spec_types: str, settings: ModelSettings) -> Drafting:
    """Return how an engine with these types drafts."""
    if MODEL_TYPE not in spec_types.split(","):
        return Drafting(spec_types or "none")
    n_max = DRAFT_MAX if settings.spec_draft_n_max is None else min(settings.spec_draft_n_max, DRAFT_MAX)
    return Drafting(spec_types, n_max, min(settings.spec_draft_n_min, n_max), settings.spec_draft_p_min)


def seed_of(options: Options, i: int) -> int:
    """Return the seed of the i-th of n completions, which counts up as in llama-server. It skips the largest number,
    which means a random seed."""
    return (options.seed + i) % UINT32_MAX if i else options.seed


def sampler_chain(options: Options) -> tuple[str, ...]:
    """Return the samplers in the order in which they run. Penalties that are not neutral come first unless listed."""
    is_neutral = (
        options.repeat_penalty == 1 and options.presence_penalty == 0 and options.frequency_penalty == 0
    )
    if is_neutral or "penalties" in options.samplers:
        return options.samplers
    return ("penalties", *options.samplers)


def needs_breakers(options: Options) -> bool:
    """Whether DRY is on and has sequence breakers."""
    return bool(
        options.dry_multiplier > 0
        and options.dry_penalty_last_n
        and options.dry_sequence_breakers
        and not options.mirostat
        and "dry" in options.samplers
    )


def sampling(options: Options, info: ModelInfo, seed: int) -> Sampling:
    """Return the engine's sampling parameters. `penalize_nl` needs the model's newline token, `infill` its end-of-text
    token."""
    end = info.eot if info.eot >= 0 else info.eos
    return Sampling(sampler_chain(options), options, seed, info.nl, end)


def check_echo(options: Options, constraint: ConstraintSource, n_parts: int, grammar: str) -> None:
    """Raise a 400 if the options are too large to be echoed in every result, because many completions with large
    options would make a response far larger than the request."""
    n_bytes = options.logit_bias.n_bytes + 2 * len(options.penalty_prompt or b"") + len(grammar)
    n_bytes += len(constraint.schema or b"")
    n_bytes += sum(map(len, options.dry_sequence_breakers)) + sum(map(len, options.stop))
    if n_parts * n_bytes > ECHO_BYTES_MAX:
        raise bad(
            f"{n_parts} completions with options this large exceed one request;"
            ' send fewer prompts, a smaller "n", or a smaller "logit_bias", grammar or schema'
        )


def held_bytes(
    options: Options, constraint: ConstraintSource, prompts: Sequence[bytes], bias: bytes, breakers: bytes
) -> int:
    """Return the memory that the tasks of a request hold until they end, here and in the engine."""
    n_bytes = options.logit_bias.n_bytes + len(bias) + constraint.n_bytes + len(options.penalty_prompt or b"")
    n_bytes += 4 * (sum(map(len, options.stop)) + sum(map(len, options.dry_sequence_breakers)))
    n_task = PART_BYTES + len(bias) + len(breakers) + len(options.penalty_prompt or b"")
    return n_bytes + sum(len(tokens) + options.n * (n_task + len(tokens)) for tokens in prompts)


def check_prompt_probs(options: Options, prompts: Sequence[bytes], limit: int) -> None:
    """Raise a 400 if the logprobs of the prompts make the response too large, which is known before anything is
    computed."""
    n_tokens = sum(len(tokens) // 4 for tokens in prompts)
    if n_tokens * (1 + options.n_probs) * PROB_JSON_BYTES > limit:
        raise bad(
            f"The logprobs of {n_tokens} prompt tokens exceed {limit} bytes; shorten the prompt, request fewer"
            " logprobs, or start llamad with a larger --answer-max-bytes"
        )


def biases(options: Options, eog_tokens: list[int], suppressed: list[int]) -> bytes:
    """Return the request's biases, followed by the forbidden tokens, in the engine's format."""
    own, never = options.logit_bias, _never((*(eog_tokens if options.ignore_eos else ()), *suppressed))
    return packed_biases(own.tokens + never.tokens, own.values + never.values)


@lru_cache(maxsize=NEVER_MAX)
def _never(tokens: tuple[int, ...]) -> Biases:
    """Return biases that forbid these tokens. They are kept, because a model always has the same."""
    return Biases(LogitBias(token, -math.inf) for token in tokens)


def _biases_json(options: Options, eog_tokens: Sequence[int]) -> msgspec.Raw:
    """Return the biases as JSON. `ignore_eos` is shown as biases that forbid every end-of-generation token."""
    own = options.logit_bias.json
    if not options.ignore_eos or not eog_tokens:
        return msgspec.Raw(own)
    never = _never(tuple(eog_tokens)).json
    return msgspec.Raw(own[:-1] + b"," + never[1:] if len(options.logit_bias) else never)


def _shown_drafting(options: Options, drafting: Drafting) -> dict[str, Any]:
    """Return the types of drafts, and the request's limits, or the server's where it has none."""
    limits = {
        name: (getattr(options, f"speculative_{name}"), getattr(drafting, name))
        for name in ("n_max", "n_min", "p_min")
    }
    shown = {name: default if own == LEFT_OUT else own for name, (own, default) in limits.items()}
    return {f"speculative.{name}": value for name, value in {"types": drafting.types, **shown}.items()}


def settings_json(
    options: Options,
    constraint: ConstraintSource,
    n_ctx: int,
    model: str,
    seed: int | None = None,
    grammar: str = "",
    eog_tokens: Sequence[int] = (),
    parsing: Parsing = PLAIN,
    drafting: Drafting = NO_DRAFTS,
) -> dict[str, Any]:
    """Return `generation_settings`: every option as it was understood, under its old and new names. Each of n
    completions has its own seed."""
    penalty, system = options.penalty_prompt, options.system_prompt
    shown: dict[str, Any] = dict(zip(_ECHOED, _echoed_values(options), strict=True))
    if seed is not None:
        shown["seed"] = seed
    shown["logit_bias"] = _biases_json(options, eog_tokens)
    shown |= {
        "n_ctx": n_ctx,
        "model": model,
        "penalty_prompt_tokens": [] if penalty is None else memoryview(penalty).cast("i").tolist(),
        "use_penalty_prompt_tokens": penalty is not None,
        "grammar": grammar,
        "grammar_lazy": constraint.lazy is not None,
        "grammar_triggers": [] if constraint.lazy is None else shown_triggers(constraint.lazy),
        "json_schema": msgspec.Raw(constraint.schema) if constraint.schema is not None else None,
        "preserved_tokens": list(getattr(options, "preserved_tokens", ())),
        "chat_format": parsing.chat_format,
        "reasoning_format": parsing.reasoning_format,
        "reasoning_in_content": parsing.reasoning_in_content,
        "generation_prompt": parsing.generation_prompt,
        "backend_sampling": False,
        **_shown_drafting(options, drafting),
        "lora": [{"id": number, "scale": scale} for number, scale in options.lora or ()],
        "system_prompt": None if system is None else system.json(),
    }
    return shown
