"""Tasks over a fake model with random logits, with drafts of any quality or without: what their outcomes are."""

from hypothesis import strategies as st

from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter
from llamad.grammar.grammar import Grammar, Pieces
from support.engine_harness import GREEDY, Harness, sampling

CHAOS = 77
LETTERS = 'root ::= ("a" | "b" | "c" | [d-z] | " " | [A-Z])* "."'
# Most of its text is forced.
FORCED = 'root ::= "name: " [a-z]{1,3} (", the next key: " ([a-z]{1,3} | "none of them"))* "."'

SAMPLERS = {
    "greedy": GREEDY,
    "temperature": sampling(["temperature"], temperature=0.7, seed=5),
    "usual": sampling(
        ["top_k", "top_p", "min_p", "temperature"], top_k=20, top_p=0.9, temperature=0.4, seed=6
    ),
    "penalties": sampling(
        ["penalties", "temperature"], repeat_penalty=1.3, frequency_penalty=0.2, temperature=0.5
    ),
    "dry": sampling(["dry", "temperature"], dry_multiplier=0.8, temperature=0.3, seed=8),
    "xtc": sampling(["xtc", "temperature"], xtc_probability=0.5, temperature=0.6, seed=9),
    "adaptive": sampling(["adaptive_p"], adaptive_target=0.6, seed=10),
    "mirostat": sampling([], mirostat=2, seed=11),
}
MEMORIES = {
    "streams": {},
    "unified": {"unified": True, "n_cells": 2048},
    "tight": {"unified": True, "n_cells": 256},
    "window": {"unified": True, "n_cells": 2048, "n_swa": 32},
    "recurrent": {"recurrent": True, "n_rollback": 7},
    "hybrid": {"hybrid": True, "unified": True, "n_cells": 2048, "n_rollback": 15},
}


def memory_options(memory, n_slots):
    """What an engine over such a memory is told of it."""
    kind = MEMORIES[memory]
    options = {"n_cells": kind.get("n_cells", 0), "n_swa": kind.get("n_swa", 0)}
    if options["n_swa"]:
        options["n_window"] = -(-(options["n_swa"] * n_slots + 128) // 256) * 256
    return options | {"can_share": "n_rollback" not in kind}


def outcome(h, task):
    end = h.end(task)
    seen = [
        getattr(end, name, None) for name in ("n_decoded", "stop_type", "stop_word", "truncated", "failure")
    ]
    return h.text(task), h.tokens(task), h.probs(task), seen


def play(h, fake, tasks):
    """The outcomes of tasks that run together, and how many steps they took."""
    with h:
        pieces = Pieces(h.vocab)
        compiled = {text: Grammar(text, pieces) for text in (LETTERS, FORCED)}
        ids = []
        fake.block(True)
        for task in tasks:
            given = dict(task)
            h.sampling = SAMPLERS[given.pop("samplers")]
            if "grammar" in given:
                given["grammar"] = compiled[given["grammar"]].id
            ids.append(h.submit(given.pop("prompt"), **given))
        fake.block(False)
        h.wait(*ids)
        return [outcome(h, task) for task in ids], h.stats()["n_steps"]


def run(tasks, *, share=None, n_fixed=-1, memory="streams", n_slots=4, n_ctx=256, seed=1, **options):
    """play() on a new engine. share: of the drafts that are right; None: there are none."""
    kind = {"n_ctx": n_ctx, "n_batch": 128, "n_seqs": n_slots, "chaos": CHAOS, **MEMORIES[memory]}
    fake = Fake(**kind)
    options = memory_options(memory, n_slots) | options
    h = Harness(fake, n_slots=n_slots, n_ctx=n_ctx, n_batch=128, cache_bytes=1 << 20, **options)
    drafter = FakeDrafter(fake.ctx, share=share or 0.0, seed=seed)
    if share is not None:
        assert h.core.draft_with(drafter, n_fixed, kind.get("n_rollback", 0))
    return play(h, fake, tasks)


TASKS = st.fixed_dictionaries(
    {
        "samplers": st.sampled_from(list(SAMPLERS)),
        "prompt": st.binary(min_size=1, max_size=40) | st.binary(min_size=100, max_size=150),
        "n_predict": st.integers(1, 90),
    },
    optional={
        "grammar": st.sampled_from([LETTERS, FORCED]),
        "n_probs": st.integers(1, 3),
        "post_sampling_probs": st.booleans(),
        "stop": st.lists(st.binary(min_size=1, max_size=1), min_size=1, max_size=2).map(tuple),
        "stream": st.booleans(),
    },
)


def greedy(n=4, n_predict=100, **options):
    return [{"samplers": "greedy", "prompt": b"p%d" % i, "n_predict": n_predict, **options} for i in range(n)]
