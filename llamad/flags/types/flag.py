"""The type of a flag: its names, variable, kind, default, group, help, and whether its feature is available.

Pure data, read from any thread. Must not parse anything.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

import msgspec

from llamad.flags.types.kinds import Kind, Switch

ENV_PREFIX = "LLAMA_ARG_"


def variable_of(name: str) -> str:
    """Return the environment variable of a flag: LLAMA_ARG_CTX_SIZE for --ctx-size."""
    return ENV_PREFIX + name.lstrip("-").replace("-", "_").upper()


class Action(Enum):
    """The action that a command line requests."""

    RUN = "run"
    HELP = "help"
    VERSION = "version"
    COMPLETION = "completion"
    DEVICES = "devices"
    MODELS = "models"


class Ready(msgspec.Struct, frozen=True):
    """The flag works."""


class Later(msgspec.Struct, frozen=True):
    """The flag needs a feature that is not available yet. It is a start-up error unless it has its default or a neutral
    value."""

    feature: str


class Inert(msgspec.Struct, frozen=True):
    """The flag has no effect in llamad (a hint, a limit, a flag of another tool). It is accepted, so that copied
    commands work, with a warning unless it has its default or a neutral value."""

    reason: str


Status = Ready | Later | Inert
READY = Ready()


class Request(Kind[Action], frozen=True):
    """A flag that does something other than run the server: the help, the version, a list."""

    action: Action

    takes: ClassVar[int] = 0
    metavar: ClassVar[str] = ""

    def read(self, text: str) -> Action:
        raise ValueError(f"takes no value, not '{text}'")


class Preset(Kind[bool], frozen=True):
    """A flag that stands for several others. Flags after it on the command line take precedence over them."""

    arguments: tuple[str, ...]

    takes: ClassVar[int] = 0
    metavar: ClassVar[str] = ""

    def read(self, text: str) -> bool:
        raise ValueError(f"takes no value, not '{text}'")


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. Several rows may set the same `dest`; then the last on the command line wins."""

    names: tuple[str, ...]  # every spelling; the last one is shown
    kind: Kind[Any]
    # The same in every row with the same dest. For a Later or Inert flag, the value for what llamad does today.
    default: Any = None
    default_shown: str = ""  # how the default is described, if the value does not say it
    dest: str = ""  # the field of Settings; empty in a row of `also`
    group: str = ""  # the title in the help; empty for a Later or Inert flag
    help: str = ""  # empty for a Later or Inert flag, of which only the name is listed
    off: tuple[str, ...] = ()  # every spelling of a switch's negation
    env: tuple[str, ...] = ()  # the first that is set wins
    metavar: str = ""
    bare: str | None = None  # the value if the flag is given without one
    status: Status = READY
    neutral: tuple[Any, ...] = ()  # other values of a Later or Inert flag that need nothing more
    repeat: bool = False  # repeated flags are concatenated
    secret: bool = False  # the value is never shown
    escapes: bool = False  # --escape applies to its texts
    reload: bool = False  # SIGHUP applies a change of it in --env-file
    also: tuple[Flag, ...] = ()  # other flags of the same setting; empty in the table

    @property
    def title(self) -> str:
        """The spelling that messages and tables use."""
        return (self.names or self.off)[-1]

    @property
    def env_off(self) -> tuple[str, ...]:
        """Variables that set the negation, as llama-server derives them: LLAMA_ARG_NO_X beside LLAMA_ARG_X."""
        if not isinstance(self.kind, Switch) or not self.off:
            return ()
        return tuple(
            f"{ENV_PREFIX}NO_{name[len(ENV_PREFIX) :]}" for name in self.env if name.startswith(ENV_PREFIX)
        )

    @property
    def shown_metavar(self) -> str:
        value = self.metavar or self.kind.metavar
        return f"[{value}]" if self.bare is not None and value else value


def placeholder(*names: str, kind: Kind[Any], status: Later | Inert, **rest: Any) -> Flag:
    """Return a flag that sets nothing. It has the dest of its last name; the rest are fields of Flag."""
    return Flag(names=names, dest=names[-1].strip("-").replace("-", "_"), kind=kind, status=status, **rest)
