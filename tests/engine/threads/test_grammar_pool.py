"""Picks that a grammar makes long leave the step: the same text, and nobody else waits for them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness, sampling

from llamad.base.clock import clock_us
from llamad.client.events import Done, Failed
from llamad.engine.testing.fake import Fake
from llamad.grammar.grammar import Grammar, GrammarLater, GrammarTooMuch, Matcher, Pieces
from llamad.protocol.messages import FAILURE_ABORTED, FAILURE_DEADLINE, STOP_EOS, STOP_LIMIT

# Ambiguous: what a text may have led to grows with each letter, and so does the work for the next.
AMBIGUOUS = 'root ::= s\ns ::= "a" s s | "a" s | "a"'
LIST = 'root ::= "[" item ("," item)* "]"\nitem ::= "\\"" [a-z]+ "\\"" | [0-9]{1,3}'


def run(grammar, script, *, grammar_work, n_streams=1, **options):
    """The texts, token probabilities and ends of streams under one grammar, and how many picks were deferred. One
    sampler thread: two might meet at the grammar's lock, and who waits for it too long is deferred as well."""
    with Harness(Fake(script=script), grammar_work=grammar_work, n_sampler_threads=1) as h:
        compiled = Grammar(grammar, Pieces(h.vocab))
        tasks = [h.submit(b"p" * (1 + i), grammar=compiled.id, **options) for i in range(n_streams)]
        h.wait(*tasks)
        ends = [h.end(task).stop_type for task in tasks]
        n_deferred = h.stats()["n_deferred"]
        return [h.tokens(task) for task in tasks], [h.probs(task) for task in tasks], ends, n_deferred


@pytest.mark.parametrize("post", [False, True])
@pytest.mark.parametrize(
    ("grammar", "script"),
    [(LIST, b'["one",22,x"three"]]more'), (AMBIGUOUS, b"a" * 40), (LIST, b"not at all what it wants" * 3)],
)
def test_a_deferred_pick_is_the_pick_made_at_once(grammar, script, post):
    options = {"n_predict": 60, "n_probs": 3, "post_sampling_probs": post, "n_streams": 3}
    *at_once, n_none = run(grammar, script, grammar_work=1 << 40, **options)
    *deferred, n_deferred = run(grammar, script, grammar_work=0, **options)
    assert deferred == at_once
    assert n_none == 0
    assert n_deferred > 0


@given(seed=st.integers(0, 1 << 31), work=st.integers(0, 400))
@settings(max_examples=30, deadline=None)
def test_a_deferred_pick_draws_the_same_numbers(seed, work):
    """The first pick's random number is used up when the second is made, wherever that is."""
    values = {"temperature": 3.0, "top_k": 0, "seed": seed, "xtc_probability": 0.5}

    def tokens(grammar_work):
        with Harness(Fake(script=b'["ab",1,2,"cd"]'), grammar_work=grammar_work) as h:
            compiled = Grammar(LIST, Pieces(h.vocab))
            h.sampling = sampling(["xtc", "temperature"], **values)
            task = h.submit(grammar=compiled.id, n_predict=40)
            h.wait(task)
            return h.tokens(task), type(h.end(task)), h.stats()["n_deferred"]

    (wanted, wanted_end, _), (found, end, _) = tokens(1 << 40), tokens(work)
    assert (found, end) == (wanted, wanted_end)


def test_a_stream_that_is_alone_is_not_deferred():
    *_, ends, n_deferred = run(LIST, b'["one",2]', grammar_work=-1)
    assert ends == [STOP_EOS]
    assert n_deferred == 0


def test_others_go_on_while_a_pick_takes_long():
    """Between two tokens of the stream with the grammar the other has written more than one."""
    with Harness(Fake(script=b"a" * 100_000, n_ctx=1024), n_ctx=1024) as h:
        grammar = Grammar(AMBIGUOUS, Pieces(h.vocab))
        plain = h.submit(b"plain")
        h.wait_first(plain)
        hard = h.submit(b"hard", grammar=grammar.id, n_predict=200)
        h.wait(hard)
        h.port.abort(plain)
        h.wait(plain)
        assert h.text(hard) == b"a" * 200
        mine, other = h.slot(hard), h.slot(plain)
        wrote = [{row.slot for row in step.slots if row.is_decoding} for step in h.steps]
        turns = [i for i, slots in enumerate(wrote) if mine in slots]
        alone = [slots for slots in wrote[turns[0] : turns[-1]] if slots == {other}]
        assert len(alone) > 0
        stats = h.stats()
        assert stats["n_deferred"] > 0
        assert stats["deferred_us"] > 0


