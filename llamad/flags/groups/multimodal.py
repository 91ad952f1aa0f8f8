"""The flags about images and other media. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Inert, placeholder
from llamad.flags.types.kinds import File, Float, Int, Switch, Text
from llamad.flags.types.network import Url

COUNT = Int(low=0)


class Multimodal:
    """Settings about images and sound."""

    # None: the model reads only text.
    mmproj: str | None = flag(
        names=("-mm", "--mmproj"),
        kind=File(),
        default=None,
        help="GGUF file of the projector that makes images or sound readable for the model.",
    )
    mmproj_url: str | None = flag(
        names=("-mmu", "--mmproj-url"),
        kind=Url(),
        default=None,
        secret=True,
        help="Address to download the projector from; kept where --mmproj says, else in the cache.",
    )
    # None: neither flag is given.
    mmproj_auto: bool | None = flag(
        off=("--no-mmproj-auto", "--no-mmproj"),
        env=("LLAMA_ARG_MMPROJ_AUTO", "LLAMA_ARG_MMPROJ_USE"),
        kind=Switch(),
        default=None,
        help="Use the mmproj*.gguf beside the model, if there is exactly one; with --hf-repo, that of the repository is"
        " used anyway. --no-mmproj: use none, even with --mmproj.",
    )
    mmproj_offload: bool = flag(
        off=("--no-mmproj-offload",),
        default=True,
        help="Run the projector on the GPU, if there is one.",
    )
    mmproj_device: str | None = flag(
        names=("-mmdev", "--mmproj-device"),
        env=("MTMD_BACKEND_DEVICE",),
        kind=Text(),
        default=None,
        help="Device of the projector (--list-devices names them).",
    )
    # None: the projector's own minimum or maximum.
    image_min_tokens: int | None = flag(
        kind=COUNT,
        default=None,
        help="Minimum tokens of an image, for models whose images vary in size.",
    )
    image_max_tokens: int | None = flag(
        kind=COUNT,
        default=None,
        help="Maximum tokens of an image, for models whose images vary in size.",
    )
    image_max_pixels: int = flag(
        kind=Int(low=1, high=1 << 28),
        default=40_000_000,
        help="Maximum pixels of an image: width times height.",
    )
    audio_max_seconds: int = flag(
        kind=Int(low=1, high=86_400),
        default=600,
        help="Maximum length of a sound in seconds.",
    )
    media_path: str | None = flag(
        kind=File(),
        default=None,
        help="Folder from which requests may name files (file://).",
    )
    media_urls: bool = flag(
        off=("--no-media-urls",),
        default=False,
        help="Fetch images and sound that requests name by http or https, from public hosts only.",
    )
    media_max_bytes: int = flag(
        reload=True,
        kind=Int(low=1, high=1 << 30),
        default=10 << 20,
        help="Maximum file size of an image or a sound.",
    )
    media_cache_bytes: int = flag(
        kind=Int(low=0, high=1 << 40),
        default=256 << 20,
        help="Memory for encoded images and sound; the least recently used ones are removed first.",
    )


NO_VIDEO = Inert("llamad reads no video")

FLAGS = (
    *flags_of(Multimodal, "Images and sound"),
    placeholder(
        "--mtmd-batch-max-tokens",
        env=("LLAMA_ARG_MTMD_BATCH_MAX_TOKENS",),
        kind=COUNT,
        status=Inert("each image is encoded by itself"),
    ),
    placeholder("--video-fps", env=("LLAMA_ARG_VIDEO_FPS",), kind=Float(0.0), status=NO_VIDEO),
    placeholder(
        "--video-timestamp-interval", env=("LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL",), kind=COUNT, status=NO_VIDEO
    ),
    placeholder("--video-ffmpeg-dir", env=("LLAMA_ARG_VIDEO_FFMPEG_DIR",), kind=File(), status=NO_VIDEO),
)
