"""The types of the options that are not a number, a string or a switch.

Pure data, read from any thread. api/request reads them from JSON, flags/ from the command line. Each is a class of its
own, so that the request decoder can tell them apart.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from llamad.options.option import INT32_MAX


class Samplers(tuple[str, ...]):
    """Sampler names, in order."""

    __slots__ = ()


class Stops(tuple[str, ...]):
    """Strings that end an answer; none is empty."""

    __slots__ = ()


class SequenceBreakers(tuple[str, ...]):
    """Strings that end a repetition, for DRY."""

    __slots__ = ()


class LogitBias(NamedTuple):
    """A token and the bias added to its logit; -inf forbids it."""

    token: int
    bias: float


class Biases:
    """Biases by token. They are packed, because a waiting request may have 65,536 of them. Immutable."""

    __slots__ = ("_json", "tokens", "values")

    def __init__(self, pairs: Iterable[LogitBias] = ()) -> None:
        pairs = tuple(pairs)
        self.tokens = array("i", [token for token, _ in pairs]).tobytes()  # int32
        self.values = array("d", [bias for _, bias in pairs]).tobytes()  # float64, as they are echoed
        self._json: bytes | None = None

    @classmethod
    def packed(cls, tokens: array[int], values: array[float]) -> Biases:
        """Return the biases of an array of int32 tokens and one of as many float64 values."""
        biases = cls()
        biases.tokens, biases.values = tokens.tobytes(), values.tobytes()
        return biases

    def __len__(self) -> int:
        return len(self.tokens) // 4

    def __iter__(self) -> Iterator[LogitBias]:
        return map(LogitBias, memoryview(self.tokens).cast("i"), memoryview(self.values).cast("d"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Biases | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self.tokens, self.values))

    @property
    def json(self) -> bytes:
        """The JSON that results echo. It is made once, because there may be many results."""
        if self._json is None:
            self._json = msgspec.json.encode(
                [{"token": token, "bias": None if bias == -math.inf else bias} for token, bias in self]
            )
        return self._json

    @property
    def n_bytes(self) -> int:
        """The memory that the biases take."""
        return len(self.tokens) + len(self.values) + len(self._json or b"")


class ResponseFields(tuple[str, ...]):
    """Paths of the fields that a response should have. If it is empty, the response has all fields."""

    __slots__ = ()


class AdapterScales(tuple[tuple[int, float], ...]):
    """LoRA adapters by number, each with its scale. All others have the scale 0."""

    __slots__ = ()


class TokenIds(bytes):
    """Token ids as int32."""


class UntokenizedText(TokenIds):
    """A text that a worker has yet to tokenize. Its token ids are empty."""

    text: str

    def __new__(cls, text: str) -> UntokenizedText:
        untokenized = super().__new__(cls)
        untokenized.text = text
        return untokenized


class SystemPrompt:
    """`anti_prompt` and `assistant_name` are for clients, which get them from /props; the server does not use them.

    Immutable."""

    __slots__ = ("anti_prompt", "assistant_name", "prompt", "tokens")

    def __init__(
        self, prompt: str = "", anti_prompt: str = "", assistant_name: str = "", tokens: bytes = b""
    ) -> None:
        self.prompt = prompt
        self.anti_prompt = anti_prompt
        self.assistant_name = assistant_name
        self.tokens = tokens  # ids as int32, with BOS if the model needs it; empty until tokenized

    @property
    def n_tokens(self) -> int:
        return len(self.tokens) // 4

    def kept(self, n_keep: int, add_bos: bool) -> int:
        """Return the n_keep for the engine, which does not count BOS: that of a request plus the system prompt, which
        is always kept."""
        if n_keep < 0 or not self.tokens:
            return n_keep
        return min(self.n_tokens - add_bos + n_keep, INT32_MAX)

    def json(self) -> dict[str, str]:
        return {
            "prompt": self.prompt,
            "anti_prompt": self.anti_prompt,
            "assistant_name": self.assistant_name,
        }
