"""Owns the flags about images and other media. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag, Inert, Later
from llamad.flags.types.kinds import File, Float, Int, Switch, Text

flag = partial(Flag, group="Images", status=Inert("llamad reads no images, sound or video yet"))

IMAGES = Later("images")

COUNT = Int(low=0)

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-mm", "--mmproj"),
        env=("LLAMA_ARG_MMPROJ",),
        dest="mmproj",
        kind=File(),
        default=None,
        status=IMAGES,
    ),
    flag(
        names=("-mmu", "--mmproj-url"),
        env=("LLAMA_ARG_MMPROJ_URL",),
        dest="mmproj_url",
        kind=Text(),
        default=None,
        status=IMAGES,
    ),
    flag(
        names=("--mmproj-auto",),
        off=("--no-mmproj-auto", "--no-mmproj"),
        env=("LLAMA_ARG_MMPROJ_AUTO", "LLAMA_ARG_MMPROJ_USE"),
        dest="mmproj_auto",
        kind=Switch(),
        default=False,
    ),
    flag(
        names=("--mmproj-offload",),
        off=("--no-mmproj-offload",),
        env=("LLAMA_ARG_MMPROJ_OFFLOAD",),
        dest="mmproj_offload",
        kind=Switch(),
        default=False,
    ),
    flag(
        names=("-mmdev", "--mmproj-device"),
        env=("MTMD_BACKEND_DEVICE",),
        dest="mmproj_device",
        kind=Text(),
        default=None,
    ),
    flag(
        names=("--image-min-tokens",),
        env=("LLAMA_ARG_IMAGE_MIN_TOKENS",),
        dest="image_min_tokens",
        kind=COUNT,
        default=None,
    ),
    flag(
        names=("--image-max-tokens",),
        env=("LLAMA_ARG_IMAGE_MAX_TOKENS",),
        dest="image_max_tokens",
        kind=COUNT,
        default=None,
    ),
    flag(
        names=("--mtmd-batch-max-tokens",),
        env=("LLAMA_ARG_MTMD_BATCH_MAX_TOKENS",),
        dest="mtmd_batch_max_tokens",
        kind=COUNT,
        default=None,
    ),
    flag(
        names=("--video-fps",), env=("LLAMA_ARG_VIDEO_FPS",), dest="video_fps", kind=Float(0.0), default=None
    ),
    flag(
        names=("--video-timestamp-interval",),
        env=("LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL",),
        dest="video_timestamp_interval",
        kind=COUNT,
        default=None,
    ),
    flag(
        names=("--video-ffmpeg-dir",),
        env=("LLAMA_ARG_VIDEO_FFMPEG_DIR",),
        dest="video_ffmpeg_dir",
        kind=File(),
        default=None,
    ),
    flag(names=("--media-path",), dest="media_path", kind=File(), default=None),
)
