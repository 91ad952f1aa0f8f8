"""The sampler's parts alone: arithmetic that must have llama.cpp's bits, and what llama.cpp has not (any more)."""

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import sampling
from support.live_daemon import model_path

from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.engine.sampler.exact_math import has_vectors
from llamad.engine.testing.fake import Fake
from llamad.engine.testing.sampler_probe import SamplerProbe, row_exps, row_squares, row_sum
from llamad.flags.parse import parse
from llamad.options.sampler_names import DEFAULT_ORDER
from llamad.tokenizer.dry_breakers import pack_breakers
from llamad.tokenizer.vocab import Vocab

PENALTIES, DRY, TOP_K, TEMPERATURE, TFS_Z = "penalties", "dry", "top_k", "temperature", "tfs_z"
CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


@pytest.fixture(scope="module")
def model():
    model = load(parse(["-m", model_path(), "-c", "256"], {}).settings.model, 1, Loading())
    yield model
    model.close()


@pytest.fixture(scope="module")
def fake():
    """A vocabulary of bytes: token 3 + b is the byte b."""
    made = Fake()
    return Vocab(made.table, made.vocab, made.n_vocab), made


def probe(vocab, n_vocab, kinds, breakers=(), **values):
    return SamplerProbe(
        vocab, sampling(kinds, **values), n_vocab, bias=[], breakers=list(breakers), ours=True
    )


def candidates(one):
    return np.frombuffer(one.candidates(), CANDIDATE)


# --- exp and sums ---------------------------------------------------------------------------------------------


def libm_exps(row, largest):
    """What the C library's expf gives for each element, one at a time: too few for the vector form."""
    out = np.empty_like(row)
    for i in range(len(row)):
        row_exps(row[i : i + 1], largest, out[i : i + 1])
    return out


def test_a_row_of_exps_has_the_c_librarys_bits():
    """A million floats of every size, beside expf called for one element at a time."""
    random = np.random.default_rng(3)
    for span in (1e-6, 1e-2, 1.0, 20.0, 90.0, 110.0):
        row = (-random.random(160_000) * span).astype(np.float32)
        out = np.empty_like(row)
        row_exps(row, 0.0, out)
        assert out.tobytes() == libm_exps(row, 0.0).tobytes()
    bits = random.integers(0x80000000, 0xFF800001, 160_000, dtype=np.uint32)  # -0.0 to -inf
    row = bits.view(np.float32)
    out = np.empty_like(row)
    row_exps(row, 0.0, out)
    assert out.tobytes() == libm_exps(row, 0.0).tobytes()


def test_exps_of_the_borders_are_right():
    least = np.float32(-103.97208)
    row = np.array(
        [0.0, -0.0, -np.inf, least, np.nextafter(least, np.float32(-np.inf)), -87.3, -88.8, -103.3] * 4
    )
    row = row.astype(np.float32)
    out = np.empty_like(row)
    row_exps(row, 0.0, out)
    assert out.tobytes() == libm_exps(row, 0.0).tobytes()
    assert out[0] == 1.0
    assert out[2] == 0.0


