"""Our sampler against llama.cpp's chain: for the same logits, parameters, history and seed, the same token."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.engine_harness import sampling
from support.live_daemon import model_path
from support.models.small_vocab import write_vocab

from bench.micro.llama_grammar import Words
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.engine.testing.sampler_probe import SamplerProbe
from llamad.flags.parse import parse
from llamad.tokenizer.dry_breakers import pack_breakers

DEFAULT = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
BREAKERS = [b"\n", b": ", b"the "]


@pytest.fixture(scope="module")
def vocab():
    model = load(parse(["-m", model_path(), "-c", "256"], {}).settings.model, 1, Loading())
    yield model.vocab
    model.close()


@pytest.fixture(scope="module")
def packed(vocab):
    """By how many of BREAKERS are in it."""
    return [pack_breakers(vocab, BREAKERS[:n]) for n in range(len(BREAKERS) + 1)]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A vocabulary of some hundred tokens, and its breakers: llama.cpp looks through it for each breaker of each DRY
    sampler, which takes most of the time with a model's."""
    words = Words(write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.gguf"))
    yield words.vocab, [pack_breakers(words.vocab, BREAKERS[:n]) for n in range(len(BREAKERS) + 1)]
    words.close()


def probes(vocab, packed, n_vocab, names=DEFAULT, bias=(), n_breakers=1, **values):
    chain = sampling(names, **{"penalize_nl": True, **values})
    return [
        SamplerProbe(
            vocab,
            chain,
            n_vocab,
            bias=list(bias),
            breakers=BREAKERS[:n_breakers],
            ours=ours,
            packed=packed[n_breakers],
        )
        for ours in (True, False)
    ]


def same_candidates(ours, theirs):
    """What can be drawn is the same, with the same probabilities; ours leaves out what cannot."""
    mine, others = (np.frombuffer(one.candidates(), CANDIDATE) for one in (ours, theirs))
    assert not (np.diff(mine["p"]) > 0).any()  # a temperature near 0 makes numbers that are none
    mine, others = (one[one["p"] > 0] for one in (mine, others))
    mine, others = (one[np.argsort(one["id"])] for one in (mine, others))
    assert np.array_equal(mine["id"], others["id"])
    assert np.array_equal(mine["p"], others["p"])


def same_picks(ours, theirs, rows, history=(), n_again=0):
    """Equal logits included: the order in which llama.cpp's sort leaves them is ours, too. Every other row comes as a
    device's does, looked through while it arrived. Every other pair is sampled as usual, without candidates to show:
    the order of equals is found only if one of them is drawn."""
    for token in history:
        ours.accept(token)
        theirs.accept(token)
    for i, row in enumerate(rows):
        before = row.tobytes()
        for _ in range(1 + n_again):  # as a grammar does: another pick for the same place
            keeps = i // 2 % 2 == 0
            sampled, expected = ours.sample(row, arrived=i % 2 == 1, keeps=keeps), theirs.sample(row)
            if row[sampled] == row[expected] == -np.inf:
                return  # XTC with a threshold of 0 left one of several banned tokens: any of equals will do
            assert sampled == expected
            assert row.tobytes() == before
            if keeps:
                same_candidates(ours, theirs)
        ours.accept(sampled)
        theirs.accept(sampled)


class Rows(NamedTuple):
    """Rows as models make them, and as they never do: ties, -inf, tiny and huge values."""

    n: int
    seed: int
    scale: float
    kind: str

    def make(self):
        return [self._one(np.random.default_rng([self.seed, i])) for i in range(4)]

    def _one(self, random):
        n, scale = self.n, np.float32(self.scale)
        row = random.standard_normal(n).astype(np.float32) * scale
        if self.kind == "rounded":
            row = np.round(row * 4) / np.float32(4)
        elif self.kind == "masked":
            row[random.random(n) < 0.8] = -np.inf
            row[random.integers(n)] = 1.0
        elif self.kind == "few":  # as a grammar leaves it
            row[~np.isin(np.arange(n), random.integers(0, n, 3))] = -np.inf
        elif self.kind == "peak":
            row[random.integers(n)] += np.float32(20) * scale
        elif self.kind == "flat":
            row[:] = 1.5
        return np.ascontiguousarray(row, dtype=np.float32)


rows_of_logits = st.builds(
    Rows,
    n=st.sampled_from([2, 3, 17, 64, 200, 1024, 1025, 3000, 5000, 20000]),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([1e-6, 0.1, 1.0, 4.0, 30.0, 1e6]),
    kind=st.sampled_from(["normal", "normal", "rounded", "masked", "few", "peak", "flat"]),
)


def _or_neutral(neutral, *values):
    """Half of the time the sampler does nothing, so that the others are seen without it."""
    return st.sampled_from([neutral] * len(values) + list(values))


parameters = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 2),
        "temperature": st.sampled_from([-1.0, 0.0, 0.1, 0.8, 1.0, 2.5]),
        "dynatemp_range": _or_neutral(0.0, 0.5, 2.0),
        "dynatemp_exponent": st.sampled_from([0.5, 1.0, 2.0]),
        "top_k": _or_neutral(0, -1, 1, 2, 5, 40, 100, 128, 129, 500, 1024, 2000),
        "top_p": _or_neutral(1.0, 0.0, 0.1, 0.5, 0.95, 0.999),
        "min_p": _or_neutral(0.0, 0.001, 0.05, 0.3, 1.0),
        "typical_p": _or_neutral(1.0, 0.2, 0.9),
        "top_n_sigma": _or_neutral(-1.0, 0.0, 0.5, 1.0, 3.0),
        "xtc_probability": _or_neutral(0.0, 0.5, 1.0),
        "xtc_threshold": st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.6]),
        "repeat_last_n": st.sampled_from([0, 1, 7, 64]),
        "repeat_penalty": _or_neutral(1.0, 1.3, 0.5),
        "presence_penalty": _or_neutral(0.0, 0.7, -1.0),
        "frequency_penalty": _or_neutral(0.0, 0.4),
        "dry_multiplier": _or_neutral(0.0, 0.8, 3.0),
        "dry_base": st.sampled_from([1.0, 1.75, 40.0]),
        "dry_allowed_length": st.sampled_from([0, 1, 2, 4]),
        "dry_penalty_last_n": st.sampled_from([0, 3, 20, 512]),
        "mirostat": st.sampled_from([0] * 15 + [2, 2]),  # version 1 depends on the vocabulary's size
        "min_keep": _or_neutral(0, 1, 3, 50, 6000),
    }
)


