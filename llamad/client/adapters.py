"""Owns the LoRA adapters as the front sees them: their names and scales, and the sets of them that tasks use.

Event loop only. Outlives engines. A set is told by the files' digests and their scales, so that what one computed is
never taken for another's, in this process or in a file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from llamad.flags.types.values import AdapterFile
from llamad.protocol.model_info import AdapterInfo

SETS_MAX = 4096


class Held:
    """The engine closes an adapter with the last reference to this; the list has one, and all that use it."""

    __slots__ = ("_on_unused", "id")

    def __init__(self, id: int, on_unused: Callable[[int], None]) -> None:
        self.id = id
        self._on_unused = on_unused  # any thread: the last reference may go anywhere

    def __del__(self) -> None:
        self._on_unused(self.id)


class Adapter(msgspec.Struct):
    file: AdapterFile
    info: AdapterInfo
    scale: float  # the server's own, for requests that say nothing of adapters
    held: Held | None = None  # None: it is never closed


class Use(msgspec.Struct, frozen=True):
    """An adapter and its scale, which is not 0."""

    info: AdapterInfo
    scale: float
    held: Held | None = None


class AdapterSet(msgspec.Struct, frozen=True):
    """What computes a prompt and its answer, as a task's command has it. The first n_base tokens are computed without
    the activated adapter, which is the last of `uses`."""

    number: int = 0
    uses: tuple[tuple[int, float], ...] = ()
    base: int = 0
    n_base: int = 0
    n_base_uses: int = 0
    held: tuple[Held | None, ...] = ()


NO_ADAPTERS = AdapterSet()


class UnknownAdapter(Exception):
    """There is none of this number or name."""


class TwoInvocations(Exception):
    """More than one activated adapter at a time."""


def digest(uses: Iterable[Use]) -> bytes:
    """Of a set, whatever the order."""
    parts = sorted(use.info.digest + struct.pack("<f", use.scale) for use in uses)
    return hashlib.sha256(b"".join(parts)).digest()


def number_of(digest: bytes) -> int:
    """The number of a set with adapters in this process and its engines."""
    return int.from_bytes(digest[:8], "little") or 1


def _last(prompt: bytes, wanted: tuple[int, ...]) -> int:
    """Where the sequence of ids begins for the last time; -1: nowhere."""
    sequence = struct.pack(f"<{len(wanted)}i", *wanted)
    at = prompt.rfind(sequence)
    while at > 0 and at % 4:  # it begins within an id
        at = prompt.rfind(sequence, 0, at + len(sequence) - 1)
    return at // 4 if at >= 0 else -1


class Adapters:
    """`apply`: those without a name act for all requests."""

    def __init__(self, files: Sequence[AdapterFile], apply: bool) -> None:
        self._files = files
        self._apply = apply
        self._known: dict[int, Adapter] = {}
        # Of sets that were used, by number, with their adapters; the oldest use first.
        self._sets: dict[int, tuple[bytes, tuple[AdapterInfo, ...]]] = {}

    def opened(self, infos: Iterable[AdapterInfo]) -> None:
        """An engine has them."""
        for info in infos:
            file = self._files[info.id]
            self._known[info.id] = Adapter(file, info, file.scale if self._apply and not file.name else 0.0)

    def add(self, file: AdapterFile, info: AdapterInfo, held: Held) -> None:
        """One that was loaded at run time."""
        self._known[info.id] = Adapter(file, info, 0.0, held)

    def remove(self, number: int) -> None:
        """No request finds it any more; those that use it go on."""
        self._known.pop(number, None)

    def list(self) -> list[Adapter]:
        return list(self._known.values())

    def named(self, name: str) -> Adapter:
        """Raises UnknownAdapter."""
        for one in self._known.values():
            if one.file.name == name:
                return one
        raise UnknownAdapter(name)

    def scales(self, chosen: Mapping[int, float] | None) -> dict[int, float]:
        """Return the scale of every adapter by its number: the chosen one, 0 for those that were not chosen. None: the
        server's own."""
        return {
            number: one.scale if chosen is None else chosen.get(number, 0.0)
            for number, one in self._known.items()
        }

    def choose(self, scales: Sequence[tuple[int, float]]) -> dict[int, float]:
        """Return scales that requests from now on are to have; a state that they computed before is known by then.
        Raises UnknownAdapter."""
        chosen = dict(scales)
        self._check(chosen)
        self._number(self.uses(None, None, chosen))
        return chosen

    def uses(
        self,
        scales: Sequence[tuple[int, float]] | None,
        named: Adapter | None = None,
        chosen: Mapping[int, float] | None = None,
    ) -> tuple[Use, ...]:
        """Return the adapters of a request: with its own scales, or those of scales(chosen) if it has None; beside them
        the one that it names. Raises UnknownAdapter."""
        wanted = self.scales(chosen) if scales is None else dict(scales)
        self._check(wanted)
        if named is not None and (scales is None or named.info.id not in wanted):
            wanted[named.info.id] = named.file.scale
        return tuple(
            Use(self._known[number].info, scale, self._known[number].held)
            for number, scale in sorted(wanted.items())
            if scale
        )

    def chosen(self, uses: Sequence[Use], prompt: bytes) -> AdapterSet:
        """What computes this prompt (int32 ids). An activated adapter acts from its last invocation on, or not at all.
        Raises TwoInvocations."""
        if not uses:
            return NO_ADAPTERS
        plain = [use for use in uses if not use.info.invocation]
        activated = [use for use in uses if use.info.invocation]
        if len(activated) > 1:
            raise TwoInvocations
        at = _last(prompt, activated[0].info.invocation) if activated else -1
        acting = [*plain, *activated] if at >= 0 else plain
        return AdapterSet(
            number=self._number(acting),
            uses=tuple((use.info.id, use.scale) for use in acting),
            base=self._number(plain) if at >= 0 else 0,
            n_base=max(at, 0),
            n_base_uses=len(plain) if at >= 0 else 0,
            held=tuple(use.held for use in acting),
        )

    def _number(self, uses: Sequence[Use]) -> int:
        if not uses:
            return 0
        found = digest(uses)
        number = number_of(found)
        self._sets.pop(number, None)
        self._sets[number] = found, tuple(use.info for use in uses)
        if len(self._sets) > SETS_MAX:
            del self._sets[next(iter(self._sets))]
        return number

    def digest_of(self, number: int) -> bytes | None:
        """Of a set that was used; None: too many others were since."""
        known = self._sets.get(number)
        return known[0] if known is not None else None

    def number_for(self, found: bytes) -> int:
        """The set of this digest. One that no request has used yet is known if it is the server's own, or a single
        adapter with its own scale beside it or alone. Raises UnknownAdapter."""
        known, infos = self._sets.get(number_of(found), (b"", ()))
        loaded = {one.info.digest for one in self._known.values()}
        if known == found and all(info.digest in loaded for info in infos):
            return number_of(found)
        for one in (None, *self._known.values()):
            for uses in (self.uses(None, one), (Use(one.info, one.file.scale),) if one is not None else ()):
                if uses and digest(uses) == found:
                    return self._number(uses)
        raise UnknownAdapter

    def _check(self, wanted: Iterable[int]) -> None:
        for number in wanted:
            if number not in self._known:
                raise UnknownAdapter(str(number))
