"""Owns the flags about the program itself. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Action, Flag, Request
from llamad.flags.types.kinds import File, Switch

flag = partial(Flag, group="General")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("-h", "--usage", "--help"),
        dest="action",
        kind=Request(Action.HELP),
        default=Action.RUN,
        help="Print this help and exit.",
    ),
    flag(
        names=("--version",),
        dest="action",
        kind=Request(Action.VERSION),
        default=Action.RUN,
        help="Print the versions of llamad and llama.cpp and exit.",
    ),
    flag(
        names=("--completion-bash",),
        dest="action",
        kind=Request(Action.COMPLETION),
        default=Action.RUN,
        help="Print a completion script for bash and exit; use it with: source <(llamad --completion-bash)",
    ),
    flag(
        names=("--list-devices",),
        dest="action",
        kind=Request(Action.DEVICES),
        default=Action.RUN,
        help="Print the devices that --device can name and exit.",
    ),
    flag(
        names=("--env-file",),
        env=("LLAMA_ARG_ENV_FILE",),
        dest="env_file",
        kind=File(optional=True),
        default=None,
        secret=True,
        help="File with variables of this list, one NAME=value per line, as systemd's EnvironmentFile= has them; flags"
        " and the environment take precedence. Read again on SIGHUP.",
    ),
    flag(
        names=("--llama-api-only",),
        env=("LLAMA_ARG_LLAMA_API_ONLY",),
        dest="llama_api_only",
        kind=Switch(),
        default=False,
        help="Use only llama.cpp's public API, not its internals: no early sampling, padding, filler tokens or"
        " separate prefill, no tokenizer or tensor placement of llamad's own. Slower; for troubleshooting.",
    ),
    flag(
        names=("-e", "--escape"),
        off=("--no-escape",),
        env=("LLAMA_ARG_ESCAPE",),
        dest="escape",
        kind=Switch(),
        default=True,
        help=r"Process escapes (\n, \t, \xHH, ...) in --dry-sequence-breaker.",
    ),
)