# Orders and histories are made from bytes: Hypothesis draws a string of them as fast as one element of a list, and
# lists took longer than the test.
def _named(picked):
    return tuple(DEFAULT[byte % len(DEFAULT)] for byte in picked)


def _shuffled(keys):
    return tuple(name for _, name in sorted(zip(keys, DEFAULT, strict=True)))


orders = st.one_of(
    st.just(DEFAULT),
    st.binary(min_size=len(DEFAULT), max_size=len(DEFAULT)).map(_shuffled),
    st.binary(max_size=8).map(_named),
    st.binary(min_size=20, max_size=32).map(_named),
)


class Text(NamedTuple):
    """A history that repeats itself, so that DRY has something to find."""

    n_different: int
    picked: bytes
    n_times: int
    n_more: int

    def make(self, n_vocab):
        tokens = [byte * min(n_vocab, self.n_different) // 256 for byte in self.picked]
        return tokens * self.n_times + tokens[: self.n_more]


texts = st.builds(
    Text, st.sampled_from([4, 300, 20000]), st.binary(max_size=30), st.integers(1, 4), st.integers(0, 30)
)


def _biases(picked, n_vocab):
    values = [-3.0, 0.5, 8.0, -np.inf]
    return [(byte * n_vocab // 256, values[byte % 4]) for byte in picked]


@settings(max_examples=1000, deadline=None)
@given(
    rows_of_logits,
    parameters,
    orders,
    texts,
    st.binary(max_size=4),
    st.integers(0, len(BREAKERS)),
    st.integers(0, 1),
)
def test_any_chain_picks_llama_cpps_token(small, rows, values, names, text, biased, n_breakers, n_again):
    n = rows.n
    history, bias = text.make(n), _biases(biased, n)
    vocab, packed = small
    ours, theirs = probes(vocab, packed, n, names, bias, n_breakers, **values)
    assert ours.is_ours
    assert not theirs.is_ours
    event(f"{min(len(names), 10)} samplers")
    same_picks(ours, theirs, rows.make(), history, n_again)


small_rows = st.builds(
    Rows,
    n=st.sampled_from([3, 5, 40, 200, 300]),
    seed=st.integers(0, 2**32),
    scale=st.sampled_from([0.1, 1.0, 4.0, 30.0]),
    kind=st.sampled_from(["normal", "normal", "rounded", "masked", "few", "peak", "flat"]),
)
DRAWN_OTHERWISE = (*DEFAULT, "infill", "infill", "adaptive_p")


@settings(max_examples=400, deadline=None)
@given(
    small_rows,
    parameters,
    st.sampled_from([-1.0, -1.0, 0.0, 0.3, 0.7, 2.0]),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.binary(min_size=1, max_size=6).map(lambda picked: tuple(DRAWN_OTHERWISE[one % 12] for one in picked)),
    st.integers(0, 8),
    st.integers(0, 1),
)
def test_infill_and_adaptive_p_pick_llama_cpps_token(
    small, rows, values, target, decay, names, n_ends, n_again
):
    """With logits of ends near the largest, so that infill has to choose."""
    vocab, packed = small
    ours, theirs = probes(
        vocab, packed, rows.n, names, adaptive_target=target, adaptive_decay=decay, end_token=2, **values
    )
    made = rows.make()
    for row in made[: n_ends % 5]:
        row[2] = row.max() - n_ends
    same_picks(ours, theirs, made, [], n_again)


@settings(max_examples=400, deadline=None)
@given(
    small_rows,
    st.integers(0, 2**32 - 2),
    st.sampled_from([1, 2]),
    st.sampled_from([-1.0, 0.0, 0.1, 0.8, 1.0, 2.5]),
    st.sampled_from([0.0, 0.5, 2.0, 5.0, 9.0]),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 1),
)
def test_mirostat_picks_llama_cpps_token(small, rows, seed, version, temperature, tau, eta, n_again):
    vocab, packed = small
    values = {"mirostat": version, "mirostat_tau": tau, "mirostat_eta": eta, "dynatemp_range": 0.5}
    n = vocab.n_vocab
    ours, theirs = probes(
        vocab, packed, n, seed=seed, temperature=temperature, bias=[(5, 2.0)], repeat_penalty=1.3, **values
    )
    same_picks(ours, theirs, rows._replace(n=n).make() * 3, [7, 8, 7], n_again)


@settings(max_examples=300, deadline=None)
@given(
    small_rows,
    parameters,
    st.binary(min_size=1, max_size=12).map(lambda picked: tuple(DRAWN_OTHERWISE[one % 12] for one in picked)),
    texts,
    st.integers(0, 12),
    st.integers(0, 1),
)
def test_a_sampler_goes_on_from_a_mark(small, rows, values, names, text, n_before, n_again):
    """As in another engine: it has accepted the same tokens, but sampled none of them."""
    vocab, packed = small
    values = {**values, "adaptive_target": 0.4, "mirostat_tau": 3.0, "mirostat_eta": 0.4}
    first, second = (probes(vocab, packed, rows.n, names, [(1, 0.5)], 2, **values)[0] for _ in range(2))
    made, history = rows.make(), text.make(rows.n)
    for token in history:
        first.accept(token)
    taken = []
    for i in range(n_before):
        for _ in range(1 + n_again):
            taken[i:] = [first.sample(made[i % 4])]
        first.accept(taken[i])
    for token in [*history, *taken]:
        second.accept(token)
    assert second.return_to(first.mark(), n_before)
    for row in made * 2:
        tokens = [one.sample(row) for one in (first, second)]
        assert tokens[0] == tokens[1]
        for one, token in zip((first, second), tokens, strict=True):
            one.accept(token)


def test_a_mark_of_no_such_sampler_is_refused(small):
    vocab, packed = small
    row = np.zeros(100, np.float32)
    many, none = (probes(vocab, packed, 100, names, xtc_probability=0.5)[0] for names in (("xtc",), ()))
    for _ in range(40):
        many.sample(row)
    assert not none.return_to(many.mark(), 40)
    assert not probes(vocab, packed, 100, ("xtc",), xtc_probability=0.5)[0].return_to(many.mark(), 3)


@pytest.mark.parametrize("names", [("top_k", "top_p", "infill"), ("infill",), ("top_k", "adaptive_p")])
def test_the_words_of_a_model_agree(vocab, packed, names):
    """As editors send it; without a cut before infill, of a list that is long for llama.cpp."""
    random = np.random.default_rng(11)
    n = 49152 if "top_k" in names else 1500
    rows = [(random.standard_normal(n) * 3).astype(np.float32) for _ in range(6)]
    rows[1][2] = 12
    ours, theirs = probes(vocab, packed, n, names, end_token=0, adaptive_target=0.4, seed=5, top_p=0.99)
    same_picks(ours, theirs, rows)


@pytest.mark.parametrize("scale", [1.0, 3.0, 8.0])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"repeat_penalty": 1.2, "dry_multiplier": 0.8},
        {"top_k": 0},
        {"top_k": 0, "top_p": 1.0},
        {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 0.0},
        {"top_k": 0, "top_n_sigma": 1.0},
        {"top_k": 600},
    ],
)
def test_whole_vocabularies_agree(vocab, packed, values, scale):
    random = np.random.default_rng(5)
    rows = [(random.standard_normal(49152) * scale).astype(np.float32) for _ in range(8)]
    ours, theirs = probes(vocab, packed, 49152, **{"seed": 3, **values})
    same_picks(ours, theirs, rows, list(range(100)) * 2, n_again=1)


