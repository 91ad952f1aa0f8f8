"""An engine over the fake model, driven by hand: submit tasks, collect their events, check nothing is left over."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from types import SimpleNamespace

from llamad.client.adapters import AdapterSet
from llamad.client.command import Command
from llamad.client.events import Acted, Admitted, Done, Failed
from llamad.client.port import Port
from llamad.client.task import Action, RequestContext, Task
from llamad.client.text_event import TextEvent
from llamad.engine.core import Core
from llamad.engine.testing.fake import Fake
from llamad.options.table import Options
from llamad.protocol.blobs import Blob
from llamad.protocol.messages import (
    EVENT_ACTION,
    EVENT_STEP,
    RESULT_DONE,
)
from llamad.protocol.sampling_params import Sampling
from llamad.ses1.ses1 import Layout
from llamad.tokenizer.vocab import Vocab

# Sanitizers make everything slower.
WAIT_SECONDS = 30 * float(os.environ.get("LLAMAD_TEST_PATIENCE", "1"))


def sampling(names, *, seed=1, newline_token=-1, end_token=-1, **options):
    """Sampling parameters with this chain; -1 is the context only to the API."""
    options = {"dry_penalty_last_n": 512, **options}
    return Sampling(tuple(names), Options(**options), seed, newline_token, end_token)


GREEDY = sampling(["temperature"], temperature=0.0)


def learn_layout(core: Core, token: int, n_window: int = 0) -> Layout:
    """The layout of this core's states, before its thread runs."""
    one, two = core.probe(token)
    return Layout(one, two, n_window)


