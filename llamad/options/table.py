"""Owns the table of options: all that a request can say about its generation, each declared here and nowhere else.

A field has the option's name, type, range and default; its Option the documentation and the flag. The flags, the
decoder of requests, `generation_settings`, /props and docs/options.md follow from it. Pure data; must not compute.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from llamad.options.option import FLOAT_MAX, INT32_MAX, LEFT_OUT, Alias, Option, fields_of
from llamad.options.sampler_names import BREAKER_BYTES_MAX, BREAKERS_MAX, DEFAULT_ORDER, SAMPLERS_MAX
from llamad.options.values import (
    Biases,
    NotYet,
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
LastN = Annotated[int, Meta(ge=-1, le=INT32_MAX)]  # -1: all there is
Length = Annotated[int, Meta(ge=-2, le=INT32_MAX)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

STOP_BYTES_MAX = 4096
RESPONSE_FIELDS_MAX = 256
RESPONSE_FIELD_MAX = 256

PROMPT, LENGTH, SAMPLING, PENALTIES = "The prompt", "Length", "Sampling", "Penalties"
FORM, ANSWER, NOT_YET = "Form", "The answer", "Not available yet"

prompt = partial(Option, section=PROMPT)
length = partial(Option, section=LENGTH)
sampling = partial(Option, section=SAMPLING)
penalty = partial(Option, section=PENALTIES)
form = partial(Option, section=FORM, echo=False)
answer = partial(Option, section=ANSWER)
not_yet = partial(Option, section=NOT_YET, echo=False)


class Options(Struct, kw_only=True):
    """What a request gets that says nothing; with the flags' values, the server's own; with a request's, its own."""

    # The prompt.

    system_prompt: Annotated[
        SystemPrompt | None,
        prompt(
            help="from now on stands before every prompt of every client",
            note='`""` takes it away. Without a `prompt` it is only set and read into the cache',
            values="string, or object of strings `prompt`, `anti_prompt`, `assistant_name`",
            see=("-spf", "--no-system-prompt"),
            echo=False,
        ),
    ] = None
    cache_prompt: Annotated[
        bool,
        prompt(
            help="reuse cached prefixes of the prompt",
            flags=("--cache-prompt",),
            off=("--no-cache-prompt",),
            env="LLAMA_ARG_CACHE_PROMPT",
        ),
    ] = True
    id_slot: Annotated[Whole, prompt(help="the slot to run in; -1: any", values="-1 to slots - 1")] = -1
    slot_id: Annotated[Whole, Alias("id_slot")] = LEFT_OUT

    # Length.

    n_predict: Annotated[
        Length,
        length(
            help="maximum tokens to generate; -1: no limit, -2: until the context is full",
            note="0 only prefills the prompt",
            flags=("-n", "--predict", "--n-predict"),
            env="LLAMA_ARG_N_PREDICT",
            see=("--n-predict-max",),
        ),
    ] = -1
    max_tokens: Annotated[Length, Alias("n_predict")] = LEFT_OUT
    n_keep: Annotated[
        LastN,
        length(
            help="prompt tokens kept on a context shift, BOS not counted; -1: the whole prompt",
            flags=("--keep",),
            env="LLAMA_ARG_KEEP",
        ),
    ] = 0
    n_discard: Annotated[
        Count, length(help="tokens dropped on a context shift; 0: half of what is not kept")
    ] = 0
    t_max_predict_ms: Annotated[
        LastN, length(help="time limit of the generation, once it has a line break; 0 or less: none")
    ] = 0
    stop: Annotated[
        Stops,
        length(
            help="texts that end the answer and are not part of it",
            values=f"string, or array of at most `--stop-max` strings of up to {STOP_BYTES_MAX} bytes",
            see=("--stop-max",),
        ),
    ] = Stops()
    ignore_eos: Annotated[
        bool,
        length(
            help="never sample a token that ends the text",
            flags=("--ignore-eos",),
            env="LLAMA_ARG_IGNORE_EOS",
        ),
    ] = False
    n_indent: Annotated[
        Count,
        length(help="a line indented by fewer spaces or tabs ends the answer; 0: off"),
    ] = 0
    n: Annotated[
        Many,
        length(
            help="completions of each prompt, as an array",
            note="The prompt is prefilled once; each has the next seed",
            values="1 to `--n-max`",
            see=("--n-max",),
        ),
    ] = 1
    n_cmpl: Annotated[Many, Alias("n")] = LEFT_OUT

    # Sampling.

    samplers: Annotated[
        Samplers,
        sampling(
            help="the samplers in the order of use; penalties come first unless the list names them",
            note="One that is not listed is not used, one listed twice works twice",
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
            help="random seed; negative: a new one for each request",
            note="4294967295 too; larger ones are taken modulo that. The echo has the seed that was used",
            values="64 bits",
            flags=("-s", "--seed"),
            env="LLAMA_ARG_SEED",
        ),
    ] = -1
    temperature: Annotated[
        Number,
        sampling(
            help="temperature, by which logits are divided; 0 or less: greedy",
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
            help="keep the k likeliest tokens; 0 or less: off", flags=("--top-k",), env="LLAMA_ARG_TOP_K"
        ),
    ] = 40
    top_p: Annotated[
        Share,
        sampling(
            help="keep the likeliest tokens that together have this probability; 1: off",
            flags=("--top-p",),
            env="LLAMA_ARG_TOP_P",
        ),
    ] = 0.95
    min_p: Annotated[
        Share,
        sampling(
            help="keep tokens with at least this share of the likeliest's probability; 0: off",
            flags=("--min-p",),
            env="LLAMA_ARG_MIN_P",
        ),
    ] = 0.05
    typical_p: Annotated[
        Share,
        sampling(
            help="keep the least unusual tokens that together have this probability; 1: off",
            flags=("--typical-p", "--typical"),
            env="LLAMA_ARG_TYPICAL",
        ),
    ] = 1.0
    tfs_z: Annotated[
        Share,
        sampling(
            help="tail-free sampling: cut where the curve of probabilities is flat; 1: off",
            flags=("--tfs",),
            env="LLAMA_ARG_TFS",
        ),
    ] = 1.0
    top_n_sigma: Annotated[
        Number,
        sampling(
            help="keep tokens within this many standard deviations of the best logit; 0 or less: off",
            flags=("--top-nsigma", "--top-n-sigma"),
            env="LLAMA_ARG_TOP_N_SIGMA",
        ),
    ] = -1.0
    xtc_probability: Annotated[
        Share,
        sampling(
            help="how often XTC drops the likeliest tokens; 0: off",
            flags=("--xtc-probability",),
            env="LLAMA_ARG_XTC_PROBABILITY",
        ),
    ] = 0.0
    xtc_threshold: Annotated[
        Share,
        sampling(
            help="XTC drops all tokens at least this likely but the last of them; above 0.5: off",
            flags=("--xtc-threshold",),
            env="LLAMA_ARG_XTC_THRESHOLD",
        ),
    ] = 0.1
    mirostat: Annotated[
        int,
        Meta(ge=0, le=2),
        sampling(
            help="Mirostat version 1 or 2 in place of the other samplers; 0: off",
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
    min_keep: Annotated[
        Count,
        sampling(help="minimum tokens that a cut leaves", flags=("--min-keep",), env="LLAMA_ARG_MIN_KEEP"),
    ] = 0
    logit_bias: Annotated[
        Biases,
        sampling(
            help="added to the logits of these tokens",
            note="`false` forbids them. In place of the server's own",
            values='array of `[id or text, number or false]`, or object `{"id or text": number or false}`',
            flags=("-l", "--logit-bias"),
            env="LLAMA_ARG_LOGIT_BIAS",
        ),
    ] = Biases()

    # Penalties.

    repeat_last_n: Annotated[
        LastN,
        penalty(
            help="window of the penalties, in tokens; 0: off, -1: the context size",
            flags=("--repeat-last-n",),
            env="LLAMA_ARG_REPEAT_LAST_N",
        ),
    ] = 64
    repeat_penalty: Annotated[
        Positive,
        penalty(
            help="divides positive logits of tokens that occurred, multiplies others; 1: off",
            flags=("--repeat-penalty",),
            env="LLAMA_ARG_REPEAT_PENALTY",
        ),
    ] = 1.0
    presence_penalty: Annotated[
        Number,
        penalty(
            help="subtracted once from the logits of tokens that occurred; 0: off",
            flags=("--presence-penalty",),
            env="LLAMA_ARG_PRESENCE_PENALTY",
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        Number,
        penalty(
            help="subtracted for each time a token occurred; 0: off",
            flags=("--frequency-penalty",),
            env="LLAMA_ARG_FREQUENCY_PENALTY",
        ),
    ] = 0.0
    penalize_nl: Annotated[
        bool,
        penalty(
            help="apply the penalties to line breaks, too",
            flags=("--penalize-nl",),
            off=("--no-penalize-nl",),
            env="LLAMA_ARG_PENALIZE_NL",
        ),
    ] = False
    penalty_prompt: Annotated[
        TokenIds | None,
        penalty(
            help="what penalties and DRY take for the prompt; null: the prompt itself",
            values="null, string, or array of token ids",
            default="null",
            echo=False,
        ),
    ] = None
    dry_multiplier: Annotated[
        FromZero,
        penalty(
            help="strength of DRY, the penalty on repeated sequences; 0: off",
            note="A token that extends a repetition loses multiplier * base ^ (length - allowed length)",
            flags=("--dry-multiplier",),
            env="LLAMA_ARG_DRY_MULTIPLIER",
        ),
    ] = 0.0
    dry_base: Annotated[
        FromOne,
        penalty(
            help="how fast DRY grows with the length of a repetition",
            flags=("--dry-base",),
            env="LLAMA_ARG_DRY_BASE",
        ),
    ] = 1.75
    dry_allowed_length: Annotated[
        Count,
        penalty(
            help="length of repetition that DRY allows",
            flags=("--dry-allowed-length",),
            env="LLAMA_ARG_DRY_ALLOWED_LENGTH",
        ),
    ] = 2
    dry_penalty_last_n: Annotated[
        LastN,
        penalty(
            help="window of DRY, in tokens; 0: off, -1: the context size",
            flags=("--dry-penalty-last-n",),
            env="LLAMA_ARG_DRY_PENALTY_LAST_N",
        ),
    ] = -1
    dry_sequence_breakers: Annotated[
        SequenceBreakers,
        penalty(
            help="texts that end a repetition",
            values=f"array of at most {BREAKERS_MAX} strings of up to {BREAKER_BYTES_MAX} bytes, of which 40 count",
            flags=("--dry-sequence-breaker",),
            env="LLAMA_ARG_DRY_SEQUENCE_BREAKER",
            metavar="TEXT",
        ),
    ] = SequenceBreakers(("\n", ":", '"', "*"))

    # Form.

    grammar: Annotated[
        str | None,
        form(
            help="the answer follows this grammar",
            note='`""`: none, also against the server\'s own. Errors are told with line and column; at most 2 MiB',
            values="string, GBNF",
            see=("--grammar", "--grammar-file"),
        ),
    ] = None
    json_schema: Annotated[
        dict[str, Any] | bool | None,
        Meta(description="an object, true or false"),
        form(
            help="the answer is JSON that fits this schema; not together with `grammar`",
            note="At most 2 MiB and 5 s of conversion",
            values="object or boolean",
            see=("-j", "-jf"),
        ),
    ] = None
    strict: Annotated[
        bool,
        form(
            help="whether a keyword of the schema that cannot be honoured is a 400",
            note="With false it is left out, and `warnings` in the result says so",
        ),
    ] = True

    # The answer.

    stream: Annotated[bool, answer(help="send the text as it comes, as server-sent events")] = False
    return_tokens: Annotated[bool, answer(help="put the ids of the answer into `tokens`")] = False
    n_probs: Annotated[
        Count,
        answer(
            help="tell the likeliest tokens of each step and their logprobs, in `completion_probabilities`",
            values="0 to `--n-probs-max`",
            see=("--n-probs-max",),
        ),
    ] = 0
    post_sampling_probs: Annotated[
        bool, answer(help="tell what the samplers left, and its probabilities, instead")
    ] = False
    timings_per_token: Annotated[bool, answer(help="put `timings` into each event of a stream")] = False
    response_fields: Annotated[
        ResponseFields,
        answer(
            help='only these fields of the result; `"a/b"` is b out of a, under that name',
            values=f"array of up to {RESPONSE_FIELDS_MAX} strings of {RESPONSE_FIELD_MAX} characters",
            default="all",
            echo=False,
        ),
    ] = ResponseFields()

    # Not available yet.

    image_data: Annotated[NotYet, not_yet(help="images for the prompt", default="`[]`")] = NotYet()
    lora: Annotated[NotYet, not_yet(help="scales of LoRA adapters", default="`[]`")] = NotYet()


FIELDS = fields_of(Options)


def names_of(name: str) -> tuple[str, ...]:
    """The option's names: its own, then the others."""
    others = (one.name for one in FIELDS.values() if one.alias is not None and one.alias.of == name)
    return (name, *others)


# Those whose default a flag sets.
WITH_FLAG = tuple(name for name, one in FIELDS.items() if one.option is not None and one.option.flags)
