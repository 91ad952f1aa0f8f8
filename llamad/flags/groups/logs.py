"""The flags about the log. Pure data; must not compute."""

from __future__ import annotations

from typing import Literal

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import I32_MAX, ON_OFF_AUTO, File, Int, OnOffAuto, Switch

EVERYTHING = 10


class Logs:
    """Settings of the log."""

    verbosity: int = flag(
        names=("-v", "--log-verbose", "--verbose"),
        reload=True,
        kind=Switch(on=EVERYTHING, off=None),
        default=3,
        help=f"Log everything, and add __verbose to OpenAI's answers; same as --verbosity {EVERYTHING}.",
        also=(
            Flag(
                names=("-lv", "--log-verbosity", "--verbosity"),
                env=("LLAMA_ARG_LOG_VERBOSITY",),
                reload=True,
                kind=Int(0, I32_MAX),
                help="Verbosity; 0: critical, 1: errors, 2: warnings, 3: info, 4 and above: debug.",
            ),
        ),
    )
    log_prompts: bool = flag(
        names=("--log-prompts", "--verbose-prompt"),
        env=("LLAMA_ARG_LOG_PROMPTS", "LLAMA_ARG_VERBOSE_PROMPT"),
        default=False,
        help="Log each prompt that is generated from, up to 4096 characters of it. Prompts are private: without this no"
        " log has any.",
    )
    log_enabled: bool = flag(
        names=("--log-enable",),
        off=("--log-disable",),
        default=True,
        help="Enable the log.",
    )
    log_file: str | None = flag(
        kind=File(),
        default=None,
        help="Log to this file as well. SIGUSR1 opens it again, after it was renamed.",
    )
    log_file_mode: Literal["truncate", "append", "new"] = flag(
        names=("--log-append",),
        env=(),
        kind=Switch(on="append", off=None),
        default="truncate",
        help="Append to the log file instead of truncating it.",
        also=(
            Flag(
                names=("--log-new",),
                kind=Switch(on="new", off=None),
                help="Start a new log file each time, named NAME.ID.log.",
            ),
        ),
    )
    log_format: Literal["auto", "json", "text"] = flag(
        default="auto",
        metavar="FORMAT",
        help="One JSON object per line, or plain text; auto: text on a terminal and in the systemd journal, else JSON.",
        also=(
            Flag(
                names=("--log-jsonl",),
                off=("--no-log-jsonl",),
                env=("LLAMA_ARG_LOG_JSONL",),
                kind=Switch(on="json", off="text"),
                help="Same as --log-format json.",
            ),
        ),
    )
    log_colors: OnOffAuto = flag(
        env=("LLAMA_ARG_LOG_COLORS", "LLAMA_LOG_COLORS"),
        kind=ON_OFF_AUTO,
        default="auto",
        bare="on",
        metavar="on|off|auto",
        help="Colours in text lines; auto: on a terminal. Without a value: on.",
    )
    log_prefix: bool = flag(
        off=("--no-log-prefix",),
        env=("LLAMA_ARG_LOG_PREFIX", "LLAMA_LOG_PREFIX"),
        default=True,
        help="Prefix text lines with the level.",
    )
    log_timestamps: OnOffAuto = flag(
        off=("--no-log-timestamps",),
        env=("LLAMA_ARG_LOG_TIMESTAMPS", "LLAMA_LOG_TIMESTAMPS"),
        kind=Switch(on="on", off="off"),
        default="auto",
        help="Prefix text lines with the time; auto: not in the systemd journal, which has its own.",
    )
    log_test: bool = flag(
        default=False,
        help="Log a line of each level and exit.",
    )
    log_prompts_dir: str | None = flag(
        kind=File(),
        default=None,
        secret=True,
        help="Write each prompt to a file in this directory, which is created. Prompts are private: for debugging"
        " only.",
    )


FLAGS = flags_of(Logs, "Logs")