def test_a_prompt_is_read_while_a_pick_takes_long():
    with Harness(Fake(script=b"a" * 100), n_ctx=512, grammar_work=0) as h:
        grammar = Grammar(AMBIGUOUS, Pieces(h.vocab))
        hard = h.submit(b"hard", grammar=grammar.id, n_predict=60)
        h.wait_first(hard)
        reader = h.submit(b"r" * 400, n_predict=3)
        h.wait(reader, hard)
        assert h.text(reader) == b"aaa"
        assert isinstance(h.end(hard), Done)


def test_one_grammar_in_several_streams():
    """They share its lock; who finds it taken for long is deferred as well."""
    texts, _, ends, _ = run(AMBIGUOUS, b"a" * 60, grammar_work=-1, n_streams=4, n_predict=50)
    assert texts == [texts[0]] * 4
    assert ends == [STOP_LIMIT] * 4


def test_a_grammar_that_takes_too_much_ends_its_own_stream_only():
    with Harness(Fake(script=b"a" * 4000, n_ctx=4096), n_ctx=4096) as h:
        grammar = Grammar('root ::= s\ns ::= "a" s s s | "a" s s | "a" s | "a"', Pieces(h.vocab))
        hard = h.submit(b"hard", grammar=grammar.id)
        plain = h.submit(b"plain", n_predict=1000)
        h.wait(hard, plain)
        assert isinstance(h.end(plain), Done)


@pytest.mark.parametrize("how", ["abort", "deadline", "stop", "fail"])
@pytest.mark.parametrize("n_hard", [1, 4])
def test_a_task_that_ends_while_its_pick_is_deferred(how, n_hard):
    """More streams than grammar threads: some picks run, some wait."""
    fake = Fake(script=b"a" * 500)
    with Harness(fake, n_slots=n_hard + 1, grammar_work=0) as h:
        pieces = Pieces(h.vocab)
        grammars = [Grammar(f"{AMBIGUOUS} # {i}", pieces) for i in range(n_hard)]
        deadline = clock_us() + 30_000 if how == "deadline" else 0
        plain = h.submit(b"plain", n_predict=400)
        hard = [
            h.submit(b"hard %d" % i, grammar=one.id, deadline_us=deadline) for i, one in enumerate(grammars)
        ]
        if how != "deadline":
            h.until(lambda: h.stats()["n_deferred"] >= 20 * n_hard)
        if how == "abort":
            for task in hard:
                h.port.abort(task)
        elif how == "fail":
            fake.fail_next(-2, n_times=50)  # until all are given up
        elif how == "stop":
            return
        h.wait(plain, *hard)
        fake.fail_next(0)
        if how in ("abort", "deadline"):
            failure = FAILURE_ABORTED if how == "abort" else FAILURE_DEADLINE
            for end in map(h.end, hard):
                assert end == Failed(failure, 0) or end.stop_type == STOP_EOS
        h.until(lambda: h.core.n_idle() == n_hard + 1)


def test_a_full_context_comes_after_the_deferred_token():
    """Where a context may not shift, the last token that has room is the same."""

    def length(grammar_work):
        with Harness(Fake(script=b"a" * 200, n_ctx=64), n_ctx=64, grammar_work=grammar_work) as h:
            grammar = Grammar('root ::= "a"*', Pieces(h.vocab))
            tasks = [
                h.submit(grammar=grammar.id, context_shift=shift, n_predict=90) for shift in (False, True)
            ]
            h.wait(*tasks)
            return [(len(h.text(task)), h.end(task).stop_type, h.end(task).truncated) for task in tasks]

    assert length(0) == length(1 << 40)


def test_a_paused_stream_gets_its_deferred_token_and_no_other():
    with Harness(Fake(script=b"a" * 400), grammar_work=0) as h:
        grammar = Grammar(AMBIGUOUS, Pieces(h.vocab))
        hard = h.submit(grammar=grammar.id, n_predict=300)
        h.wait_first(hard)
        h.port.pause(hard)
        h.wait(h.submit(b"other", n_predict=1))
        n = len(h.text(hard))
        h.wait(h.submit(b"another", n_predict=300))
        assert len(h.text(hard)) <= n + 1 < 300
        h.port.resume(hard)
        h.wait(hard)
        assert h.text(hard) == b"a" * 300


