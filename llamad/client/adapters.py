"""Owns the LoRA adapters as the front sees them: their names and scales, and the sets of them that tasks use.

Event loop only. Outlives engines. A set is told by the files' digests and their scales, so that what one computed is
never taken for another's, in this process or in a file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence

import msgspec

from llamad.flags.types.values import AdapterFile
from llamad.protocol.model_info import AdapterInfo

DIGESTS_MAX = 4096


class Adapter(msgspec.Struct):
    file: AdapterFile
    info: AdapterInfo
    scale: float  # for requests that say nothing of adapters


class Use(msgspec.Struct, frozen=True):
    """An adapter and its scale, which is not 0."""

    info: AdapterInfo
    scale: float


class AdapterSet(msgspec.Struct, frozen=True):
    """What computes a prompt and its answer, as a task's command has it. The first n_base tokens are computed without
    the activated adapter, which is the last of `uses`."""

    number: int = 0
    uses: tuple[tuple[int, float], ...] = ()
    base: int = 0
    n_base: int = 0
    n_base_uses: int = 0


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
        self._digests: dict[int, bytes] = {}  # of sets that were used, by number; the oldest use first

    def opened(self, infos: Iterable[AdapterInfo]) -> None:
        """An engine has them. Scales that were set before stay."""
        for info in infos:
            known = self._known.get(info.id)
            file = self._files[info.id]
            scale = file.scale if self._apply and not file.name else 0.0
            self._known[info.id] = Adapter(file, info, known.scale if known is not None else scale)

    def list(self) -> list[Adapter]:
        return list(self._known.values())

    def named(self, name: str) -> Adapter:
        """Raises UnknownAdapter."""
        for one in self._known.values():
            if one.file.name == name:
                return one
        raise UnknownAdapter(name)

    def set_scales(self, scales: Sequence[tuple[int, float]]) -> None:
        """For requests from now on; those that are not named get 0. Raises UnknownAdapter."""
        wanted = dict(scales)
        self._check(wanted)
        for number, one in self._known.items():
            one.scale = wanted.get(number, 0.0)

    def uses(self, scales: Sequence[tuple[int, float]], named: Adapter | None = None) -> tuple[Use, ...]:
        """Those of a request: its own scales, else everybody's; beside them the one that it names. Raises
        UnknownAdapter."""
        wanted = dict(scales) if scales else {number: one.scale for number, one in self._known.items()}
        self._check(wanted)
        if named is not None and (not scales or named.info.id not in wanted):
            wanted[named.info.id] = named.file.scale
        return tuple(
            Use(self._known[number].info, scale) for number, scale in sorted(wanted.items()) if scale
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
        )

    def _number(self, uses: Sequence[Use]) -> int:
        if not uses:
            return 0
        found = digest(uses)
        number = number_of(found)
        self._digests.pop(number, None)
        self._digests[number] = found
        if len(self._digests) > DIGESTS_MAX:
            del self._digests[next(iter(self._digests))]
        return number

    def digest_of(self, number: int) -> bytes | None:
        """Of a set that was used; None: too many others were since."""
        return self._digests.get(number)

    def number_for(self, found: bytes) -> int:
        """The set of this digest. One that no request has used yet is known if it is everybody's, or a single adapter
        with its own scale beside it or alone. Raises UnknownAdapter."""
        if self._digests.get(number_of(found)) == found:
            return number_of(found)
        for one in (None, *self._known.values()):
            for uses in (self.uses((), one), (Use(one.info, one.file.scale),) if one is not None else ()):
                if uses and digest(uses) == found:
                    return self._number(uses)
        raise UnknownAdapter

    def _check(self, wanted: Iterable[int]) -> None:
        for number in wanted:
            if number not in self._known:
                raise UnknownAdapter(str(number))