class Harness:
    """Collects events by task. Leaving the block stops the engine and checks that everything was given back."""

    def __init__(self, fake: Fake, *, n_slots=4, n_ctx=512, n_batch=64, **options):
        self.fake = fake
        self.vocab = Vocab(fake.table, fake.vocab, fake.n_vocab)
        options = {
            "n_cells": 0,
            "n_swa": 0,
            "n_ubatch": min(512, n_batch),
            "add_bos": True,
            "similarity_min": 0.5,
            "step_tokens_max": 0,
            "n_sampler_threads": 2,
            "cont_batching": True,
            "tracing": True,
        } | options
        self.core = Core(self.vocab, fake.ctx, n_slots=n_slots, n_ctx=n_ctx, n_batch=n_batch, **options)
        self.port = Port(self.core.link)
        self.n_slots = n_slots
        self.group_n = options.get("group_n", 1)
        self.events = defaultdict(list)
        self.steps = []
        self.order = []  # kind and task or action of every event, as they came
        self.acted = {}  # action: its event, or None while it waits
        self.blobs = {}
        self.next_id = 1
        self.sampling = GREEDY
        self.was_lost = False  # the engine ended by itself
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.was_lost = not self.core.run()

    def __del__(self):
        self.core = None  # before the fake, to which it gives its memory back

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self.fake.block(False)
        self.port.stop()
        self.until(lambda: not self._thread.is_alive())
        for _ in range(64):  # what is still in the ring
            self.collect()
        self.core.descriptors.close()  # both sides have their own copies
        if error[0] is None:
            assert self.core.check_integrity() == 0
            assert self.fake.bad_calls == 0
            assert self.fake.n_wrong == 0
            assert self.fake.n_samplers == 0
            self.check_cells()
            assert None not in self.acted.values(), "an action was not answered"
            for task_id, events in self.events.items():
                ends = [event for event in events if isinstance(event, Done | Failed)]
                assert len(ends) == 1, f"task {task_id} ended {len(ends)} times"
                assert events[-1] is ends[0]
                times = [0, *(event.predict_us for event in events if isinstance(event, TextEvent))]
                assert times == sorted(times), f"task {task_id} writes before its first token"

    def check_cells(self) -> None:
        """What the slots say they hold is what the model's memory holds, at the right positions."""
        for slot in range(self.n_slots):
            cells = self.fake.cells(slot)
            assert [token for _, token in cells] == self.core.slot_tokens(slot), f"slot {slot}"
            if self.group_n == 1:
                assert [pos for pos, _ in cells] == list(range(len(cells))), f"slot {slot}"

    def submit(self, prompt: bytes = b"hello", ids: bytes | None = None, **options) -> int:
        """A task for a text, or for tokens as int32."""
        task_id = self.next_id
        self.next_id += 1
        self.events[task_id] = []
        tokens = self.vocab.tokenize(prompt, True, True) if ids is None else ids
        wake = options.pop("wake", True)
        command = Command(self._task(tokens, options))
        while not self.port.submit(task_id, command, wake=wake):
            self.collect()
        return task_id

    def _task(self, tokens: bytes, options: dict) -> Task:
        """`options` are fields of Options, RequestContext, AdapterSet or Task. A grammar is its number."""

        def taken(struct) -> dict:
            return {name: options.pop(name) for name in struct.__struct_fields__ if name in options}

        grammar = options.pop("grammar", 0)
        return Task(
            RequestContext("request", **taken(RequestContext)),
            tokens,
            self.sampling,
            stream=options.pop("stream", True),
            grammar=SimpleNamespace(id=grammar) if grammar else None,
            adapters=AdapterSet(**taken(AdapterSet)),
            n_keep=options.pop("n_keep", 0),
            options=Options(**taken(Options)),
            **options,
        )

    def act(self, kind: int, slot: int, blob: Blob | None = None, *, nowait: bool = False, **options) -> int:
        action_id = self.next_id
        self.next_id += 1
        self.acted[action_id] = None
        self.blobs[action_id] = blob
        action = Action(kind, slot, blob, nowait, **options)
        while not self.port.act(action_id, action):
            self.collect()
        return action_id

    def done(self, action_id: int) -> Acted:
        """Wait for the action's answer."""
        self.until(lambda: self.acted[action_id] is not None)
        return self.acted[action_id]

    def collect(self) -> None:
        """Bounded: an endless task may write faster than this reads."""
        for _ in range(16):
            events = self.port.poll()
            for kind, id, event in events:
                self.order.append((kind, id))
                if kind == EVENT_STEP:
                    self.steps.append(event)
                elif kind == EVENT_ACTION:
                    assert self.acted[id] is None, "an action was answered twice"
                    self._on_acted(id, event)
                else:
                    self.events[id].append(event)
            if not events:
                return

    def _on_acted(self, action_id: int, acted: Acted) -> None:
        self.acted[action_id] = acted
        blob = self.blobs.pop(action_id)
        if blob is not None and acted.result == RESULT_DONE:
            blob.size = acted.n_bytes

    def stats(self) -> dict[str, int]:
        """The engine's counters, those of the events that were collected among them: it publishes at its turn's end."""
        turn, t_end = self.port.turn(), time.monotonic() + 0.05  # while it gathers tasks no turn begins
        self.until(
            lambda: (
                self.port.turn() != turn
                or turn[1]
                or self.fake.is_waiting
                or not self.is_alive
                or time.monotonic() > t_end
            )
        )
        return self.port.stats()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def until(self, condition) -> None:
        """Collect events until the condition holds."""
        t_end = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < t_end, "the engine did not get there"
            time.sleep(0.0005)
            self.collect()

    def catch(self) -> None:
        """Block the fake, and return once a decode waits: what is handed in now is seen all at once, after it."""
        self.fake.block(True)
        self.until(lambda: self.fake.is_waiting)

    def wait(self, *task_ids: int) -> None:
        left = list(reversed(task_ids))

        def have_ended() -> bool:
            while left and self.end(left[-1]):
                left.pop()
            return not left

        self.until(have_ended)

    def wait_first(self, task_id: int, kind: type = TextEvent) -> None:
        self.until(lambda: any(isinstance(event, kind) for event in self.events[task_id]))

    def end(self, task_id: int):
        """The task's last event, or None while it runs."""
        events = self.events[task_id]
        return events[-1] if events and isinstance(events[-1], Done | Failed) else None

    def told(self, task_id: int, kind: type) -> list:
        """The task's events of one kind."""
        return [event for event in self.events[task_id] if isinstance(event, kind)]

    def texts(self, task_id: int) -> list[TextEvent]:
        return self.told(task_id, TextEvent)

    def admitted(self, task_id: int) -> Admitted:
        return self.told(task_id, Admitted)[0]

    def text(self, task_id: int) -> bytes:
        return b"".join(text.data for text in self.texts(task_id))

    def tokens(self, task_id: int) -> list[int]:
        return [token for text in self.texts(task_id) for token in text.tokens]

    def probs(self, task_id: int) -> list[tuple[float, list[tuple[int, float]]]]:
        return [one for text in self.texts(task_id) for one in text.probs]

    def n_cached(self, task_id: int) -> int:
        return self.admitted(task_id).n_cached

    def slot(self, task_id: int) -> int:
        return self.admitted(task_id).slot
