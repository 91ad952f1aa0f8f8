"""Owns the texts that are sent: the same for every program, different from each other from the first word on.

Pure functions. A word of the list is one token in most vocabularies, so a text has about as many tokens as asked.
"""

from __future__ import annotations

import functools
import random
import string

SENTENCE_WORDS = 12
# Texts to be tokenized, and the part of their words that nobody has seen: more than a cache of words holds.
N_TEXTS, COINED = 8_192, 0.1

_LIST = (
    "able above across after again air all also animal answer apple area arm art ask away back ball bank base "
    "bed before below best big bird black blue board boat body book both box boy bread break bridge bright "
    "bring brother build busy call can capital car care carry case cat cause change child city class clear "
    "close cloud cold color come cook corner could country course cover cross cut dark day deep door down draw "
    "dream dress drink drive dry each early earth east easy eat edge egg end engine enough even every eye face "
    "fact fall family far farm fast father feel few field fill find fine fire first fish floor flower fly food "
    "foot force forest form free friend front full game garden girl give glass gold good grass great green "
    "ground group grow half hand happy hard hat head hear heart heat help high hill hold home horse hot hour "
    "house ice idea island job jump keep kind king know lake land large last late laugh lead learn leave left "
    "letter life light line list listen little live long look love machine make man many map mark matter meal "
    "mean meet milk mind minute money month moon morning most mother mountain mouth move music name near need "
    "never new night north nose note now number ocean offer oil old once only open order other outside page "
    "paint paper part past pay people person picture place plan plant play point power price pull push "
    "question quick quiet rain reach read ready red rest rich ride right ring river road rock room round run "
    "salt same sand school sea season second seed send seven shape ship shoe shop short show side sign silver "
    "simple sing sister sit six sky sleep slow small snow soft some song south space speak spring square stand "
    "star start stone story street strong summer sun sure table tail talk tall teach test thing think thought "
    "three time today together top town trade train travel tree true turn two under unit until upon use valley "
    "view village visit voice walk wall warm watch water way week west wheel white whole wide wind window "
    "winter wish woman wood word work world write year yellow young"
)
WORDS = _LIST.split()


def coin(rng: random.Random) -> str:
    """A word that nobody has seen, as names and typing errors are."""
    return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9)))


@functools.cache
def _order(seed: int) -> list[str]:
    return random.Random(seed).sample(WORDS, len(WORDS))


def text(index: int, n_tokens: int, seed: int, coined: float = 0.0) -> str:
    """Text number `index`. Texts of one seed begin with different words while there are words left, and no two
    begin with the same two. A part of the words behind them may be coined."""
    order = _order(seed)
    first, second = order[index % len(order)], order[(index // len(order)) % len(order)]
    rng = random.Random(f"{seed}/{index}")
    out: list[str] = []
    n = 0
    while n < n_tokens:
        word = (first, second)[n] if n < 2 else rng.choice(WORDS)
        if coined and n >= 2 and rng.random() < coined:
            word = coin(rng)
        n += 1
        if len(out) % SENTENCE_WORDS == SENTENCE_WORDS - 1 and n < n_tokens:
            word += "."
            n += 1
        out.append(word)
    return " ".join(out)


def texts(n: int, n_tokens: int, seed: int, start: int = 0, coined: float = 0.0) -> list[str]:
    """`n` texts, from number `start` on."""
    return [text(start + i, n_tokens, seed, coined) for i in range(n)]


# Ids that are words or parts of words in any vocabulary of more than 30,000 tokens.
IDS = range(1_000, 30_000)


def ids(index: int, n_tokens: int, seed: int, among: range = IDS) -> list[int]:
    """Prompt number `index` as token ids; no two of the first 29,000 (or as many as there are) begin with the same."""
    rng = random.Random(f"{seed}/{index}")
    return [among[index % len(among)], *rng.choices(among, k=n_tokens - 1)]