def test_this_machine_uses_the_vector_form_or_has_none():
    """With FMA and glibc there is one; a silent fall back to the plain loop would only show as lost speed."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = set(next((line for line in file if line.startswith("flags")), "").split())
    assert has_vectors() == ({"avx2", "fma"} <= flags)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 20_000),
    scale=st.sampled_from([1e-3, 0.5, 3.0, 12.0]),
    kind=st.sampled_from(["normal", "rounded", "powers", "rising"]),
)
def test_the_sum_is_that_of_one_after_the_other(seed, n, scale, kind):
    random = np.random.default_rng(seed)
    row = random.standard_normal(n).astype(np.float32) * np.float32(scale)
    if kind == "rounded":
        row = np.round(row)
    p = np.exp(row - row.max()).astype(np.float32)
    if kind == "powers":  # many exact ties
        p = np.ldexp(np.float32(1), -random.integers(0, 40, n)).astype(np.float32)
    elif kind == "rising":
        p.sort()
    # numpy's cumsum adds floats in order, unlike its sum.
    assert np.float32(row_sum(p)) == np.cumsum(p, dtype=np.float32)[-1]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 5000),
    scale=st.sampled_from([1e-3, 1.0, 4.0, 1e4]),
    kind=st.sampled_from(["normal", "rounded", "masked"]),
)
def test_the_sum_of_squares_is_that_of_one_after_the_other(seed, n, scale, kind):
    random = np.random.default_rng(seed)
    row = random.standard_normal(n).astype(np.float32) * np.float32(scale)
    if kind == "rounded":
        row = np.round(row)
    elif kind == "masked":
        row[random.random(n) < 0.5] = -np.inf
    mean = np.float32(scale * round(float(random.standard_normal()), 1))
    total = np.float32(0)
    for logit in row[~np.isneginf(row)]:
        total = np.float32(np.float64(total) + np.float64(logit - mean) ** 2)
    assert np.float32(row_squares(row, float(mean))) == total


# --- tail free sampling ---------------------------------------------------------------------------------------


def tail_free(logits, z, min_keep):
    """The tokens that stay, by the plain reading: cut where the second derivative's amount has reached z."""
    order = np.argsort(-logits, kind="stable")
    e = np.exp((logits[order] - logits.max()).astype(np.float32))
    p = (e / np.cumsum(e, dtype=np.float32)[-1]).astype(np.float32)
    if z >= 1 or len(p) <= 2:
        return list(order)
    second = np.abs(np.diff(np.diff(p)))
    total = np.cumsum(second, dtype=np.float32)[-1]
    parts = second / total if total > 1e-6 else np.full_like(second, 1 / len(second))
    above = np.cumsum(parts, dtype=np.float32) > np.float32(z)
    above[: max(min_keep, 1)] = False
    return list(order[: int(np.argmax(above))] if above.any() else order)


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.sampled_from([2, 3, 5, 40, 200, 255]),
    scale=st.sampled_from([0.01, 1.0, 5.0]),
    z=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.97, 1.0]),
    min_keep=st.sampled_from([0, 1, 5, 300]),
    top_k=st.sampled_from([0, 10]),
)
def test_tail_free_sampling_cuts_where_the_curve_is_flat(fake, seed, n, scale, z, min_keep, top_k):
    vocab, _ = fake
    row = (np.random.default_rng(seed).standard_normal(n) * scale).astype(np.float32)
    expected = tail_free(row, z, min_keep)
    if top_k:
        head = np.sort(np.argsort(-row, kind="stable")[:top_k])
        expected = [int(head[i]) for i in tail_free(row[head], z, min_keep)]
    one = probe(vocab, n, [TOP_K, TFS_Z], tfs_z=z, min_keep=min_keep, top_k=top_k)
    assert one.sample(row) in candidates(one)["id"]
    assert abs(len(candidates(one)) - len(expected)) <= 1  # exp's last bit may move the cut by one
    assert set(candidates(one)["id"][: len(expected) - 1]) <= set(expected)


# --- penalties and the line break ---------------------------------------------------------------------------------


@pytest.mark.parametrize("penalize_nl", [False, True])
@pytest.mark.parametrize("kinds", [[PENALTIES, TEMPERATURE], [TOP_K, PENALTIES, TEMPERATURE]])
def test_the_line_break_is_penalized_when_asked(fake, kinds, penalize_nl):
    vocab, _ = fake
    row = np.zeros(vocab.n_vocab, dtype=np.float32)
    row[[13, 20]] = 5.0, 4.0
    one = probe(
        vocab,
        vocab.n_vocab,
        kinds,
        presence_penalty=3.0,
        temperature=0.0,
        newline_token=13,
        penalize_nl=penalize_nl,
    )
    one.accept(13)
    assert one.sample(row) == (20 if penalize_nl else 13)


def test_the_model_knows_its_line_break(model):
    assert model.vocab.piece(model.info.nl, True) == b"\n"


# --- a pick and its history -----------------------------------------------------------------------------------


def test_a_pick_is_not_part_of_the_history_before_it_is_accepted(fake):
    vocab, _ = fake
    row = np.zeros(vocab.n_vocab, dtype=np.float32)
    row[[7, 8]] = 5.0, 4.0
    one = probe(vocab, vocab.n_vocab, [PENALTIES, TEMPERATURE], presence_penalty=3.0, temperature=0.0)
    assert [one.sample(row), one.sample(row)] == [7, 7]
    one.accept(7)
    assert one.sample(row) == 8


def test_more_changes_than_can_be_undone_one_by_one_leave_the_row_as_it_was(model):
    """The list of changes is bounded: beyond it the sampler works on a copy."""
    row = np.random.default_rng(1).standard_normal(49152).astype(np.float32)
    before = row.tobytes()
    values = {"presence_penalty": 1.5, "repeat_last_n": 20_000, "temperature": 0.0}
    one = probe(model.vocab, 49152, [PENALTIES, PENALTIES, TEMPERATURE], **values)
    for token in range(10_000):
        one.accept(token)
    row_there = row.copy()
    row_there[:10_000] -= np.float32(3.0)
    assert one.sample(row) == int(np.argmax(row_there))
    assert row.tobytes() == before


