"""The flags about the program itself. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.flag import Action, Flag, Request
from llamad.flags.types.kinds import File

TITLE = "General"


class General:
    """Settings of the program itself."""

    env_file: str | None = flag(
        kind=File(),
        default=None,
        secret=True,
        help="File with variables of this list, one NAME=value per line, as systemd's EnvironmentFile= has them; flags"
        " and the environment take precedence. Read again on SIGHUP.",
    )


request = partial(Flag, group=TITLE, dest="action", default=Action.RUN)

FLAGS = (
    request(
        names=("-h", "--usage", "--help"),
        kind=Request(Action.HELP),
        help="Print this help and exit.",
    ),
    request(
        names=("--version",),
        kind=Request(Action.VERSION),
        help="Print the versions of llamad and llama.cpp and exit.",
    ),
    request(
        names=("--completion-bash",),
        kind=Request(Action.COMPLETION),
        help="Print a completion script for bash and exit; use it with: source <(llamad --completion-bash)",
    ),
    request(
        names=("--list-devices",),
        kind=Request(Action.DEVICES),
        help="Print the devices that --device can name and exit.",
    ),
    *flags_of(General, TITLE),
)