@pytest.mark.parametrize("frequency", [0.4, 0.3, 1.7])
def test_penalties_are_rounded_as_llama_cpps_are(vocab, packed, frequency):
    """ARM64 can add a product without rounding it first; llama.cpp's compiler does not, at this place."""
    random = np.random.default_rng(7)
    rows = [(random.standard_normal(64) * 1e-6).astype(np.float32) for _ in range(8)]
    values = {"presence_penalty": 0.7, "frequency_penalty": frequency, "repeat_last_n": 64, "top_k": 0}
    ours, theirs = probes(vocab, packed, 64, **{"seed": 3, "top_p": 1.0, "min_p": 0.0, **values})
    same_picks(ours, theirs, rows, [token for token in range(12) for _ in range(1 + token % 7)], n_again=1)


@pytest.mark.parametrize(
    "names", [("top_n_sigma", "dry", "min_p"), ("top_n_sigma", "dry", "top_k"), ("top_n_sigma", "dry")]
)
def test_where_nothing_is_possible_any_more_both_come_to_the_same_end(vocab, packed, names):
    """DRY takes an infinite amount from all that top_n_sigma has left."""
    row = np.array([-6.0, -7.0, -8.0, 9.0, -6.5], np.float32)
    values = {"top_n_sigma": 0.5, "dry_multiplier": 3.0, "dry_base": 40.0, "dry_allowed_length": 0}
    ours, theirs = probes(
        vocab, packed, 5, names, dry_penalty_last_n=512, top_k=1, min_p=0.001, temperature=-1.0, **values
    )
    same_picks(ours, theirs, [row], [3] * 40)


