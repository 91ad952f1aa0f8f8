"""Requests survive the end of their engine: the next one continues them, and for the same logits nobody sees a
difference."""

import asyncio
import math
import random
import struct
import time

import pytest
from support.engine_harness import sampling
from support.mortal_engine import Collected, MortalEngine

from llamad.base.clock import clock_us
from llamad.client import resumption
from llamad.client.command import packed_biases, packed_run
from llamad.client.task import RequestContext, Task
from llamad.engine.testing.fake import Fake
from llamad.engine.testing.fake_drafter import FakeDrafter
from llamad.options.table import Options
from llamad.protocol.blobs import Blob
from llamad.protocol.messages import FAILURE_ABORTED, FAILURE_DEADLINE, FAILURE_ENGINE
from llamad.protocol.row_ids import row_ids

END, FIRST_BYTE = 1, 3  # of the fake's tokens
FAKE_ROW = 8  # floats
ALL = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


def chaos(**options):
    """A model whose logits depend on each token and its position, and whose tokens are bytes: most texts have
    incomplete characters."""
    return lambda: Fake(chaos=7, **{"decode_us": 100, **options})


def run(make, tasks, *, seeds=range(6), n_crashes=3, **options):
    """The same results with crashes as without."""

    async def work(seed=None):
        engine = MortalEngine(make, resume_max=n_crashes, **options)
        made = await tasks(engine)
        crashes = random.Random(seed) if seed is not None else None
        results = await engine.run(made, crashes, n_crashes)
        n_went_on = engine.n_went_on
        await engine.close()
        return results, n_went_on

    expected, _ = asyncio.run(work())
    n_went_on = 0
    for seed in seeds:
        results, n = asyncio.run(work(seed))
        assert results == expected, f"seed {seed}"
        n_went_on += n
    assert n_went_on > 0
    return expected


def task(engine, prompt=b"hello", chain=ALL, **values):
    """`values` are fields of Task or of Options; those of samplers are for the chain, too."""
    own = set(Task.__struct_fields__) | {"context"}
    options = {name: values.pop(name) for name in list(values) if name not in own}
    options = {"n_predict": 200, "temperature": 0.9, **options}
    seed = options.pop("seed", 3)
    return Task(
        RequestContext("request", **values.pop("context", {})),
        engine.vocab.tokenize(prompt, True, True),
        sampling(chain, seed=seed, end_token=END, **{**options, "n_predict": 0}),
        options=Options(**options),
        vocab=engine.vocab,
        stream=values.pop("stream", True),
        **values,
    )


NO_END = packed_biases(struct.pack("<i", END), struct.pack("<d", -math.inf))
CHAINS = {
    "greedy": {"temperature": 0.0},
    "default": {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "whole": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "xtc": {"chain": ("xtc", "top_k", "xtc", "temperature"), "xtc_probability": 0.5, "xtc_threshold": 0.02},
    "mirostat_1": {"mirostat": 1},
    "mirostat_2": {"mirostat": 2, "mirostat_tau": 3.0},
    "adaptive": {"chain": (*ALL, "adaptive_p"), "adaptive_target": 0.3},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.4, "repeat_last_n": 100},
    "dry": {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 1},
    "infill": {"chain": ("top_k", "temperature", "infill"), "temperature": 0.05, "top_k": 30},
}


@pytest.mark.parametrize("name", CHAINS)
def test_samplers_go_on(name):
    async def tasks(engine):
        return [
            task(engine, prompt, seed=i, **CHAINS[name]) for i, prompt in enumerate([b"one", b"two", b"six"])
        ]

    run(chaos(), tasks)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("post", [False, True])
def test_probabilities_stops_and_held_text_go_on(stream, post):
    async def tasks(engine):
        stops = [b"\xc3\xa9t\xc3\xa9 impossible", b"ab", b"\x80\x81"]
        return [
            task(engine, b"p%d" % i, seed=i, n_probs=i, post_sampling_probs=post, stops=stops, stream=stream)
            for i in range(5)
        ]

    run(chaos(), tasks)


