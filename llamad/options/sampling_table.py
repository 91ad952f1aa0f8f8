"""The options that decide the next token: samplers and penalties. They are a part of the table of options.

Most of them cross to the engine unchanged, in llamad_sampling (ext/llama/function_table.h). Pure data; must not
compute.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from llamad.options.ranges import (
    Count,
    FromOne,
    FromZero,
    LastN,
    Number,
    Positive,
    Seed,
    Share,
    Whole,
)
from llamad.options.sampler_names import BREAKER_BYTES_MAX, BREAKERS_MAX, DEFAULT_ORDER, SAMPLERS_MAX
from llamad.options.sections import penalty, sampling
from llamad.options.values import Biases, Samplers, SequenceBreakers, TokenIds


class SamplingOptions(Struct, kw_only=True):
    """The options of the samplers of one generation."""

    # Sampling.

    samplers: Annotated[
        Samplers,
        sampling(
            help="samplers in order; penalties come first unless listed",
            note="A sampler that is not listed is off; one listed twice runs twice",
            values=f"array of names, or a string of letters; at most {SAMPLERS_MAX}",
            flags=("--samplers",),
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
        ),
    ] = 0.0
    dynatemp_exponent: Annotated[
        Number, sampling(help="exponent of the dynamic temperature", flags=("--dynatemp-exp",))
    ] = 1.0
    top_k: Annotated[
        Whole, sampling(help="keep the k most likely tokens; 0 or less: off", flags=("--top-k",))
    ] = 40
    top_p: Annotated[
        Share,
        sampling(help="keep the most likely tokens up to this total probability; 1: off", flags=("--top-p",)),
    ] = 0.95
    min_p: Annotated[
        Share,
        sampling(help="minimum probability, relative to the most likely token; 0: off", flags=("--min-p",)),
    ] = 0.05
    typical_p: Annotated[
        Share, sampling(help="locally typical sampling; 1: off", flags=("--typical-p", "--typical"))
    ] = 1.0
    tfs_z: Annotated[Share, sampling(help="tail-free sampling; 1: off", flags=("--tfs",))] = 1.0
    top_n_sigma: Annotated[
        Number,
        sampling(
            help="keep logits within this many standard deviations of the maximum; 0 or less: off",
            flags=("--top-nsigma", "--top-n-sigma"),
        ),
    ] = -1.0
    xtc_probability: Annotated[
        Share,
        sampling(help="probability that XTC removes the top tokens; 0: off", flags=("--xtc-probability",)),
    ] = 0.0
    xtc_threshold: Annotated[
        Share,
        sampling(
            help="minimum probability of a token that XTC removes; above 0.5: off", flags=("--xtc-threshold",)
        ),
    ] = 0.1
    mirostat: Annotated[
        int,
        Meta(ge=0, le=2),
        sampling(help="Mirostat version, instead of the other samplers; 0: off", flags=("--mirostat",)),
    ] = 0
    mirostat_tau: Annotated[
        FromZero, sampling(help="Mirostat's target entropy, in bits", flags=("--mirostat-ent",))
    ] = 5.0
    mirostat_eta: Annotated[FromZero, sampling(help="Mirostat's learning rate", flags=("--mirostat-lr",))] = (
        0.1
    )
    adaptive_target: Annotated[
        Number,
        sampling(
            help="target probability of the tokens that `adaptive_p` prefers; below 0: none",
            note="Used only if `adaptive_p` is among the samplers, where it always comes last",
            flags=("--adaptive-target",),
        ),
    ] = -1.0
    adaptive_decay: Annotated[
        Share,
        sampling(
            help="how long `adaptive_p` remembers the probabilities of its tokens; values above 0.99 count as 0.99",
            flags=("--adaptive-decay",),
        ),
    ] = 0.9
    min_keep: Annotated[
        Count, sampling(help="minimum number of tokens that samplers keep", flags=("--min-keep",))
    ] = 0
    logit_bias: Annotated[
        Biases,
        sampling(
            help="bias added to the logits of these tokens",
            note="`false` forbids a token. The list replaces that of the server's flag",
            values='array of `[id or text, number or false]`, or object `{"id or text": number or false}`',
            flags=("-l", "--logit-bias"),
        ),
    ] = Biases()

    # Penalties.

    repeat_last_n: Annotated[
        LastN,
        penalty(
            help="number of last tokens to penalize; 0: off, -1: the context size", flags=("--repeat-last-n",)
        ),
    ] = 64
    repeat_penalty: Annotated[
        Positive, penalty(help="penalty on repeated tokens; 1: off", flags=("--repeat-penalty",))
    ] = 1.0
    presence_penalty: Annotated[
        Number,
        penalty(
            help="value that is subtracted once from the logits of repeated tokens; 0: off",
            flags=("--presence-penalty",),
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        Number,
        penalty(
            help="value that is subtracted from a token's logit for each repetition; 0: off",
            flags=("--frequency-penalty",),
        ),
    ] = 0.0
    penalize_nl: Annotated[
        bool,
        penalty(
            help="penalize newlines, too",
            flags=("--penalize-nl",),
            off=("--no-penalize-nl",),
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
        ),
    ] = 0.0
    dry_base: Annotated[
        FromOne, penalty(help="base of DRY's growth with the length of a repetition", flags=("--dry-base",))
    ] = 1.75
    dry_allowed_length: Annotated[
        Count, penalty(help="longest repetition without a DRY penalty", flags=("--dry-allowed-length",))
    ] = 2
    dry_penalty_last_n: Annotated[
        LastN,
        penalty(
            help="number of last tokens that DRY searches; 0: off, -1: the context size",
            flags=("--dry-penalty-last-n",),
        ),
    ] = -1
    dry_sequence_breakers: Annotated[
        SequenceBreakers,
        penalty(
            help="strings that end a repetition",
            values=f"array of at most {BREAKERS_MAX} strings of up to {BREAKER_BYTES_MAX} bytes, of which 40 are used",
            flags=("--dry-sequence-breaker",),
            metavar="TEXT",
        ),
    ] = SequenceBreakers(("\n", ":", '"', "*"))
