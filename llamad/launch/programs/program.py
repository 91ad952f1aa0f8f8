"""What a program needs so that it uses a llamad. Pure data; must not read the user's configuration."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

# Programs want to be given a key even if the server has none.
NO_KEY = "none"
# Long prompts take minutes on a CPU. No program should give up before the server does.
PATIENCE_SECONDS = 3600
# The tokens of an answer, as a part of the context: the rest must have room for the conversation.
ANSWER_PART = 4
ANSWER_MAX = 32000


class Served(msgspec.Struct, frozen=True):
    """The model that a program is to use. `n_ctx` is the context of one conversation in tokens, or 0 if unknown;
    `n_reported` is the one in whose scale Anthropic's dialect counts (--report-context), or 0 if it is the same.
    `no_proxy` are the hosts that are reached without a proxy, or empty if the user's proxies may be used."""

    url: str
    model: str
    n_ctx: int
    n_reported: int = 0
    no_proxy: str = ""

    @property
    def proxy_variables(self) -> dict[str, str]:
        """Return the variables that keep requests to this server off a proxy."""
        return dict.fromkeys(("NO_PROXY", "no_proxy"), self.no_proxy) if self.no_proxy else {}

    @property
    def n_answer_max(self) -> int:
        return min(ANSWER_MAX, self.n_ctx // ANSWER_PART)


class Setup(msgspec.Struct, frozen=True):
    """What to set before a program starts. Nothing of it holds a key: `keys` are the variables that get it."""

    environ: dict[str, str]
    keys: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()  # variables of the user that would win over these
    arguments: tuple[str, ...] = ()  # before those of the user
    files: dict[str, str] = {}  # the content of temporary files, by the variables that get their paths


class Program(msgspec.Struct, frozen=True):
    """`install` is the command with which the program can be installed. A server that is started for the program gets
    `report_context` as --report-context, unless it is 0."""

    name: str
    install: str
    setup: Callable[[Served], Setup]
    report_context: int = 0
