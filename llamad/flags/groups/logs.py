"""Owns the flags about the log. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import I32_MAX, ON_OFF_AUTO, Choice, File, Int, Switch

flag = partial(Flag, group="Logs")

EVERYTHING = 10

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-v", "--log-verbose", "--verbose"),
        env=("LLAMA_ARG_VERBOSE",),
        dest="verbosity",
        reload=True,
        kind=Switch(on=EVERYTHING, off=None),
        default=3,
        help=f"Log everything, and add __verbose to OpenAI's answers; same as --verbosity {EVERYTHING}.",
    ),
    flag(
        names=("-lv", "--log-verbosity", "--verbosity"),
        env=("LLAMA_ARG_LOG_VERBOSITY",),
        dest="verbosity",
        reload=True,
        kind=Int(0, I32_MAX),
        default=3,
        help="Verbosity; 0: critical, 1: errors, 2: warnings, 3: info, 4 and above: debug.",
    ),
    flag(
        names=("--log-prompts", "--verbose-prompt"),
        env=("LLAMA_ARG_LOG_PROMPTS", "LLAMA_ARG_VERBOSE_PROMPT"),
        dest="log_prompts",
        kind=Switch(),
        default=False,
        help="Log each prompt that is generated from, up to 4096 characters of it. Prompts are private: without this no"
        " log has any.",
    ),
    flag(
        names=("--log-enable",),
        off=("--log-disable",),
        env=("LLAMA_ARG_LOG_ENABLE",),
        dest="log_enabled",
        kind=Switch(),
        default=True,
        help="Enable the log.",
    ),
    flag(
        names=("--log-file",),
        env=("LLAMA_ARG_LOG_FILE",),
        dest="log_file",
        kind=File(optional=True),
        default=None,
        help="Log to this file as well. SIGUSR1 opens it again, after it was renamed.",
    ),
    flag(
        names=("--log-append",),
        dest="log_file_mode",
        kind=Switch(on="append", off=None),
        default="truncate",
        help="Append to the log file instead of truncating it.",
    ),
    flag(
        names=("--log-new",),
        dest="log_file_mode",
        kind=Switch(on="new", off=None),
        default="truncate",
        help="Start a new log file each time, named NAME.ID.log.",
    ),
    flag(
        names=("--log-format",),
        env=("LLAMA_ARG_LOG_FORMAT",),
        dest="log_format",
        kind=Choice(("auto", "json", "text")),
        default="auto",
        metavar="FORMAT",
        help="One JSON object per line, or plain text; auto: text on a terminal and in the systemd journal, else JSON.",
    ),
    flag(
        names=("--log-jsonl",),
        off=("--no-log-jsonl",),
        env=("LLAMA_ARG_LOG_JSONL",),
        dest="log_format",
        kind=Switch(on="json", off="text"),
        default="auto",
        help="Same as --log-format json.",
    ),
    flag(
        names=("--log-colors",),
        env=("LLAMA_ARG_LOG_COLORS", "LLAMA_LOG_COLORS"),
        dest="log_colors",
        kind=ON_OFF_AUTO,
        default="auto",
        bare="on",
        metavar="on|off|auto",
        help="Colours in text lines; auto: on a terminal. Without a value: on.",
    ),
    flag(
        names=("--log-prefix",),
        off=("--no-log-prefix",),
        env=("LLAMA_ARG_LOG_PREFIX", "LLAMA_LOG_PREFIX"),
        dest="log_prefix",
        kind=Switch(),
        default=True,
        help="Prefix text lines with the level.",
    ),
    flag(
        names=("--log-timestamps",),
        off=("--no-log-timestamps",),
        env=("LLAMA_ARG_LOG_TIMESTAMPS", "LLAMA_LOG_TIMESTAMPS"),
        dest="log_timestamps",
        kind=Switch(on="on", off="off"),
        default="auto",
        help="Prefix text lines with the time; auto: not in the systemd journal, which has its own.",
    ),
    flag(
        names=("--log-test",),
        env=("LLAMA_ARG_LOG_TEST",),
        dest="log_test",
        kind=Switch(),
        default=False,
        help="Log a line of each level and exit.",
    ),
    flag(
        names=("--log-prompts-dir",),
        env=("LLAMA_ARG_LOG_PROMPTS_DIR",),
        dest="log_prompts_dir",
        kind=File(optional=True),
        default=None,
        secret=True,
        help="Write each prompt to a file in this directory, which is created. Prompts are private: for debugging"
        " only.",
    ),
)