def test_a_temperature_next_to_nothing_leads_both_to_the_same_end(vocab, packed):
    """The entropy is so small that logits divided by the temperature are infinite. llama.cpp then takes the last
    candidate, and masked ones are candidates."""
    row = np.full(17, -np.inf, np.float32)
    row[[5, 7, 8]] = [27.104105, -22.304977, -27.651762]
    values = {"temperature": -1.0, "dynatemp_range": 2.0, "dynatemp_exponent": 2.0, "top_n_sigma": 3.0}
    ours, theirs = probes(vocab, packed, 17, top_k=0, top_p=1.0, min_p=0.0, **values)
    assert ours.sample(row.copy()) == theirs.sample(row.copy())


@pytest.mark.parametrize("k", [1, 2, 3, 7, 40, 64, 127, 128, 129])
@pytest.mark.parametrize("n_vocab", [128, 1023, 1024, 2500, 32_000])
def test_equals_of_a_device_that_rounds_to_16_bits(vocab, packed, n_vocab, k):
    """A GPU's logits are often 16-bit numbers: among the largest of them some are nearly always equal."""
    random = np.random.default_rng([n_vocab, k])
    rows = [random.standard_normal(n_vocab).astype(np.float16).astype(np.float32) for _ in range(12)]
    rows.append(np.zeros(n_vocab, np.float32))
    for seed in range(3):
        ours, theirs = probes(vocab, packed, n_vocab, top_k=k, seed=seed, top_p=1.0, min_p=0.0)
        same_picks(ours, theirs, rows)