def test_a_long_answer_without_a_stream_is_not_lost():
    """It is told about every 16 tokens."""

    async def work():
        engine = MortalEngine(chaos(decode_us=1000))
        sink = engine.submit(task(engine, n_predict=400, stream=False, temperature=0.0))
        while len(sink.tokens) < 128:
            await asyncio.sleep(0)
        engine.kill()
        n_known = len(sink.tokens)
        engine.start()
        await asyncio.wait_for(sink.ended.wait(), 30)
        assert engine.client.stats()["n_recomputed"] >= n_known
        assert sink.done.n_decoded == 400 == len(sink.tokens)
        await engine.close()

    asyncio.run(work())


def test_grammars_go_on():
    """Compiled again in the next engine, and brought to where they were."""

    async def tasks(engine):
        made = []
        for text in (
            'root ::= [a-z]+ (" " [a-z]+)* "."',
            'root ::= ("(" root ")" | [a-f0-9])+',
            "root ::= [^x]*",
        ):
            grammar = await engine.asking.compile(text, 10**6)
            made += [task(engine, b"g", grammar=grammar, seed=i, stream=i == 0) for i in range(2)]
        return made

    run(chaos(), tasks)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_drafts_go_on(share):
    def drafts(core, fake):
        assert core.draft_with(FakeDrafter(fake.ctx, share=share), 4)

    async def tasks(engine):
        greedy = [task(engine, b"d%d" % i, temperature=0.0, n_probs=i) for i in range(2)]
        grammar = await engine.asking.compile('root ::= ("abcdefgh " [a-z] " ")+', 10**6)
        return [
            *greedy,
            task(engine, b"x", **CHAINS["xtc"]),
            task(engine, b"f", grammar=grammar, temperature=0.0),
        ]

    run(chaos(), tasks, drafts=drafts)


@pytest.mark.parametrize("n_keep", [-1, 0, 5])
def test_shifted_contexts_go_on(n_keep):
    async def tasks(engine):
        return [task(engine, b"s%d" % i, n_predict=300, n_keep=n_keep, seed=i) for i in range(3)]

    run(chaos(n_ctx=64), tasks, n_ctx=64)


def test_several_completions_of_one_prompt_go_on():
    async def tasks(engine):
        group = engine.client.new_group()
        return [task(engine, b"a longer prompt" * 5, group=group, seed=i) for i in range(6)]

    run(chaos(), tasks)


def test_prompt_probabilities_come_once():
    async def tasks(engine):
        prompt = b"to be or not to be " * 20
        return [task(engine, prompt, n_probs=2, prompt_probs=True, progress=True, n_predict=40)]

    run(chaos(decode_us=2000), tasks, n_batch=32, seeds=range(10))


def test_indented_text_and_biases_go_on():
    async def tasks(engine):
        newline_and_blank = struct.pack("<2i", FIRST_BYTE + 10, FIRST_BYTE + 32)
        bias = packed_biases(newline_and_blank, struct.pack("<2d", 6.0, 6.0))
        return [task(engine, b"i%d" % i, n_indent=1, bias=bias, seed=i, n_predict=60) for i in range(4)]

    run(chaos(decode_us=500), tasks, seeds=range(8))


@pytest.mark.parametrize(
    "kind", [{"recurrent": True, "can_cut": False}, {"n_swa": 32}, {"unified": True, "n_cells": 600}]
)
def test_all_kinds_of_memory_go_on(kind):
    async def tasks(engine):
        return [task(engine, b"m%d" % i, seed=i, n_predict=150) for i in range(6)]

    options = {name: kind[name] for name in ("n_swa", "n_cells") if name in kind}
    if "can_cut" in kind:
        options["can_share"] = False
    run(chaos(**kind), tasks, **options)


