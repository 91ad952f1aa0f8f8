"""The whole table of flags: all groups together, indexed by name and by variable.

Built when first imported; the import fails if the table contradicts itself. Must not parse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from llamad.flags.groups import (
    adapters,
    cache_disk,
    chat,
    context,
    cpu,
    draft_model,
    embedding,
    general,
    gpu,
    grammar,
    hub,
    inert,
    limits,
    logs,
    many_models,
    model,
    multimodal,
    rope,
    sampling,
    server,
    slots,
    speculative,
)
from llamad.flags.types.flag import Flag, Preset, Ready, Request
from llamad.flags.types.kinds import Many, Switch
from llamad.flags.types.model_files import Overrides, Scaled
from llamad.flags.types.placement import Placements


class Table:
    """Flags and their indexes; `by_name` and `by_env` also say whether the spelling is a negation."""

    def __init__(self, flags: Iterable[Flag]) -> None:
        self.flags = tuple(flags)
        by_name: dict[str, tuple[Flag, bool]] = {}
        by_env: dict[str, tuple[Flag, bool]] = {}
        defaults: dict[str, object] = {}
        for flag in self.flags:
            self._check(flag)
            for name, entry in self._spellings(flag.names, flag.off, flag):
                if by_name.setdefault(name, entry) is not entry:
                    raise ValueError(f"two flags are named {name}")
            for name, entry in self._spellings(flag.env, flag.env_off, flag):
                if by_env.setdefault(name, entry) is not entry:
                    raise ValueError(f"two flags read {name}")
            if defaults.setdefault(flag.dest, flag.default) != flag.default:
                raise ValueError(f"two defaults of {flag.dest}")
        self.by_name: Mapping[str, tuple[Flag, bool]] = MappingProxyType(by_name)
        self.by_env: Mapping[str, tuple[Flag, bool]] = MappingProxyType(by_env)
        # The flags that set a field of Settings.
        self.settings = tuple(
            flag
            for flag in self.flags
            if isinstance(flag.status, Ready) and not isinstance(flag.kind, Request | Preset)
        )

    def groups(self) -> dict[str, list[Flag]]:
        """Return the flags that work, by the titles of the help."""
        groups: dict[str, list[Flag]] = {}
        for flag in self.flags:
            if isinstance(flag.status, Ready):
                groups.setdefault(flag.group, []).append(flag)
        return groups

    @staticmethod
    def _spellings(
        on: tuple[str, ...], off: tuple[str, ...], flag: Flag
    ) -> Iterable[tuple[str, tuple[Flag, bool]]]:
        yield from ((name, (flag, False)) for name in on)
        yield from ((name, (flag, True)) for name in off)

    @staticmethod
    def _check(flag: Flag) -> None:
        if not flag.names and not flag.off:
            raise ValueError(f"{flag.dest} has no name")
        if flag.off and not isinstance(flag.kind, Switch):
            raise ValueError(f"{flag.title} has a negation but is not a switch")
        if flag.repeat and not isinstance(flag.kind, Many | Overrides | Placements | Scaled):
            raise ValueError(f"{flag.title} is repeated but is not a list")
        if flag.neutral and isinstance(flag.status, Ready):
            raise ValueError(f"{flag.title} has neutral values but works")
        if isinstance(flag.status, Ready) and not flag.help:
            raise ValueError(f"{flag.title} has no help")


TABLE = Table(
    general.FLAGS
    + model.FLAGS
    + hub.FLAGS
    + many_models.FLAGS
    + context.FLAGS
    + slots.FLAGS
    + cache_disk.FLAGS
    + speculative.FLAGS
    + draft_model.FLAGS
    + limits.REQUEST_FLAGS
    + sampling.FLAGS
    + grammar.FLAGS
    + chat.FLAGS
    + server.FLAGS
    + limits.HTTP_FLAGS
    + logs.FLAGS
    + cpu.FLAGS
    + gpu.FLAGS
    + rope.FLAGS
    + embedding.FLAGS
    + adapters.FLAGS
    + multimodal.FLAGS
    + inert.FLAGS
)