@settings(max_examples=300, deadline=None)
@given(
    kinds=st.lists(st.sampled_from([PENALTIES, *DEFAULT_ORDER]), max_size=6),
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([1e-38, -1.0, 0.8, 1e38]),
    extremes=st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38]), max_size=5),
)
def test_no_row_and_no_parameters_lead_out_of_the_vocabulary(model, kinds, seed, temperature, extremes):
    """Infinite penalties on infinite logits make NaN, and a sort that meets one may leave its array."""
    random = np.random.default_rng(seed)
    row = random.standard_normal(3000).astype(np.float32)
    for extreme in extremes:
        row[random.random(3000) < 0.3] = extreme
    values = {"top_k": 2000, "top_p": 0.9, "typical_p": 0.9, "tfs_z": 0.9, "top_n_sigma": 1.0, "min_p": 0.1}
    values |= {
        "xtc_probability": 0.9,
        "xtc_threshold": 0.01,
        "presence_penalty": -3e38,
        "repeat_penalty": 1e38,
    }
    values |= {"dry_multiplier": 3e38, "dry_allowed_length": 0, "temperature": temperature}
    one = probe(model.vocab, 3000, kinds, **values)
    for token in random.integers(0, 3000, 600):
        one.accept(int(token))
    before = row.tobytes()
    for _ in range(3):
        token = one.sample(row)
        assert 0 <= token < 3000
        assert row.tobytes() == before
        p = candidates(one)["p"]
        assert ((p >= 0) & (p <= 1)).all()
        one.accept(token)


@pytest.mark.parametrize("kinds", [[], [TOP_K], [TEMPERATURE]])
def test_the_candidates_are_the_same_when_asked_again(fake, kinds):
    vocab, _ = fake
    row = np.random.default_rng(1).standard_normal(vocab.n_vocab).astype(np.float32)
    one = probe(vocab, vocab.n_vocab, kinds)
    one.sample(row)
    first = candidates(one)
    assert first["p"].sum() == pytest.approx(1.0, rel=1e-4)
    assert first.tobytes() == candidates(one).tobytes()


# --- DRY's breakers -----------------------------------------------------------------------------------------------


def unpacked(table):
    """{head: set of tails}"""
    numbers = array("i", table)
    n = numbers[0]
    out = {}
    for head, at in zip(numbers[1 : n + 1], numbers[n + 1 : 2 * n + 1], strict=True):
        tails = set()
        n_tails, at = numbers[at], at + 1
        for _ in range(n_tails):
            tails.add(tuple(numbers[at + 1 : at + 1 + numbers[at]]))
            at += 1 + numbers[at]
        out[head] = tails
    assert list(out) == sorted(out)
    return out


def test_breakers_are_found_in_and_across_tokens(model):
    vocab = model.vocab
    table = unpacked(pack_breakers(vocab, [b"\n", b"ex: y"]))
    words = [vocab.detokenize(array("i", [token]).tobytes(), True) for token in range(vocab.n_vocab)]
    for token, word in enumerate(words):
        expected = {()} if b"\n" in word else set()
        for n in range(1, 5):
            if word.endswith(b"ex: y"[:n]):
                expected.add(tuple(array("i", vocab.tokenize(b"ex: y"[n:], False, False))))
        if b"ex: y" in word:
            expected.add(())
        assert table.get(token, set()) == expected


def test_a_breaker_is_cut_at_forty_bytes(fake):
    vocab, _ = fake
    assert pack_breakers(vocab, [b"a" * 40]) == pack_breakers(vocab, [b"a" * 1000])
    tails = unpacked(pack_breakers(vocab, [b"abcdefghijklmnopqrstuvwxyz"]))[3 + ord("a")]
    assert tails == {tuple(3 + c for c in b"bcdefghijklmnopqrstu")}


def test_many_breakers_fit_and_share_their_tails(model):
    """Each token that ends with an e begins all of these: without sharing, the table would be tens of megabytes."""
    breakers = [b"e%d which is long" % i for i in range(64)]
    table = pack_breakers(model.vocab, breakers)
    assert len(table) < 400_000
    assert all(len(tails) == 64 for head, tails in unpacked(table).items() if len(tails) > 1)


def test_breakers_without_end_are_refused(model):
    with pytest.raises(ValueError, match="at most 64"):
        pack_breakers(model.vocab, [b"x"] * 65)


def test_a_breaker_ends_what_dry_looks_at(fake):
    """Ten tokens repeat, and the next would go on; with the fifth as breaker only five of them count."""
    vocab, _ = fake
    text = [3 + c for c in b"abcdefghij"]
    row = np.zeros(vocab.n_vocab, dtype=np.float32)
    penalties = {}
    for breakers in ([], [b"e"]):
        one = probe(
            vocab, vocab.n_vocab, [DRY], breakers, dry_multiplier=0.01, dry_base=2.0, dry_allowed_length=1
        )
        for token in text * 2:
            one.accept(token)
        one.sample(row)
        by_id = {int(c["id"]): float(c["p"]) for c in candidates(one)}
        penalties[len(breakers)] = np.log(by_id[0] / by_id[text[0]])
    assert penalties[0] == pytest.approx(0.01 * 2**9, rel=1e-3)
    assert penalties[1] == pytest.approx(0.01 * 2**4, rel=1e-3)