def test_images_go_on():
    """Their rows are mapped in the next engine, too."""

    async def tasks(engine):
        made = []
        for i in range(3):
            before, after = (engine.vocab.tokenize(b"text" * 9, is_first, True) for is_first in (True, False))
            blob = Blob(20 * FAKE_ROW * 4)
            blob.size = blob.capacity
            packed = packed_run(blob.id, 0, -1, len(before) // 4, 20)
            made.append(task(engine, seed=i, stream=i != 1, penalty=before + after, repeat_penalty=1.2))
            made[-1].prompt = before + row_ids(b"file %d" % i, 0, 20, 20, False) + after
            made[-1].rows = await engine.client.lend_rows(packed, [blob])
        return made

    run(chaos(decode_us=300), tasks, n_row=FAKE_ROW)


def crash_test(work, **options):
    async def whole():
        engine = MortalEngine(chaos(decode_us=1000), **options)
        await work(engine)
        await engine.close()

    asyncio.run(whole())


async def until(condition):
    for _ in range(20000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it did not get there")


def test_a_request_that_ran_in_two_crashes_fails():
    async def work(engine):
        first = engine.submit(task(engine, n_predict=5000, temperature=0.0, n_keep=0))
        await until(lambda: first.tokens)
        await engine.crash()
        second = engine.submit(task(engine, n_predict=20))
        n = len(first.tokens)
        await until(lambda: len(first.tokens) > n)
        await until(lambda: second.tokens or second.done)
        await engine.crash()
        await until(lambda: second.ended.is_set())
        assert first.failed == (FAILURE_ENGINE, 0)
        assert second.done.n_decoded == 20

    crash_test(work)


def test_a_request_that_only_waited_does_not_count():
    async def work(engine):
        running = engine.submit(task(engine, n_predict=5000))
        waiting = engine.submit(task(engine, n_predict=10))
        for _ in range(3):
            await until(lambda: engine.client.n_running == 1 or running.failed)
            if running.failed:
                break
            await engine.crash()
        await until(lambda: waiting.ended.is_set())
        assert running.failed == (FAILURE_ENGINE, 0)
        assert waiting.done.n_decoded == 10

    crash_test(work, n_slots=1)


def test_requests_that_had_a_slot_do_not_wait_for_one_in_the_next_engine():
    """They counted as waiting since they were submitted, so that streams without readers ended to make room. The time
    without an engine counted, too."""

    async def work(engine):
        running = engine.submit(task(engine, n_predict=5000))
        waiting = engine.submit(task(engine, n_predict=10))
        await until(lambda: running.tokens)
        t_before = time.monotonic()
        assert engine.client.n_queued(t_before) == 1
        engine.kill()
        engine.start()
        assert engine.client.n_waiting == 2
        assert engine.client.n_queued(t_before) == 0
        assert engine.client.n_queued(time.monotonic()) == 1
        engine.client.abort(running.task_id)
        await until(waiting.ended.is_set)

    crash_test(work, n_slots=1)


def test_a_request_that_ends_engines_while_they_admit_it_fails():
    """The front never hears that it has a slot, but sees which task the engine was about to admit."""

    def stuck():
        fake = Fake(chaos=7, decode_us=100)
        fake.block_removals(True)  # a slot that holds a prompt cannot be given to another one
        return fake

    async def work():
        engine = MortalEngine(stuck, n_slots=1)
        earlier = engine.submit(task(engine, b"one", n_predict=1))
        await until(earlier.ended.is_set)
        guilty = engine.submit(task(engine, b"two", n_predict=1))
        await until(lambda: engine.fake.is_waiting)
        waiting = engine.submit(task(engine, b"three", n_predict=1))
        engine.kill()
        assert guilty.failed is None
        first, earlier = task(engine, b"four", n_predict=1, context={"priority": 1}), Collected()
        engine.client.submit(first, earlier, goes_on=True)
        engine.start()
        await until(earlier.ended.is_set)
        await until(lambda: engine.fake.is_waiting)
        engine.kill()
        assert guilty.failed == (FAILURE_ENGINE, 0)
        assert waiting.failed is None
        engine.start()
        await until(waiting.ended.is_set)
        assert waiting.done.n_decoded == 1
        await engine.close()

    asyncio.run(work())


def test_without_the_flag_they_fail():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.kill()
        assert sink.failed == (FAILURE_ENGINE, 0)
        engine.start()

    crash_test(work, resume_max=0)


def test_clients_that_leave_between_engines_are_dropped_at_once():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.kill()
        engine.client.abort(sink.task_id)
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ABORTED, 0)
        assert engine.client.is_idle
        engine.start()

    crash_test(work)


@pytest.mark.parametrize("is_prepared", [False, True])
def test_clients_that_leave_as_the_next_engine_begins_leave_no_task_there(is_prepared, monkeypatch):
    """An abort between two engines takes effect in the next iteration of the event loop. An engine that got the task
    before that ran it to its end, and nobody told it to stop."""

    async def work(engine):
        prepared = asyncio.get_running_loop().create_future()

        async def prepare(*_):
            await prepared

        monkeypatch.setattr(resumption, "renew", prepare)
        grammar = await engine.asking.compile('root ::= "a"*', 10**6) if is_prepared else None
        sink = engine.submit(task(engine, grammar=grammar, n_predict=400, bias=NO_END))
        await until(lambda: sink.tokens)
        engine.kill()
        if is_prepared:
            engine.start()
            await asyncio.sleep(0.01)
            prepared.set_result(None)
            engine.client.abort(sink.task_id)
        else:
            engine.client.abort(sink.task_id)
            engine.start()
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ABORTED, 0)
        await asyncio.sleep(0.1)
        assert engine.client.n_idle() == engine.client.n_slots

    crash_test(work)


