"""The flags that no version of llamad needs, accepted with a warning. Pure data; must not compute.

They belong to llama.cpp's command line tools, which share their help with its server; a few are the server's
own. What only this version lacks is in the group of its feature.
"""

from __future__ import annotations

from llamad.flags.types.flag import Flag, Inert, placeholder
from llamad.flags.types.kinds import AnyText, Int, Switch

PERPLEXITY = Inert("it is for llama.cpp's perplexity tool")
INTERACTIVE = Inert("it is for llama.cpp's interactive tools")
PROMPT = Inert("it is for llama.cpp's command line tools; send the prompt in a request")
GUIDANCE = Inert("llama.cpp no longer has negative-prompt guidance")

SERVER_FLAGS: tuple[Flag, ...] = (
    placeholder(
        "--threads-http",
        env=("LLAMA_ARG_THREADS_HTTP",),
        kind=Int(),
        default=-1,
        status=Inert("one event loop serves all connections"),
    ),
    placeholder(
        "-dt",
        "--defrag-thold",
        env=("LLAMA_ARG_DEFRAG_THOLD",),
        kind=AnyText(),
        status=Inert("llama.cpp's cache no longer needs defragmentation"),
    ),
    placeholder(
        "--lora-base", kind=AnyText(), status=Inert("llama.cpp applies adapters without a base model now")
    ),
    placeholder(
        "-dkvc",
        "--dump-kv-cache",
        kind=Switch(),
        status=Inert("llama.cpp can no longer print its cache; see /slots"),
    ),
    placeholder(
        "--perf",
        off=("--no-perf",),
        env=("LLAMA_ARG_PERF",),
        kind=Switch(),
        default=False,
        status=Inert("llamad always measures; see /metrics"),
    ),
    placeholder("-ld", "--logdir", kind=AnyText(), status=Inert("use --log-file")),
)

INTERACTIVE_FLAGS: tuple[Flag, ...] = tuple(
    placeholder(*names, off=off, kind=kind, status=INTERACTIVE)
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
    placeholder(
        "-co",
        "--color",
        kind=AnyText(),
        bare="on",
        status=Inert("it is for llama.cpp's interactive tools; see --log-colors"),
    ),
    *(
        placeholder(*names, kind=kind, status=PROMPT)
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
        placeholder(name, kind=AnyText(), status=GUIDANCE)
        for name in ("--cfg-negative-prompt", "--cfg-negative-prompt-file", "--cfg-scale")
    ),
)

PERPLEXITY_FLAGS: tuple[Flag, ...] = tuple(
    placeholder(*names, kind=kind, status=PERPLEXITY)
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
