"""Owns the table of generation options; each option is declared here and nowhere else.

A field has the option's name, type, range and default; its Option has the help and the flag. The flags, the request
decoder, `generation_settings`, /props and docs/options.md are derived from it. Pure data; must not compute.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from llamad.options.option import FLOAT_MAX, INT32_MAX, LEFT_OUT, Alias, Option, fields_of
from llamad.options.sampler_names import BREAKER_BYTES_MAX, BREAKERS_MAX, DEFAULT_ORDER, SAMPLERS_MAX
from llamad.options.values import (
    AdapterScales,
    Biases,
    ResponseFields,
    Samplers,
    SequenceBreakers,
    Stops,
    SystemPrompt,
    TokenIds,
)

Number = Annotated[float, Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
Positive = Annotated[float, Meta(gt=0, le=FLOAT_MAX)]
FromZero = Annotated[float, Meta(ge=0, le=FLOAT_MAX)]
FromOne = Annotated[float, Meta(ge=1, le=FLOAT_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Whole = Annotated[int, Meta(ge=-INT32_MAX, le=INT32_MAX)]
Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Many = Annotated[int, Meta(ge=1, le=INT32_MAX)]
LastN = Annotated[int, Meta(ge=-1, le=INT32_MAX)]  # -1: the context size
Length = Annotated[int, Meta(ge=-2, le=INT32_MAX)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

STOP_BYTES_MAX = 4096
RESPONSE_FIELDS_MAX = 256
RESPONSE_FIELD_MAX = 256

PROMPT, LENGTH, SAMPLING, PENALTIES = "Prompt", "Length", "Sampling", "Penalties"
FORM, ANSWER = "Structured output", "Response"

prompt = partial(Option, section=PROMPT)
length = partial(Option, section=LENGTH)
sampling = partial(Option, section=SAMPLING)
penalty = partial(Option, section=PENALTIES)
form = partial(Option, section=FORM, echo=False)
answer = partial(Option, section=ANSWER)


class Options(Struct, kw_only=True):
    """The options of one generation. The flags override the defaults here, and a request overrides the flags."""

    # Prompt.

    system_prompt: Annotated[
        SystemPrompt | None,
        prompt(
            help="system prompt before every prompt from now on, of this API key; without keys, of all clients",
            note='`""` removes it. Without a `prompt` it is only set and cached',
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
            env="LLAMA_ARG_CACHE_PROMPT",
        ),
    ] = True
    n_cache_reuse: Annotated[
        Count,
        prompt(
            help="minimum tokens of a chunk of the slot's old prompt that is moved to where it stands now; 0: off",
            note="Behind the common prefix, where something was dropped before the chunk. Inexact: the chunk has seen"
            " what was dropped. Without effect on models whose cache cannot be shifted",
            flags=("--cache-reuse",),
            env="LLAMA_ARG_CACHE_REUSE",
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
            note="0: only prefill the prompt. In a request, -1 is the flag's limit",
            flags=("-n", "--predict", "--n-predict"),
            env="LLAMA_ARG_N_PREDICT",
            see=("--n-predict-max",),
        ),
    ] = -1
    max_tokens: Annotated[Length, Alias("n_predict")] = LEFT_OUT
    n_keep: Annotated[
        LastN,
        length(
            help="prompt tokens kept on a context shift, without BOS; -1: the whole prompt",
            flags=("--keep",),
            env="LLAMA_ARG_KEEP",
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
    ignore_eos: Annotated[
        bool,
        length(
            help="never sample an end-of-generation token",
            flags=("--ignore-eos",),
            env="LLAMA_ARG_IGNORE_EOS",
        ),
    ] = False
    n_indent: Annotated[
        Count,
        length(help="end the answer at a line indented by less than this; 0: off"),
    ] = 0
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

    # Sampling.

    samplers: Annotated[
        Samplers,
        sampling(
            help="samplers in order; penalties come first unless listed",
            note="A sampler that is not listed is off; one listed twice runs twice",
            values=f"array of names, or a string of letters; at most {SAMPLERS_MAX}",
            flags=("--samplers",),
            env="LLAMA_ARG_SAMPLERS",
            metavar="A;B;...",
            see=("--sampling-seq",),
        ),
    ] = Samplers(DEFAULT_ORDER)
    seed: Annotated[
        Seed,
        sampling(
            help="random seed; negative: a new one per request",
            note="4294967295 is random, too; larger values are taken modulo it. The response has the seed used",
            values="64 bits",
            flags=("-s", "--seed"),
            env="LLAMA_ARG_SEED",
        ),
    ] = -1
    temperature: Annotated[
        Number,
        sampling(
            help="temperature; 0 or less: greedy",
            flags=("--temperature", "--temp"),
            env="LLAMA_ARG_TEMPERATURE",
        ),
    ] = 0.8
    dynatemp_range: Annotated[
        FromZero,
        sampling(
            help="range of the dynamic temperature, which follows the entropy; 0: off",
            flags=("--dynatemp-range",),
            env="LLAMA_ARG_DYNATEMP_RANGE",
        ),
    ] = 0.0
    dynatemp_exponent: Annotated[
        Number,
        sampling(
            help="exponent of the dynamic temperature",
            flags=("--dynatemp-exp",),
            env="LLAMA_ARG_DYNATEMP_EXP",
        ),
    ] = 1.0
    top_k: Annotated[
        Whole,
        sampling(
            help="keep the k most likely tokens; 0 or less: off", flags=("--top-k",), env="LLAMA_ARG_TOP_K"
        ),
    ] = 40
    top_p: Annotated[
        Share,
        sampling(
            help="keep the most likely tokens up to this total probability; 1: off",
            flags=("--top-p",),
            env="LLAMA_ARG_TOP_P",
        ),
    ] = 0.95
    min_p: Annotated[
        Share,
        sampling(
            help="minimum probability, relative to the most likely token; 0: off",
            flags=("--min-p",),
            env="LLAMA_ARG_MIN_P",
        ),
    ] = 0.05
    typical_p: Annotated[
        Share,
        sampling(
            help="locally typical sampling; 1: off",
            flags=("--typical-p", "--typical"),
            env="LLAMA_ARG_TYPICAL",
        ),
    ] = 1.0
    tfs_z: Annotated[
        Share,
        sampling(
            help="tail-free sampling; 1: off",
            flags=("--tfs",),
            env="LLAMA_ARG_TFS",
        ),
    ] = 1.0
    top_n_sigma: Annotated[
        Number,
        sampling(
            help="keep logits within this many standard deviations of the maximum; 0 or less: off",
            flags=("--top-nsigma", "--top-n-sigma"),
            env="LLAMA_ARG_TOP_N_SIGMA",
        ),
    ] = -1.0
    xtc_probability: Annotated[
        Share,
        sampling(
            help="probability that XTC removes the top tokens; 0: off",
            flags=("--xtc-probability",),
            env="LLAMA_ARG_XTC_PROBABILITY",
        ),
    ] = 0.0
    xtc_threshold: Annotated[
        Share,
        sampling(
            help="minimum probability of a token that XTC removes; above 0.5: off",
            flags=("--xtc-threshold",),
            env="LLAMA_ARG_XTC_THRESHOLD",
        ),
    ] = 0.1
    mirostat: Annotated[
        int,
        Meta(ge=0, le=2),
        sampling(
            help="Mirostat version, instead of the other samplers; 0: off",
            flags=("--mirostat",),
            env="LLAMA_ARG_MIROSTAT",
        ),
    ] = 0
    mirostat_tau: Annotated[
        FromZero,
        sampling(
            help="Mirostat's target entropy, in bits", flags=("--mirostat-ent",), env="LLAMA_ARG_MIROSTAT_ENT"
        ),
    ] = 5.0
    mirostat_eta: Annotated[
        FromZero,
        sampling(help="Mirostat's learning rate", flags=("--mirostat-lr",), env="LLAMA_ARG_MIROSTAT_LR"),
    ] = 0.1
    adaptive_target: Annotated[
        Number,
        sampling(
            help="probability near which `adaptive_p` looks for tokens; below 0: anywhere",
            note="Only with `adaptive_p` among the samplers; it draws last wherever it is listed",
            flags=("--adaptive-target",),
            env="LLAMA_ARG_ADAPTIVE_TARGET",
        ),
    ] = -1.0
    adaptive_decay: Annotated[
        Share,
        sampling(
            help="how long `adaptive_p` remembers the probabilities of its tokens; more than 0.99 counts as that",
            flags=("--adaptive-decay",),
            env="LLAMA_ARG_ADAPTIVE_DECAY",
        ),
    ] = 0.9
    min_keep: Annotated[
        Count,
        sampling(
            help="minimum number of tokens that samplers keep",
            flags=("--min-keep",),
            env="LLAMA_ARG_MIN_KEEP",
        ),
    ] = 0
    logit_bias: Annotated[
        Biases,
        sampling(
            help="bias added to the logits of these tokens",
            note="`false` forbids a token. Replaces the server's own",
            values='array of `[id or text, number or false]`, or object `{"id or text": number or false}`',
            flags=("-l", "--logit-bias"),
            env="LLAMA_ARG_LOGIT_BIAS",
        ),
    ] = Biases()

    # Penalties.

    repeat_last_n: Annotated[
        LastN,
        penalty(
            help="number of last tokens to penalize; 0: off, -1: the context size",
            flags=("--repeat-last-n",),
            env="LLAMA_ARG_REPEAT_LAST_N",
        ),
    ] = 64
    repeat_penalty: Annotated[
        Positive,
        penalty(
            help="penalty on repeated tokens; 1: off",
            flags=("--repeat-penalty",),
            env="LLAMA_ARG_REPEAT_PENALTY",
        ),
    ] = 1.0
    presence_penalty: Annotated[
        Number,
        penalty(
            help="subtracted once from the logits of repeated tokens; 0: off",
            flags=("--presence-penalty",),
            env="LLAMA_ARG_PRESENCE_PENALTY",
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        Number,
        penalty(
            help="subtracted per repetition from a token's logit; 0: off",
            flags=("--frequency-penalty",),
            env="LLAMA_ARG_FREQUENCY_PENALTY",
        ),
    ] = 0.0
    penalize_nl: Annotated[
        bool,
        penalty(
            help="penalize newlines, too",
            flags=("--penalize-nl",),
            off=("--no-penalize-nl",),
            env="LLAMA_ARG_PENALIZE_NL",
        ),
    ] = False
    penalty_prompt: Annotated[
        TokenIds | None,
        penalty(
            help="text that penalties and DRY use instead of the prompt; null: the prompt",
            values="null, string, or array of token ids",
            default="null",
            echo=False,
        ),
    ] = None
    dry_multiplier: Annotated[
        FromZero,
        penalty(
            help="strength of DRY, the penalty on repeated sequences; 0: off",
            note="The next token of a repetition loses multiplier * base ^ (length - allowed length)",
            flags=("--dry-multiplier",),
            env="LLAMA_ARG_DRY_MULTIPLIER",
        ),
    ] = 0.0
    dry_base: Annotated[
        FromOne,
        penalty(
            help="base of DRY's growth with the length of a repetition",
            flags=("--dry-base",),
            env="LLAMA_ARG_DRY_BASE",
        ),
    ] = 1.75
    dry_allowed_length: Annotated[
        Count,
        penalty(
            help="longest repetition without a DRY penalty",
            flags=("--dry-allowed-length",),
            env="LLAMA_ARG_DRY_ALLOWED_LENGTH",
        ),
    ] = 2
    dry_penalty_last_n: Annotated[
        LastN,
        penalty(
            help="number of last tokens that DRY searches; 0: off, -1: the context size",
            flags=("--dry-penalty-last-n",),
            env="LLAMA_ARG_DRY_PENALTY_LAST_N",
        ),
    ] = -1
    dry_sequence_breakers: Annotated[
        SequenceBreakers,
        penalty(
            help="strings that end a repetition",
            values=f"array of at most {BREAKERS_MAX} strings of up to {BREAKER_BYTES_MAX} bytes, 40 of which count",
            flags=("--dry-sequence-breaker",),
            env="LLAMA_ARG_DRY_SEQUENCE_BREAKER",
            metavar="TEXT",
        ),
    ] = SequenceBreakers(("\n", ":", '"', "*"))

    # Structured output.

    grammar: Annotated[
        str | None,
        form(
            help="GBNF grammar for the output",
            note='`""`: none, not even the server\'s. A malformed one is a 400 with line and column. At most 2 MiB',
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
            help="reject schema keywords that cannot be honoured",
            note="With false they are dropped, and `warnings` in the response says so",
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
            help="seconds of silence after which a stream gets a comment; 0 or less: never",
            values="-1 or more",
            default="`--sse-ping-interval`",
            see=("--sse-ping-interval",),
            echo=False,
        ),
    ] = LEFT_OUT
    verbose: Annotated[
        bool,
        answer(help="`__verbose` in OpenAI's answers: the result as /completion gives it", echo=False),
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
            help="scales of LoRA adapters, by their numbers in /lora-adapters; those that are left out have 0, all with"
            " `[]`",
            values='array of `{"id": N, "scale": N}`',
            default="as `POST /lora-adapters` says",
            see=("--lora", "--lora-scaled"),
            echo=False,
        ),
    ] = None


FIELDS = fields_of(Options)


def names_of(name: str) -> tuple[str, ...]:
    """The option's name and its aliases."""
    others = (one.name for one in FIELDS.values() if one.alias is not None and one.alias.of == name)
    return (name, *others)


# Options whose default is set by a flag.
WITH_FLAG = tuple(name for name, one in FIELDS.items() if one.option is not None and one.option.flags)
