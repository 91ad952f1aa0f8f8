"""The table of generation options. Each option is declared here or in sampling_table.py, and nowhere else.

A field has the option's name, type, range and default; its Option has the help and the flag. The flags, the request
decoder, `generation_settings`, /props and docs/options.md are derived from the table. Pure data; must not compute.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from llamad.options.option import INT32_MAX, LEFT_OUT, Alias, fields_of
from llamad.options.ranges import (
    RESPONSE_FIELD_MAX,
    RESPONSE_FIELDS_MAX,
    STOP_BYTES_MAX,
    Count,
    LastN,
    Length,
    Many,
    Share,
    Whole,
)
from llamad.options.sampling_table import SamplingOptions
from llamad.options.sections import answer, form, length, prompt, speculation
from llamad.options.values import AdapterScales, ResponseFields, Stops, SystemPrompt

# The names in JSON that are not names in Python.
_DOTTED = {f"speculative_{name}": f"speculative.{name}" for name in ("n_max", "n_min", "p_min")}


class Options(SamplingOptions, kw_only=True, rename=_DOTTED):
    """The options of one generation. The flags override the defaults here, and a request overrides the flags."""

    # Prompt.

    system_prompt: Annotated[
        SystemPrompt | None,
        prompt(
            help="system prompt for all later prompts of this API key; without keys, of all clients",
            note='`""` removes it. In a request without `prompt` it is only set and cached',
            values="string, or object of strings `prompt`, `anti_prompt`, `assistant_name`",
            see=("-spf", "--no-system-prompt", "--system-prompt-shared"),
            echo=False,
        ),
    ] = None
    cache_prompt: Annotated[
        bool,
        prompt(
            help="reuse the cached prefix of the prompt",
            flags=("--cache-prompt",),
            off=("--no-cache-prompt",),
        ),
    ] = True
    n_cache_reuse: Annotated[
        Count,
        prompt(
            help="minimum tokens of a chunk of the slot's old prompt that is moved to its new position; 0: off",
            note="Used after the common prefix, if tokens before the chunk were dropped. The result is inexact, because"
            " the chunk was computed with the dropped tokens. Has no effect on models whose cache cannot be shifted",
            flags=("--cache-reuse",),
            echo=False,
        ),
    ] = 0
    id_slot: Annotated[
        Whole, prompt(help="slot to run in; -1, or one that does not exist: any", values="integer")
    ] = -1
    slot_id: Annotated[Whole, Alias("id_slot")] = LEFT_OUT

    # Length.

    n_predict: Annotated[
        Length,
        length(
            help="maximum tokens to generate; -1: no limit, -2: until the context is full",
            note="0: only prefill the prompt. In a request, -1 means the flag's limit",
            flags=("-n", "--predict", "--n-predict"),
            see=("--n-predict-max",),
        ),
    ] = -1
    max_tokens: Annotated[Length, Alias("n_predict")] = LEFT_OUT
    n_keep: Annotated[
        LastN,
        length(
            help="prompt tokens kept on a context shift, without BOS; -1: the whole prompt", flags=("--keep",)
        ),
    ] = 0
    n_discard: Annotated[
        Count, length(help="tokens dropped on a context shift; 0: half of those not kept")
    ] = 0
    t_max_predict_ms: Annotated[
        LastN, length(help="time limit for generation, checked after the first newline; 0 or less: none")
    ] = 0
    stop: Annotated[
        Stops,
        length(
            help="strings that end the answer; not part of it",
            values=f"string, or array of at most `--stop-max` strings of up to {STOP_BYTES_MAX} bytes",
            see=("--stop-max",),
        ),
    ] = Stops()
    loop_guard: Annotated[
        bool,
        length(
            help="end the answer, with `stop_type` `loop`, if it repeats itself without end",
            note="Words must have been repeated for 1,024 tokens and 8 times; other signs for 4,096 and 64 times;"
            " tables of numbers, which may really be long, for 65,536 and 64 times; lists whose numbers count for"
            " 16,384 and 64 times. With `ignore_eos`, chats are not guarded by default",
            default="on for chats",
            flags=("--loop-guard",),
            off=("--no-loop-guard",),
        ),
    ] = False
    ignore_eos: Annotated[
        bool, length(help="never sample an end-of-generation token", flags=("--ignore-eos",))
    ] = False
    n_indent: Annotated[Count, length(help="end the answer at a line indented by less than this; 0: off")] = 0
    n: Annotated[
        Many,
        length(
            help="number of completions per prompt, returned as an array",
            note="The prompt is prefilled once; each completion has the next seed",
            values="1 to `--n-max`",
            see=("--n-max",),
        ),
    ] = 1
    n_cmpl: Annotated[Many, Alias("n")] = LEFT_OUT

    # Structured output.

    grammar: Annotated[
        str | None,
        form(
            help="GBNF grammar for the output",
            note='`""`: none, not even that of the server\'s flag. A malformed grammar is a 400 with line and column.'
            " At most 2 MiB",
            values="string, GBNF",
            see=("--grammar", "--grammar-file"),
        ),
    ] = None
    json_schema: Annotated[
        dict[str, Any] | bool | None,
        Meta(description="an object, true or false"),
        form(
            help="JSON schema for the output; not with `grammar`",
            note="`{}`: any object, `true`: any value. At most 2 MiB and 5 s of conversion",
            values="object or boolean",
            see=("-j", "-jf"),
        ),
    ] = None
    strict: Annotated[
        bool,
        form(
            help="reject schema keywords that are not supported",
            note="With false they are dropped, and `warnings` in the response lists them",
        ),
    ] = True

    # Response.

    stream: Annotated[bool, answer(help="stream the answer as server-sent events")] = False
    return_tokens: Annotated[bool, answer(help="return token ids in `tokens`")] = False
    n_probs: Annotated[
        Count,
        answer(
            help="top tokens and logprobs per generated token, in `completion_probabilities`",
            values="0 to `--n-probs-max`",
            see=("--n-probs-max",),
        ),
    ] = 0
    post_sampling_probs: Annotated[
        bool, answer(help="probabilities after the samplers instead of logprobs before them")
    ] = False
    timings_per_token: Annotated[bool, answer(help="`timings` in every event of a stream")] = False
    return_progress: Annotated[
        bool,
        answer(
            help="`prompt_progress` events in a stream while the prompt is prefilled",
            note="Each has `total`, `cache` and `processed` tokens, and `time_ms`",
            echo=False,
        ),
    ] = False
    sse_ping_interval: Annotated[
        float,
        Meta(ge=-1, le=INT32_MAX),
        answer(
            help="seconds without an event after which a stream gets a comment; 0 or less: never",
            values="-1 or more",
            default="`--sse-ping-interval`",
            see=("--sse-ping-interval",),
            echo=False,
        ),
    ] = LEFT_OUT
    verbose: Annotated[
        bool,
        answer(help="add `__verbose` to OpenAI responses: the result as /completion returns it", echo=False),
    ] = False
    response_fields: Annotated[
        ResponseFields,
        answer(
            help='fields of the response to return; `"a/b"` is b of a',
            values=f"array of up to {RESPONSE_FIELDS_MAX} strings of {RESPONSE_FIELD_MAX} characters",
            default="all",
            echo=False,
        ),
    ] = ResponseFields()

    lora: Annotated[
        AdapterScales | None,
        prompt(
            help="scales of LoRA adapters, by their numbers in /lora-adapters; adapters that are not listed get 0",
            values='array of `{"id": N, "scale": N}`',
            default="as `POST /lora-adapters` says",
            see=("--lora", "--lora-scaled"),
            echo=False,
        ),
    ] = None

    # Speculation.

    speculative_n_max: Annotated[
        Count,
        speculation(
            help="maximum drafted tokens per step; 0: nothing is drafted",
            default="as many as pay",
            note="At most `--spec-draft-n-max` of them are a draft model's",
            see=("--spec", "--spec-draft-n-max"),
        ),
    ] = LEFT_OUT
    speculative_n_min: Annotated[
        Count,
        speculation(
            help="drop drafts with fewer tokens",
            note="It counts as at most `speculative.n_max`",
            default="`--spec-draft-n-min` for a draft model",
            see=("--spec", "--spec-draft-n-min"),
        ),
    ] = LEFT_OUT
    speculative_p_min: Annotated[
        Share,
        speculation(
            help="minimum probability of a token that a draft model drafts",
            note="Without a draft model the header `X-Llamad-Ignored` names it unless it is 0",
            default="`--spec-draft-p-min`",
            see=("--spec-draft-p-min",),
        ),
    ] = LEFT_OUT


FIELDS = fields_of(Options)


def names_of(name: str) -> tuple[str, ...]:
    """Return the option's name and its aliases."""
    others = (one.name for one in FIELDS.values() if one.alias is not None and one.alias.of == name)
    return (name, *others)


# Options whose default is set by a flag.
WITH_FLAG = tuple(name for name, one in FIELDS.items() if one.option is not None and one.option.flags)
