"""The prompts: cut out of texts with an exact number of tokens, or random token ids; the same for every program.

Runs in the bench's process before anything is timed; a running server tokenizes. Each prompt begins at another position
of the text, so that no prefix cache helps unless a scenario needs it.
"""

from __future__ import annotations

import random
import re
import string
from pathlib import Path
from typing import Any

from bench.client import Client
from bench.errors import BenchError

TEXTS = Path(__file__).with_name("texts")
REAL, MADE_UP, IDS = KINDS = ("real", "made-up", "ids")
CHAT = "/v1/chat/completions"
# These ids are words or parts of words in any vocabulary of more than 30,000 tokens.
ID_RANGE = range(1_000, 30_000)
COINED = 0.1  # the share of words in a made-up text that are in no list
N_MADE_UP_WORDS = 6_000
SENTENCE_WORDS = 12
TRIES, FILLERS_MAX, FILLER = 4, 16, " a"

Prompt = str | list[int]


def real_text() -> str:
    return "".join(f"{path.read_text(encoding='utf-8').strip()}\n\n" for path in sorted(TEXTS.glob("*.txt")))


def words() -> list[str]:
    """Return the different words of the prose, in alphabetical order."""
    return sorted(set(re.findall(r"[a-z]{2,}", (TEXTS / "prose.txt").read_text(encoding="utf-8"))))


def coin(rng: random.Random) -> str:
    """Return a new word, like a name or a typing error."""
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9)))


def with_coined(text: str, share: float, rng: random.Random) -> str:
    """Return the text with this share of its words replaced by new ones."""
    return re.sub(r"[A-Za-z]+", lambda word: coin(rng) if rng.random() < share else word[0], text)


def made_up_text(seed: int, coined: float) -> str:
    """Return random words, with a full stop now and then."""
    rng = random.Random(seed)
    chosen = rng.choices(words(), k=N_MADE_UP_WORDS)
    chosen[SENTENCE_WORDS - 1 :: SENTENCE_WORDS] = [
        f"{word}." for word in chosen[SENTENCE_WORDS - 1 :: SENTENCE_WORDS]
    ]
    return with_coined(" ".join(chosen), coined, rng)


class Prompts:
    def __init__(
        self, kind: str, seed: int, endpoint: str = "/completion", ids: range = ID_RANGE, coined: float = 0.0
    ) -> None:
        if kind == IDS and endpoint == CHAT:
            raise BenchError(f"{CHAT} takes text: choose --texts real or made-up")
        self.kind = kind
        self._seed = seed
        self._id_range = ids
        self._coined = coined
        self._is_chat = endpoint == CHAT
        self._client: Client | None = None
        self._tokens: list[int] = []
        self._pieces: list[bytes] = []
        self._starts: list[int] = []  # indices of tokens that begin a word, in the order of use

    def learn(self, client: Client) -> None:
        """Tokenize the whole text, once for all programs. This server then counts the tokens of prompts."""
        self._client = client
        if self.kind == IDS or self._tokens:
            return
        text = real_text() if self.kind == REAL else made_up_text(self._seed, self._coined)
        for one in client.ask("/tokenize", {"content": text, "with_pieces": True})["tokens"]:
            piece = one["piece"]
            self._tokens.append(one["id"])
            self._pieces.append(piece.encode() if isinstance(piece, str) else bytes(piece))
        self._starts = [i for i, piece in enumerate(self._pieces) if piece[:1].isspace() and piece.strip()]
        random.Random(self._seed).shuffle(self._starts)

    def prompt(self, index: int, n_tokens: int) -> Prompt:
        """Return prompt number `index`, with exactly `n_tokens` tokens. Those of a text include what the tokenizer adds
        before it (BOS); those of a chat do not include its template."""
        return self.ids(index, n_tokens) if self.kind == IDS else self._exact(index, n_tokens)

    def ids(self, index: int, n_tokens: int) -> list[int]:
        """Return a prompt as token ids: those of a text, or random ones. The first id differs in the first 29,000
        random prompts."""
        if self.kind == IDS:
            rng = random.Random(f"{self._seed}/{index}")
            first = self._id_range[index % len(self._id_range)]
            return [first, *rng.choices(self._id_range, k=n_tokens - 1)]
        start = self._starts[index % len(self._starts)]
        return [self._tokens[(start + i) % len(self._tokens)] for i in range(n_tokens)]

    def about(self, index: int, n_tokens: int, coined: float = 0.0) -> str:
        """Return a text of about `n_tokens` tokens, with a share of new words."""
        lap, place = divmod(index, len(self._starts))
        text = self._cut(self._starts[place], n_tokens, lap)
        return with_coined(text, coined, random.Random(f"{self._seed}/{index}")) if coined else text

    def _cut(self, start: int, n_tokens: int, lap: int) -> str:
        """Return a piece of the text. If a position is used again, the piece begins with a number."""
        n = len(self._pieces)
        text = b"".join(self._pieces[i % n] for i in range(start, start + n_tokens))
        return (f"{lap + 1}. " if lap else "") + text.decode(errors="ignore").strip()

    def _exact(self, index: int, n_tokens: int) -> str:
        """Return a piece of the text with exactly `n_tokens` tokens. A piece may have other tokens than within the
        text; then a little more or less is taken. If no piece fits (it would end with white space, or within a
        character), words are added."""
        lap, place = divmod(index, len(self._starts))
        start, n_cut, short = self._starts[place], n_tokens, ""
        for _ in range(TRIES):
            text = self._cut(start, n_cut, lap)
            n_found = self._count(text)
            if n_found == n_tokens:
                return text
            if n_found < n_tokens:
                short = text
            n_cut = max(1, n_cut + n_tokens - n_found)
        for _ in range(FILLERS_MAX):
            short += FILLER
            if self._count(short) == n_tokens:
                return short
        raise BenchError(f"no text of {n_tokens} tokens was found: take more of them, or --texts ids")

    def _count(self, text: str) -> int:
        if self._client is None:
            raise BenchError("no server has tokenized the texts yet")
        body: dict[str, Any] = {"content": text, "add_special": not self._is_chat}
        return len(self._client.ask("/tokenize", body)["tokens"])
