"""Owns the flags that have no effect on a server and are accepted with a warning. Pure data; must not compute.

They belong to llama.cpp's command line tools, which share their help with its server; a few are the server's
own, but not needed by llamad.
"""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import INERT, Flag, Inert
from llamad.flags.types.kinds import Int, Switch, Text

flag = partial(Flag, group="Without effect", default=None, status=INERT)

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
        status=Inert("one event loop serves all connections"),
    ),
    flag(
        names=("-dt", "--defrag-thold"),
        env=("LLAMA_ARG_DEFRAG_THOLD",),
        dest="defrag_thold",
        kind=Text(),
        status=Inert("llama.cpp's cache no longer needs defragmentation"),
    ),
    flag(
        names=("--lora-base",),
        dest="lora_base",
        kind=Text(),
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
        status=Inert("llamad always measures; see /metrics"),
    ),
    flag(names=("-ld", "--logdir"), dest="logdir", kind=Text(), status=Inert("use --log-file")),
)

INTERACTIVE_FLAGS: tuple[Flag, ...] = tuple(
    flag(names=names, off=off, dest=names[-1].strip("-").replace("-", "_"), kind=kind, status=INTERACTIVE)
    for names, off, kind in (
        (("-i", "--interactive"), (), Switch()),
        (("-if", "--interactive-first"), (), Switch()),
        (("-mli", "--multiline-input"), (), Switch()),
        (("-cnv", "--conversation"), ("-no-cnv", "--no-conversation"), Switch()),
        (("--in-prefix-bos",), (), Switch()),
        (("--in-prefix",), (), Text()),
        (("--in-suffix",), (), Text()),
        (("--display-prompt",), ("--no-display-prompt",), Switch()),
        (("--simple-io",), (), Switch()),
        (("-r", "--reverse-prompt"), (), Text()),
        (("-ptc", "--print-token-count"), (), Text()),
    )
)

PROMPT_FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-co", "--color"),
        dest="color",
        kind=Text(),
        bare="on",
        status=Inert("it is for llama.cpp's interactive tools; see --log-colors"),
    ),
    *(
        flag(names=names, dest=names[-1].strip("-").replace("-", "_"), kind=kind, status=PROMPT)
        for names, kind in (
            (("-p", "--prompt"), Text()),
            (("-f", "--file"), Text()),
            (("--in-file",), Text()),
            (("-bf", "--binary-file"), Text()),
            (("--prompt-cache",), Text()),
            (("--prompt-cache-all",), Switch()),
            (("--prompt-cache-ro",), Switch()),
            (("--image",), Text()),
        )
    ),
    *(
        flag(names=(name,), dest=name.strip("-").replace("-", "_"), kind=Text(), status=GUIDANCE)
        for name in ("--cfg-negative-prompt", "--cfg-negative-prompt-file", "--cfg-scale")
    ),
)

PERPLEXITY_FLAGS: tuple[Flag, ...] = tuple(
    flag(names=names, dest=names[-1].strip("-").replace("-", "_"), kind=kind, status=PERPLEXITY)
    for names, kind in (
        (("--all-logits",), Switch()),
        (("--hellaswag",), Switch()),
        (("--hellaswag-tasks",), Text()),
        (("--winogrande",), Switch()),
        (("--winogrande-tasks",), Text()),
        (("--multiple-choice",), Switch()),
        (("--multiple-choice-tasks",), Text()),
        (("--kl-divergence",), Switch()),
        (("--save-all-logits", "--kl-divergence-base"), Text()),
        (("--ppl-stride",), Text()),
        (("--ppl-output-type",), Text()),
        (("--chunks",), Text()),
        (("-ns", "--sequences"), Text()),
    )
)

FLAGS: tuple[Flag, ...] = SERVER_FLAGS + INTERACTIVE_FLAGS + PROMPT_FLAGS + PERPLEXITY_FLAGS
