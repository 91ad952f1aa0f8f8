"""Random requests, seeded, for a tiny model with a token for each byte: prompts that share prefixes, as texts and as
tokens, turns of conversations, several completions, full contexts, clients that leave, adapters, images, and actions on
slots."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from typing import Any

from support.media_files import image
from support.models.tiny_kv_models import BOS, FIRST_BYTE, N_VOCAB, tokens_of

N_SLOTS = 4
N_CTX = 256  # the smallest that llama.cpp has
BASE_CHARACTERS = 220
LETTERS = "abcdefghijklmnopqrstuvwxyz"
IMAGE_SIZES = ((32, 32), (100, 50), (40, 90), (160, 16))
IMAGES = [base64.b64encode(image(i, size=size)).decode() for i, size in enumerate(IMAGE_SIZES)]
MARKER = "@"  # in the prompts of asks; every server has one of its own
N_FILES = 3


@dataclass(frozen=True)
class Traits:
    """What can be asked of a server. is_shifted_alike: after a shift a request goes on as it would alone. window: a
    shift must leave so many tokens behind what is kept, or else attention reaches back to tokens that may be gone."""

    n_adapters: int
    has_images: bool
    is_shifted_alike: bool
    window: int


@dataclass(frozen=True)
class Ask:
    """A request. An action has a path of its own. A client that leaves does so after it has read so many times."""

    kind: str
    body: dict[str, Any]
    path: str = "/completion"
    n_reads: int | None = None

    @property
    def is_compared(self) -> bool:
        return self.path == "/completion" and self.n_reads is None


class Asks:
    """Makes them. The texts that earlier ones have got are gone on with."""

    def __init__(self, seed: int, traits: Traits) -> None:
        self.traits = traits
        self.choose = random.Random(seed)
        self.histories: list[list[int]] = []
        self.bases = ["".join(self.choose.choices(LETTERS, k=BASE_CHARACTERS)) for _ in range(3)]

    def next(self) -> Ask:
        weights = {"prefix": 6, "turn": 5, "several": 2, "prompts": 1, "long": 1, "leaving": 3}
        if self.traits.is_shifted_alike:
            weights["full"] = 1
        if self.traits.has_images:
            weights["image"] = 5
        weights["action"] = 4
        kind = self.choose.choices([*weights], [*weights.values()])[0]
        make = getattr(self, f"_{kind}")
        ask: Ask = make()
        return ask

    def answered(self, ask: Ask, tokens: list[list[int]]) -> None:
        """An ask has these tokens, of each of its completions. What comes after a full context shares nothing."""
        prompt = ask.body.get("prompt")
        if ask.is_compared and ask.kind != "full" and isinstance(prompt, list) and isinstance(prompt[0], int):
            self.histories = [*self.histories[-5:], prompt + tokens[0]]

    # --- prompts --------------------------------------------------------------------------------------------------

    def _tokens(self, n: int) -> list[int]:
        return [self.choose.randrange(FIRST_BYTE, N_VOCAB) for _ in range(n)]

    def _text(self, least: int, most: int) -> str:
        """Some of a base, and something new. Lengths come again, and also beside each other."""
        n = self.choose.choice([8, 40, 41, 90, 130, 131, 200, self.choose.randrange(BASE_CHARACTERS)])
        n_new = self.choose.choice([0, 1, self.choose.randrange(20)])
        n = max(least, min(n, most)) - n_new
        return self.choose.choice(self.bases)[: max(1, n)] + "".join(self.choose.choices(LETTERS, k=n_new))

    def _options(self, **more: Any) -> dict[str, Any]:
        options: dict[str, Any] = {
            "n_predict": self.choose.choice([1, 8, 30, 60]),
            "temperature": 0.0,
            "ignore_eos": True,
            "return_tokens": True,
            "stream": self.choose.random() < 0.4,
        }
        if self.choose.random() < 0.15:
            options["cache_prompt"] = False
        if self.traits.n_adapters and self.choose.random() < 0.3:
            ids = self.choose.sample(range(self.traits.n_adapters), self.choose.choice([1, 1, 2]))
            options["lora"] = [{"id": i, "scale": self.choose.choice([0.5, 1.0])} for i in ids]
        return options | more

    # --- kinds ----------------------------------------------------------------------------------------------------

    def _prefix(self) -> Ask:
        text = self._text(1, 190)
        is_text = self.choose.random() < 0.4
        return Ask("prefix", {"prompt": text if is_text else tokens_of(text), **self._options()})

    def _turn(self) -> Ask:
        """What was written before, or less of it, goes on."""
        if not self.histories:
            return self._prefix()
        history = self.choose.choice(self.histories)
        n_cut = self.choose.choice([0, 0, 0, 1, 5, 40])
        history = history[: max(2, len(history) - n_cut)]
        message = self._tokens(self.choose.randrange(1, 30))
        if len(history) + len(message) > 190:
            return self._prefix()
        return Ask("turn", {"prompt": history + message, **self._options()})

    def _several(self) -> Ask:
        n = self.choose.randint(2, N_SLOTS + 1)
        prompt = tokens_of(self._text(60, 190))
        return Ask("several", {"prompt": prompt, **self._options(n=n, stream=False)})

    def _prompts(self) -> Ask:
        prompts = [self._text(1, 190) for _ in range(self.choose.randint(2, 5))]
        return Ask("prompts", {"prompt": prompts, **self._options(stream=False)})

    def _long(self) -> Ask:
        prompt = [BOS, *self._tokens(self.choose.randrange(180, 240))]
        return Ask("long", {"prompt": prompt, **self._options(n_predict=8)})

    def _full(self) -> Ask:
        """Writes on when N_CTX tokens are full. Its prompt begins like no other one: a shift drops what slots share."""
        prompt = [BOS, *self._tokens(self.choose.randrange(100, 240))]
        n_keep = self.choose.choice([0, 5, 100, len(prompt)])
        if self.traits.window:
            n_keep = min(n_keep, N_CTX - 2 * self.traits.window - 4)
        options = self._options(n_predict=N_CTX + 44 - len(prompt), n_keep=n_keep)
        return Ask("full", {"prompt": prompt, **options})

    def _leaving(self) -> Ask:
        n_reads = self.choose.choice([0, 1, 1, 3, 10])
        prompt = tokens_of(self._text(1, 200))
        return Ask("leaving", {"prompt": prompt, **self._options(n_predict=150)}, n_reads=n_reads)

    def _image(self) -> Ask:
        """An image takes up to some 60 tokens."""
        n = self.choose.choice([1, 1, 2])
        texts = [self._text(1, 60), *("".join(self.choose.choices(LETTERS, k=6)) for _ in range(n))]
        prompt = {"prompt_string": MARKER.join(texts), "multimodal_data": self.choose.choices(IMAGES, k=n)}
        return Ask("image", {"prompt": prompt, **self._options()})

    def _action(self) -> Ask:
        slot, k = self.choose.randrange(N_SLOTS), self.choose.randrange(N_FILES)
        action = self.choose.choice(["save", "save", "restore", "restore", "erase"])
        if action != "erase" and self.choose.random() < 0.5:
            return Ask("action", {}, f"/sessions/{k}?action={action}&slot={slot}")
        return Ask("action", {"filename": f"{k}.bin"}, f"/slots/{slot}?action={action}")