def test_deadlines_hold_between_engines():
    async def work(engine):
        context = {"deadline_us": clock_us() + 300_000}
        sink = engine.submit(task(engine, n_predict=5000, context=context))
        await until(lambda: sink.tokens)
        engine.kill()
        await until(lambda: sink.failed)
        assert sink.failed[0] == FAILURE_DEADLINE
        engine.start()

    crash_test(work)


def test_so_does_the_deadline_of_a_request_that_continues_with_another_task():
    """Only those that an engine had when it ended had a timer."""

    async def work(engine):
        engine.kill()
        sink = Collected()
        late = task(engine, n_predict=5000, context={"deadline_us": clock_us() + 50_000})
        engine.client.submit(late, sink, goes_on=True)
        await asyncio.wait_for(sink.ended.wait(), 10)
        assert sink.failed[0] == FAILURE_DEADLINE
        engine.start()

    crash_test(work)


def test_if_no_engine_comes_they_fail():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.kill()
        assert sink.failed is None
        engine.client.fail_orphans()
        assert sink.failed == (FAILURE_ENGINE, 0)
        engine.start()

    crash_test(work)


def test_a_drain_does_not_end_what_an_engine_prepares():
    """A daemon that drained failed running requests whose grammars were being compiled in the next engine."""

    async def work(engine):
        grammar = await engine.asking.compile('root ::= "a"*', 10**6)
        sink = engine.submit(task(engine, grammar=grammar, n_predict=100, bias=NO_END))
        await until(lambda: sink.tokens)
        engine.kill()
        engine.start()
        assert engine.client.n_waiting == 0
        engine.client.fail_orphans(FAILURE_ABORTED)
        await until(sink.ended.is_set)
        assert sink.done.n_decoded == 100
        assert engine.client.is_idle

    crash_test(work)


