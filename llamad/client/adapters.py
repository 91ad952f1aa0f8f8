"""The LoRA adapters as the front sees them: their names and scales, and the sets of adapters that tasks use.

Event loop only. Outlives engines. A set is identified by the digests of its files and their scales, so that a state
computed by one set is never used with another, in this process or in a file.
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
    """A reference to an open adapter. The list of adapters has one, and so has everything that uses the adapter; the
    engine closes the adapter when the last reference is gone."""

    __slots__ = ("_on_unused", "id")

    def __init__(self, id: int, on_unused: Callable[[int], None]) -> None:
        self.id = id
        self._on_unused = on_unused  # may be called on any thread

    def __del__(self) -> None:
        self._on_unused(self.id)


class Adapter(msgspec.Struct):
    file: AdapterFile
    info: AdapterInfo
    scale: float  # for requests that do not choose adapters
    held: Held | None = None  # None: the adapter is never closed


class Use(msgspec.Struct, frozen=True):
    """An adapter and its scale, which is not 0."""

    info: AdapterInfo
    scale: float
    held: Held | None = None


class AdapterSet(msgspec.Struct, frozen=True):
    """The adapters that compute a prompt and its response, in the form of a task's command. The first n_base tokens are
    computed without the activated adapter, which is the last of `uses`."""

    number: int = 0
    uses: tuple[tuple[int, float], ...] = ()
    base: int = 0
    n_base: int = 0
    n_base_uses: int = 0
    held: tuple[Held | None, ...] = ()


NO_ADAPTERS = AdapterSet()


class UnknownAdapter(Exception):
    """There is no adapter with this number or name."""


class TwoInvocations(Exception):
    """A request uses more than one activated adapter."""


def digest(uses: Iterable[Use]) -> bytes:
    """Return the digest of a set, which does not depend on the order."""
    parts = sorted(use.info.digest + struct.pack("<f", use.scale) for use in uses)
    return hashlib.sha256(b"".join(parts)).digest()


def number_of(digest: bytes) -> int:
    """Return the number that this process and its engines use for the set with this digest."""
    return int.from_bytes(digest[:8], "little") or 1


def _last(prompt: bytes, ids: tuple[int, ...]) -> int:
    """Return the index of the last occurrence of `ids` in the prompt, or -1 if there is none."""
    sequence = struct.pack(f"<{len(ids)}i", *ids)
    at = prompt.rfind(sequence)
    while at > 0 and at % 4:  # it begins within an id
        at = prompt.rfind(sequence, 0, at + len(sequence) - 1)
    return at // 4 if at >= 0 else -1


class Adapters:
    """All adapters that requests can use. With `apply`, adapters without a name are used for all requests."""

    def __init__(self, files: Sequence[AdapterFile], apply: bool) -> None:
        self._files = files
        self._apply = apply
        self._known: dict[int, Adapter] = {}
        # Digests and adapters of the sets that were used, by number; the least recently used first.
        self._sets: dict[int, tuple[bytes, tuple[AdapterInfo, ...]]] = {}

    def opened(self, infos: Iterable[AdapterInfo]) -> None:
        """Add the adapters that an engine has opened at its start."""
        for info in infos:
            file = self._files[info.id]
            self._known[info.id] = Adapter(file, info, file.scale if self._apply and not file.name else 0.0)

    def add(self, file: AdapterFile, info: AdapterInfo, held: Held) -> None:
        """Add an adapter that was loaded at run time."""
        self._known[info.id] = Adapter(file, info, 0.0, held)

    def remove(self, number: int) -> None:
        """Remove an adapter from the list. Requests that already use it go on."""
        self._known.pop(number, None)

    def list(self) -> list[Adapter]:
        return list(self._known.values())

    def named(self, name: str) -> Adapter:
        """Return the adapter with this name. Raises UnknownAdapter."""
        for one in self._known.values():
            if one.file.name == name:
                return one
        raise UnknownAdapter(name)

    def scales(self, chosen: Mapping[int, float] | None) -> dict[int, float]:
        """Return the scale of every adapter by its number: the chosen scale, or 0 if the adapter was not chosen. If
        `chosen` is None, these are the server's own scales."""
        return {
            number: one.scale if chosen is None else chosen.get(number, 0.0)
            for number, one in self._known.items()
        }

    def choose(self, scales: Sequence[tuple[int, float]]) -> dict[int, float]:
        """Check scales for the requests to come and return them as a dict. Their set is registered, so that a state
        that it computed earlier can be restored. Raises UnknownAdapter."""
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
        """Return the adapters of a request: with its own scales, or those of scales(chosen) if it has none, and the
        adapter that it names. Raises UnknownAdapter."""
        if scales is None and not self._known:
            return ()
        by_number = self.scales(chosen) if scales is None else dict(scales)
        self._check(by_number)
        if named is not None and (scales is None or named.info.id not in by_number):
            by_number[named.info.id] = named.file.scale
        return tuple(
            Use(self._known[number].info, scale, self._known[number].held)
            for number, scale in sorted(by_number.items())
            if scale
        )

    def chosen(self, uses: Sequence[Use], prompt: bytes) -> AdapterSet:
        """Return the set that computes this prompt (int32 ids). An activated adapter acts from its last invocation on;
        if the prompt has none, it does not act. Raises TwoInvocations."""
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
        set_digest = digest(uses)
        number = number_of(set_digest)
        self._sets.pop(number, None)
        self._sets[number] = set_digest, tuple(use.info for use in uses)
        if len(self._sets) > SETS_MAX:
            del self._sets[next(iter(self._sets))]
        return number

    def digest_of(self, number: int) -> bytes | None:
        """Return the digest of a set that was used, or None if too many others were used since."""
        known = self._sets.get(number)
        return known[0] if known is not None else None

    def number_for(self, set_digest: bytes) -> int:
        """Return the number of the set with this digest. A set that no request has used yet is known if it is the
        server's own set, a single adapter with its own scale, or both together. Raises UnknownAdapter."""
        known, infos = self._sets.get(number_of(set_digest), (b"", ()))
        loaded = {one.info.digest for one in self._known.values()}
        if known == set_digest and all(info.digest in loaded for info in infos):
            return number_of(set_digest)
        for one in (None, *self._known.values()):
            for uses in (self.uses(None, one), (Use(one.info, one.file.scale),) if one is not None else ()):
                if uses and digest(uses) == set_digest:
                    return self._number(uses)
        raise UnknownAdapter

    def _check(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number not in self._known:
                raise UnknownAdapter(str(number))
