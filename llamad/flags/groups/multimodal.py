"""Owns the flags about images and other media. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Inert
from llamad.flags.types.kinds import File, Float, Int, Switch, Text
from llamad.flags.types.special import Url

flag = partial(Flag, group="Images and sound")
video = partial(flag, status=Inert("llamad reads no video"))

COUNT = Int(low=0)
COUNT_OR_NONE = Int(low=0, optional=True)

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-mm", "--mmproj"),
        env=("LLAMA_ARG_MMPROJ",),
        dest="mmproj",
        kind=File(optional=True),
        default=None,
        help="GGUF file of the projector that makes images or sound readable for the model.",
    ),
    flag(
        names=("-mmu", "--mmproj-url"),
        env=("LLAMA_ARG_MMPROJ_URL",),
        dest="mmproj_url",
        kind=Url(optional=True),
        default=None,
        secret=True,
        help="Address to download the projector from; kept where --mmproj says, else in the cache.",
    ),
    flag(
        names=("--mmproj-auto",),
        off=("--no-mmproj-auto", "--no-mmproj"),
        env=("LLAMA_ARG_MMPROJ_AUTO", "LLAMA_ARG_MMPROJ_USE"),
        dest="mmproj_auto",
        kind=Switch(),
        default=None,
        help="Use the one mmproj*.gguf beside the model; with --hf-repo, the repository's is used anyway."
        " --no-mmproj: use none, whatever --mmproj says.",
    ),
    flag(
        names=("--mmproj-offload",),
        off=("--no-mmproj-offload",),
        env=("LLAMA_ARG_MMPROJ_OFFLOAD",),
        dest="mmproj_offload",
        kind=Switch(),
        default=True,
        help="Run the projector on the GPU, if there is one.",
    ),
    flag(
        names=("-mmdev", "--mmproj-device"),
        env=("MTMD_BACKEND_DEVICE",),
        dest="mmproj_device",
        kind=Text(optional=True),
        default=None,
        help="Device of the projector (--list-devices names them).",
    ),
    flag(
        names=("--image-min-tokens",),
        env=("LLAMA_ARG_IMAGE_MIN_TOKENS",),
        dest="image_min_tokens",
        kind=COUNT_OR_NONE,
        default=None,
        help="Fewest tokens of an image, for models whose images vary in size.",
    ),
    flag(
        names=("--image-max-tokens",),
        env=("LLAMA_ARG_IMAGE_MAX_TOKENS",),
        dest="image_max_tokens",
        kind=COUNT_OR_NONE,
        default=None,
        help="Most tokens of an image, for models whose images vary in size.",
    ),
    flag(
        names=("--image-max-pixels",),
        env=("LLAMA_ARG_IMAGE_MAX_PIXELS",),
        dest="image_max_pixels",
        kind=Int(low=1, high=1 << 28),
        default=40_000_000,
        help="Width times height of an image, at most.",
    ),
    flag(
        names=("--audio-max-seconds",),
        env=("LLAMA_ARG_AUDIO_MAX_SECONDS",),
        dest="audio_max_seconds",
        kind=Int(low=1, high=86_400),
        default=600,
        help="Length of a sound, at most.",
    ),
    flag(
        names=("--media-path",),
        env=("LLAMA_ARG_MEDIA_PATH",),
        dest="media_path",
        kind=File(optional=True),
        default=None,
        help="Folder from which requests may name files (file://).",
    ),
    flag(
        names=("--media-urls",),
        off=("--no-media-urls",),
        env=("LLAMA_ARG_MEDIA_URLS",),
        dest="media_urls",
        kind=Switch(),
        default=False,
        help="Fetch images and sound that requests name by http or https, from public hosts only.",
    ),
    flag(
        names=("--media-max-bytes",),
        env=("LLAMA_ARG_MEDIA_MAX_BYTES",),
        dest="media_max_bytes",
        reload=True,
        kind=Int(low=1, high=1 << 30),
        default=10 << 20,
        help="Size of an image's or sound's file, at most.",
    ),
    flag(
        names=("--media-cache-bytes",),
        env=("LLAMA_ARG_MEDIA_CACHE_BYTES",),
        dest="media_cache_bytes",
        kind=Int(low=0, high=1 << 40),
        default=256 << 20,
        help="Memory for images and sound that are encoded already; least recently used ones go first.",
    ),
    flag(
        status=Inert("each image is encoded by itself"),
        names=("--mtmd-batch-max-tokens",),
        env=("LLAMA_ARG_MTMD_BATCH_MAX_TOKENS",),
        dest="mtmd_batch_max_tokens",
        kind=COUNT,
        default=None,
    ),
    video(
        names=("--video-fps",), env=("LLAMA_ARG_VIDEO_FPS",), dest="video_fps", kind=Float(0.0), default=None
    ),
    video(
        names=("--video-timestamp-interval",),
        env=("LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL",),
        dest="video_timestamp_interval",
        kind=COUNT,
        default=None,
    ),
    video(
        names=("--video-ffmpeg-dir",),
        env=("LLAMA_ARG_VIDEO_FFMPEG_DIR",),
        dest="video_ffmpeg_dir",
        kind=File(),
        default=None,
    ),
)
