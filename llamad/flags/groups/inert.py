"""The flags that no version of llamad needs, accepted with a warning. Pure data; must not compute.

They belong to llama.cpp's command line tools, which share their help with its server; a few are the server's
own. What only this version lacks is in the group of its feature.
"""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import INERT, Flag, Inert
from llamad.flags.types.kinds import AnyText, Int, Switch

flag = partial(Flag, status=INERT)

PERPLEXITY = Inert("it is for llama.cpp's perplexity tool")
INTERACTIVE = Inert("it is for llama.cpp's interactive tools")
PROMPT = Inert("it is for llama.cpp's command line tools; send the prompt in a request")
GUIDANCE = Inert("llama.cpp no longer has negative-prompt guidance")

SERVER_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--threads-http",),
        env=("LLAMA_ARG_THREADS_HTTP",),
        dest="threads_http",
        kind=Int(),
        default=-1,
        status=Inert("one event loop serves all connections"),
    ),
    flag(
        names=("-dt", "--defrag-thold"),
        env=("LLAMA_ARG_DEFRAG_THOLD",),
        dest="defrag_thold",
        kind=AnyText(),
        status=Inert("llama.cpp's cache no longer needs defragmentation"),
    ),
    flag(
        names=("--lora-base",),
        dest="lora_base",
        kind=AnyText(),
        status=Inert("llama.cpp applies adapters without a base model now"),
    ),
    flag(
        names=("-dkvc", "--dump-kv-cache"),
        dest="dump_kv_cache",
        kind=Switch(),
        status=Inert("llama.cpp can no longer print its cache; see /slots"),
    ),
    flag(
        names=("--perf",),
        off=("--no-perf",),
        env=("LLAMA_ARG_PERF",),
        dest="perf",
        kind=Switch(),
        default=False,
        status=Inert("llamad always measures; see /metrics"),
    ),
    flag(names=("-ld", "--logdir"), dest="logdir", kind=AnyText(), status=Inert("use --log-file")),
)

INTERACTIVE_FLAGS: tuple[Flag, ...] = tuple(
    flag(names=names, off=off, dest=names[-1].strip("-").replace("-", "_"), kind=kind, status=INTERACTIVE)
    for names, off, kind in (
        (("-i", "--interactive"), (), Switch()),
        (("-if", "--interactive-first"), (), Switch()),
        (("-mli", "--multiline-input"), (), Switch()),
        (("-cnv", "--conversation"), ("-no-cnv", "--no-conversation"), Switch()),
        (("--in-prefix-bos",), (), Switch()),
        (("--in-prefix",), (), AnyText()),
        (("--in-suffix",), (), AnyText()),
        (("--display-prompt",), ("--no-display-prompt",), Switch()),
        (("--simple-io",), (), Switch()),
        (("-r", "--reverse-prompt"), (), AnyText()),
        (("-ptc", "--print-token-count"), (), AnyText()),
    )
)

PROMPT_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-co", "--color"),
        dest="color",
        kind=AnyText(),
        bare="on",
        status=Inert("it is for llama.cpp's interactive tools; see --log-colors"),
    ),
    *(
        flag(names=names, dest=names[-1].strip("-").replace("-", "_"), kind=kind, status=PROMPT)
        for names, kind in (
            (("-p", "--prompt"), AnyText()),
            (("-f", "--file"), AnyText()),
            (("--in-file",), AnyText()),
            (("-bf", "--binary-file"), AnyText()),
            (("--prompt-cache",), AnyText()),
            (("--prompt-cache-all",), Switch()),
            (("--prompt-cache-ro",), Switch()),
            (("--image",), AnyText()),
        )
    ),
    *(
        flag(names=(name,), dest=name.strip("-").replace("-", "_"), kind=AnyText(), status=GUIDANCE)
        for name in ("--cfg-negative-prompt", "--cfg-negative-prompt-file", "--cfg-scale")
    ),
)

PERPLEXITY_FLAGS: tuple[Flag, ...] = tuple(
    flag(names=names, dest=names[-1].strip("-").replace("-", "_"), kind=kind, status=PERPLEXITY)
    for names, kind in (
        (("--all-logits",), Switch()),
        (("--hellaswag",), Switch()),
        (("--hellaswag-tasks",), AnyText()),
        (("--winogrande",), Switch()),
        (("--winogrande-tasks",), AnyText()),
        (("--multiple-choice",), Switch()),
        (("--multiple-choice-tasks",), AnyText()),
        (("--kl-divergence",), Switch()),
        (("--save-all-logits", "--kl-divergence-base"), AnyText()),
        (("--ppl-stride",), AnyText()),
        (("--ppl-output-type",), AnyText()),
        (("--chunks",), AnyText()),
        (("-ns", "--sequences"), AnyText()),
    )
)

FLAGS: tuple[Flag, ...] = SERVER_FLAGS + INTERACTIVE_FLAGS + PROMPT_FLAGS + PERPLEXITY_FLAGS
