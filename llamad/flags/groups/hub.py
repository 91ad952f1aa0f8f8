"""The flags that name a model to download. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Action, Flag, Later, Preset, Request, placeholder
from llamad.flags.types.kinds import Switch, Text
from llamad.flags.types.model_files import HubName
from llamad.flags.types.network import Url

TITLE = "Models by name"


class Hub:
    """Settings that name a model to download."""

    hf_repo: str | None = flag(
        names=("-hf", "-hfr", "--hf-repo"),
        kind=HubName(),
        default=None,
        help="Serve a model of Hugging Face, downloaded unless it is in the cache. Without QUANT: Q4_K_M, else Q8_0,"
        " else the first file. A projector in the repository is used, too, unless --no-mmproj is given.",
    )
    hf_file: str | None = flag(
        names=("-hff", "--hf-file"),
        kind=Text(),
        default=None,
        metavar="FILE",
        help="File of --hf-repo to use instead of QUANT; for a split model, the first part.",
    )
    hf_token: str | None = flag(
        names=("-hft", "--hf-token"),
        env=("HF_TOKEN",),
        kind=Text(),
        default=None,
        metavar="TOKEN",
        secret=True,
        help="Access token for --hf-repo; better set as the variable, which other users of the machine cannot see.",
    )
    model_url: str | None = flag(
        names=("-mu", "--model-url"),
        kind=Url(),
        default=None,
        secret=True,
        help="Address to download the model from; of a split model, that of a part. Kept where --model says, else in"
        " the cache.",
    )
    offline: bool = flag(
        default=False,
        help="Do not connect to any host for a model; use only files in the cache.",
    )


CACHE_LIST = Flag(
    names=("-cl", "--cache-list"),
    group=TITLE,
    dest="action",
    kind=Request(Action.MODELS),
    default=Action.RUN,
    help="Print the models in the cache and exit, as `llamad list`.",
)

LATER_FLAGS: tuple[Flag, ...] = (
    placeholder(
        "-dr",
        "--docker-repo",
        env=("LLAMA_ARG_DOCKER_REPO",),
        kind=Text(),
        status=Later("models of Docker Hub (most are at Hugging Face, too: --hf-repo)"),
    ),
    *(
        placeholder(f"--{name}", kind=Switch(), default=False, status=Later("drafts from heads in the model"))
        for name in ("mtp", "dflash", "eagle3")
    ),
)


def _preset(name: str, what: str, repo: str, file: str | None, port: int, flags: str) -> Flag:
    named = ("--hf-repo", repo, *(("--hf-file", file) if file is not None else ()), "--port", str(port))
    return Flag(
        group=TITLE,
        names=(name,),
        dest=name.strip("-").replace("-", "_").replace(".", "_"),
        kind=Preset((*named, *flags.split())),
        default=False,
        help=f"{what}: -hf {repo} --port {port} {flags}".rstrip(),
    )


_FIM = "--ubatch-size 1024 --batch-size 1024 --ctx-size 0 --cache-reuse 256"
_OSS = (
    "--ubatch-size 2048 --batch-size 32768 --parallel 2 --ctx-size 262144"
    " --temp 1 --top-p 1 --top-k 0 --min-p 0.01 --jinja"
)
_VISION = "--ctx-size 0 --jinja"

# The presets of llama-server, with its values.
PRESETS: tuple[Flag, ...] = (
    _preset(
        "--embd-gemma-default",
        "EmbeddingGemma",
        "ggml-org/embeddinggemma-300M-qat-q4_0-GGUF",
        "embeddinggemma-300M-qat-Q4_0.gguf",
        8011,
        "--ubatch-size 2048 --batch-size 2048 --parallel 32 --ctx-size 65536 --verbose-prompt --embedding",
    ),
    *(
        _preset(f"--fim-qwen-{size.lower()}-default", f"{what} {size}, for editors", repo, file, 8012, _FIM)
        for what, size, repo, file in (
            *(
                (
                    "Qwen 2.5 Coder",
                    size,
                    f"ggml-org/Qwen2.5-Coder-{size}-Q8_0-GGUF",
                    f"qwen2.5-coder-{size.lower()}-q8_0.gguf",
                )
                for size in ("1.5B", "3B", "7B")
            ),
            (
                "Qwen 3 Coder",
                "30B",
                "ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF",
                "qwen3-coder-30b-a3b-instruct-q8_0.gguf",
            ),
        )
    ),
    _preset(
        "--gpt-oss-20b-default",
        "gpt-oss 20B",
        "ggml-org/gpt-oss-20b-GGUF",
        "gpt-oss-20b-mxfp4.gguf",
        8013,
        _OSS,
    ),
    _preset("--gpt-oss-120b-default", "gpt-oss 120B", "ggml-org/gpt-oss-120b-GGUF", None, 8013, _OSS),
    _preset(
        "--vision-gemma-4b-default", "Gemma 3 4B", "ggml-org/gemma-3-4b-it-qat-GGUF", None, 8014, _VISION
    ),
    _preset(
        "--vision-gemma-12b-default", "Gemma 3 12B", "ggml-org/gemma-3-12b-it-qat-GGUF", None, 8014, _VISION
    ),
    *(
        _preset(
            f"--fim-qwen-{size.lower()}-spec",
            f"Qwen 2.5 Coder {size} with a draft model, for editors",
            f"ggml-org/Qwen2.5-Coder-{size}-Q8_0-GGUF",
            f"qwen2.5-coder-{size.lower()}-q8_0.gguf",
            8012,
            f"--hf-repo-draft ggml-org/Qwen2.5-Coder-0.5B-Q8_0-GGUF {_FIM}",
        )
        for size in ("7B", "14B")
    ),
)

FLAGS = (*flags_of(Hub, TITLE), CACHE_LIST, *LATER_FLAGS, *PRESETS)