def test_a_request_continues_with_another_task_whatever_happens_to_engines():
    """As one does whose reasoning has used up its budget: it may have no engine, or one that lacks its grammar."""

    async def work(engine):
        grammar = await engine.asking.compile('root ::= "abc"*', 10**6)
        engine.kill()
        sinks = [Collected(), Collected()]
        engine.client.submit(task(engine, grammar=grammar, n_predict=30, bias=NO_END), sinks[0], goes_on=True)
        engine.start()
        engine.client.submit(task(engine, grammar=grammar, n_predict=30, bias=NO_END), sinks[1], goes_on=True)
        await until(lambda: all(sink.ended.is_set() for sink in sinks))
        assert [sink.data for sink in sinks] == [b"abc" * 10] * 2

    crash_test(work)


def test_requests_with_one_grammar_have_one_in_the_next_engine_too():
    """Each of them had its own compiled there. It is dropped after the last of them."""

    async def work(engine):
        grammars = [await engine.asking.compile(text, 10**6) for text in ('root ::= "a"*', 'root ::= "b"*')]
        sinks = [
            engine.submit(task(engine, b"%d" % i, grammar=grammars[i % 2], n_predict=200, bias=NO_END))
            for i in range(4)
        ]
        await until(lambda: all(sink.tokens for sink in sinks))
        engine.kill()
        engine.start()
        compiled, dropped = [], []
        compile_one = engine.asking.compile

        async def compiling(text, time_max_us):
            compiled.append(text)
            return await compile_one(text, time_max_us)

        engine.asking.compile, engine.asking.drop_grammar = compiling, dropped.append
        await until(lambda: any(len(sink.tokens) > 20 for sink in sinks))
        late = task(engine, b"late", grammar=grammars[0], n_predict=200, bias=NO_END)
        sinks.append(Collected())
        engine.client.submit(late, sinks[-1], goes_on=True)  # its grammar is there already
        await until(lambda: all(sink.ended.is_set() for sink in sinks))
        assert [sink.data for sink in sinks] == [b"a" * 200, b"b" * 200] * 2 + [b"a" * 200]
        assert sorted(compiled) == ['root ::= "a"*', 'root ::= "b"*']
        del late
        await until(lambda: len(dropped) == 2)

    crash_test(work)


def test_a_grammar_that_an_engine_cannot_compile_again_costs_its_request():
    async def work(engine):
        grammar = await engine.asking.compile('root ::= "a"*', 10**6)
        sink = engine.submit(task(engine, grammar=grammar, n_predict=400, bias=NO_END))
        await until(lambda: sink.tokens)
        grammar.text = "root ::= none"
        await engine.crash()
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ENGINE, 0)

    crash_test(work)


def test_an_engine_that_ends_while_it_prepares_a_request_counts():
    """A grammar that kills engines is not compiled for ever."""

    async def work(engine):
        grammar = await engine.asking.compile('root ::= "a"*', 10**6)
        sink = engine.submit(task(engine, grammar=grammar, n_predict=400, bias=NO_END))
        await until(lambda: sink.tokens)
        engine.kill()
        engine.start()
        engine.kill()  # before the event loop has had a turn
        await until(lambda: sink.failed)
        assert sink.failed == (FAILURE_ENGINE, 0)
        engine.start()

    crash_test(work)


def test_a_slow_reader_stays_paused():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=5000))
        await until(lambda: sink.tokens)
        engine.client.pause(sink.task_id)
        await engine.crash()
        await asyncio.sleep(0.1)
        n = len(sink.tokens)
        await asyncio.sleep(0.1)
        assert len(sink.tokens) == n
        engine.client.resume(sink.task_id)
        await until(lambda: len(sink.tokens) > n)
        engine.client.abort(sink.task_id)
        await until(lambda: sink.failed)

    crash_test(work)


def test_an_engine_that_says_that_its_context_is_lost_is_left_like_any_other():
    async def work(engine):
        sink = engine.submit(task(engine, n_predict=100))
        await until(lambda: sink.tokens)
        engine.fake.fail_next(-3, 100)
        await until(lambda: not engine.thread.is_alive())
        engine.kill()
        engine.start()
        await until(lambda: sink.ended.is_set())
        assert sink.done.n_decoded == 100

    crash_test(work)