actions = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "plain", "abort", "pause", "resume", "fail", "wait"]),
        st.integers(0, 40),
        st.integers(-2, 60),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    actions=actions,
    n_slots=st.integers(1, 4),
    shared=st.booleans(),
    mix=st.booleans(),
    work=st.sampled_from([-1, 0, 0, 50, 1000]),
)
def test_any_order_of_commands_leaves_nothing_behind(actions, n_slots, shared, mix, work):
    """Invariants: those of Harness.__exit__; and whatever a stream under a grammar said fits it."""
    fake = Fake(n_ctx=128, n_batch=32, script=b"a" * 80)
    sizes = {"n_ctx": 128, "n_batch": 32, "n_cells": 128 if shared else 0}
    with Harness(fake, n_slots=n_slots, cont_batching=mix, grammar_work=work, **sizes) as h:
        pieces = Pieces(h.vocab)
        grammars = [Grammar(text, pieces) for text in (AMBIGUOUS, LIST, 'root ::= ("a" | "aa")*')]
        tasks, under = [], {}
        for action, x, y in actions:
            if action in ("submit", "plain"):
                grammar = grammars[x % 3] if action == "submit" else None
                options = {"grammar": grammar.id, "n_probs": x % 4} if grammar else {}
                if x % 7 == 0:
                    options["deadline_us"] = clock_us() + 1000 * x
                tasks.append(h.submit(bytes([x + 33]) * (x + 1), n_predict=y, stream=x % 2 == 0, **options))
                under[tasks[-1]] = grammar
            elif action == "wait":
                for _ in range(y):
                    h.collect()
            elif action == "fail":
                if x == 0:
                    fake.fail_next(-2)
            elif tasks:
                getattr(h.port, action)(tasks[x % len(tasks)])
        for task in tasks:
            h.port.resume(task)
            h.port.abort(task)
        h.wait(*tasks)
        assert all(one is None or one.accepts_prefix(h.text(task)) for task, one in under.items())


# --- the allowance itself --------------------------------------------------------------------------------------


@pytest.fixture
def pieces():
    with Harness(Fake(script=b"a")) as h:
        yield Pieces(h.vocab), lambda text: h.vocab.tokenize(text, False, False)[0]


def test_an_allowance_limits_a_call_and_not_the_text(pieces):
    words, token = pieces
    matcher = Matcher(Grammar(LIST, words))
    matcher.set_allowance(0)
    for call in (lambda: matcher.allows(token(b"[")), matcher.bits, lambda: matcher.accept(token(b"["))):
        with pytest.raises(GrammarLater):
            call()
    matcher.set_allowance(-1)
    known = matcher.bits()
    assert matcher.allows(token(b"["))
    matcher.set_allowance(0)
    assert matcher.bits() == known
    assert matcher.allows(token(b"["))
    assert not matcher.allows(token(b"x"))
    assert matcher.accept(token(b"["))
    with pytest.raises(GrammarLater):
        matcher.bits()


def test_an_allowance_is_for_all_calls_together(pieces):
    words, token = pieces
    matcher = Matcher(Grammar('root ::= [a-z]* "." [0-9]* "!"', words))

    def accept_all(text):
        for letter in text:
            matcher.accept(token(bytes([letter])))

    matcher.set_allowance(10)
    with pytest.raises(GrammarLater):
        accept_all(b"a.0!")
    matcher.set_allowance(10)
    accept_all(b"0")


def test_work_within_allowances_counts_against_the_matchers_own(pieces):
    """A text that is too much stays too much however small the pieces it is worked out in."""
    words, token = pieces
    matcher = Matcher(Grammar('root ::= s\ns ::= "a" s s s | "a" s s | "a" s | "a"', words))

    def accept(letter):
        matcher.set_allowance(5000)
        try:
            matcher.accept(letter)
        except GrammarLater:
            matcher.set_allowance(-1)
            matcher.accept(letter)

    def accept_endless():
        while True:
            accept(token(b"a"))

    with pytest.raises(GrammarTooMuch):
        accept_endless()


def test_a_cancelled_matcher_gives_up(pieces):
    words, token = pieces
    matcher = Matcher(Grammar(LIST, words))
    matcher.cancel()
    with pytest.raises(GrammarTooMuch):
        matcher.accept(token(b"["))
