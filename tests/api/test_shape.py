"""Bodies that are known again: what is read as such a body says the same in JSON, but for its prompt and its seed."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llamad.api.shape import shape_of
from llamad.engine.fake import Fake
from llamad.engine.vocab import Vocab

EXAMPLES = settings(
    max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


FAKE = Fake()


@pytest.fixture(scope="module")
def vocab():
    return Vocab(FAKE.table, FAKE.vocab, FAKE.n_vocab)


names = st.sampled_from(
    ["prompt", "seed", "n", "stop", '"prompt', 'x"prompt"', '"seed', "a\\", "pröm", "\\u0070"]
)
values = st.recursive(
    st.one_of(st.integers(-5, 5), st.booleans(), st.none(), names, st.text(max_size=5), st.floats(-1, 1)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)
prompts = st.one_of(
    st.text(max_size=12), st.lists(st.integers(0, 300), max_size=6), st.lists(st.text(max_size=3)), values
)
seeds = st.one_of(st.integers(0, 2**32), st.integers(-2, 2), st.sampled_from([1.0, 1e3, True, "1", None]))


@st.composite
def writings(draw):
    """A way to write JSON."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
    is_ascii = draw(st.booleans())
    escapes_names = draw(st.sampled_from([False, False, False, True]))

    def write(body: dict) -> bytes:
        text = json.dumps(body, separators=separators, ensure_ascii=is_ascii)
        if escapes_names:
            text = text.replace('"prompt"', '"\\u0070rompt"', 1)
        return text.encode("utf-8", "surrogatepass")

    return write


@st.composite
def bodies(draw):
    """Two that differ in prompt and seed, in one writing; and where in the object these stand."""
    rest = draw(
        st.dictionaries(names.filter(lambda name: name not in ("prompt", "seed")), values, max_size=3)
    )
    has_seed = draw(st.booleans())
    own = ["prompt", "seed"] if has_seed else ["prompt"]
    order = draw(st.permutations([*rest, *own]))
    write = draw(writings())
    pairs = [{"prompt": draw(prompts), "seed": draw(seeds)} for _ in range(2)]
    return [write({name: (rest | pair)[name] for name in order}) for pair in pairs]


def tokens_of(vocab, prompt) -> bytes | None:
    """What is read of a prompt; None if it is left to others."""
    if isinstance(prompt, str) and prompt:
        try:
            return vocab.tokenize(prompt.encode(), True, True)
        except UnicodeEncodeError:
            return None
    if isinstance(prompt, list) and prompt and all(type(one) is int for one in prompt):
        is_known = all(0 <= one < vocab.n_vocab for one in prompt)
        return b"".join(one.to_bytes(4, "little") for one in prompt) if is_known else None
    return None


def same_but_for(vocab, first: bytes, second: bytes, found: tuple[bytes, int]) -> None:
    one, other = json.loads(first), json.loads(second)
    tokens, seed = found
    assert tokens == tokens_of(vocab, other["prompt"])
    if seed >= 0:
        assert type(other["seed"]) is int
        assert (other["seed"], type(one["seed"])) == (seed, int)
        del one["seed"], other["seed"]
    del one["prompt"], other["prompt"]
    assert json.dumps(one) == json.dumps(other)


@EXAMPLES
@given(pair=bodies())
@example(pair=[b'{"x\\"prompt": "a", "prompt": "b"}', b'{"x\\"prompt": "c", "prompt": "b"}'])
@example(pair=[b'{"x":{"prompt":"a"},"\\u0070rompt":"a"}', b'{"x":{"prompt":"b"},"\\u0070rompt":"a"}'])
@example(pair=[b'{"x":{"seed":1},"prompt":"a"}', b'{"x":{"seed":2},"prompt":"a"}'])
@example(pair=[b'{"seed":1,"prompt":"a"}', b'{"seed":1.5,"prompt":"a"}'])
@example(pair=[b'{"seed":1,"prompt":"a"}', b'{"seed":01,"prompt":"a"}'])
@example(pair=[b'{"seed":1,"prompt":"a"}', b'{"seed":4294967295,"prompt":"a"}'])
@example(pair=[b'{"prompt":"a","prompt":"b"}', b'{"prompt":"c","prompt":"b"}'])
@example(pair=[b'{"prompt":"a"}', b'{"prompt":"a","n":2,"x":"b"}'])
def test_what_has_a_shape_says_the_same_but_for_prompt_and_seed(vocab, pair):
    first, second = pair
    shape = shape_of(first, vocab, "seed" in json.loads(first))
    found = shape.read(second, vocab) if shape is not None else None
    if found is not None:
        same_but_for(vocab, first, second, found)


@EXAMPLES
@given(pair=bodies(), at=st.integers(0, 400), what=st.binary(max_size=3), n_cut=st.integers(0, 3))
def test_damaged_bodies_are_never_read_as_something_else(vocab, pair, at, what, n_cut):
    first, second = pair
    shape = shape_of(first, vocab, "seed" in json.loads(first))
    at = min(at, len(second))
    damaged = second[:at] + what + second[at + n_cut :]
    found = shape.read(damaged, vocab) if shape is not None else None
    if found is not None:
        same_but_for(vocab, first, damaged, found)


@pytest.mark.parametrize("prompt", ["text", 'with "quotes" and \\n', "ünï\n", [1, 2, 3], [5]])
@pytest.mark.parametrize(
    "order", [("prompt", "seed", "n"), ("seed", "prompt", "n"), ("n", "prompt"), ("prompt",)]
)
def test_the_usual_ones_are_known(vocab, prompt, order):
    body = {"prompt": "hello", "seed": 7, "n": 1}
    first = json.dumps({name: body[name] for name in order}).encode()
    body |= {"prompt": prompt, "seed": 4294967294}
    second = json.dumps({name: body[name] for name in order}, ensure_ascii=False).encode()
    shape = shape_of(first, vocab, "seed" in order)
    assert shape.read(second, vocab) == (tokens_of(vocab, prompt), 4294967294 if "seed" in order else -1)
    assert shape == shape_of(second, vocab, "seed" in order)


def test_long_prompts_and_long_bodies_are_left_to_others(vocab):
    assert shape_of(b'{"prompt": "' + b"x" * 1024 + b'"}', vocab, False) is not None
    assert shape_of(b'{"prompt": "' + b"x" * 1025 + b'"}', vocab, False) is None
    assert shape_of(json.dumps({"prompt": [1] * 4096}).encode(), vocab, False) is not None
    assert shape_of(json.dumps({"prompt": [1] * 4097}).encode(), vocab, False) is None
    assert shape_of(json.dumps({"prompt": "a", "stop": ["x" * 4096]}).encode(), vocab, False) is None
