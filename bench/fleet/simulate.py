"""Simulates one policy with one workload, event by event; the same seed gives the same result.

At the beginning, caches have conversations of the past. The time has three phases: the start, until everything is
steady; then a phase without events; then some machines fail at once, which the gateway notices after a second."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.fleet.machine import NEVER, Machine, Request, Speeds
from bench.fleet.policies import Loads, Policy
from bench.fleet.workload import Workload

NOTICED_SECONDS = 1.0
SAMPLE_SECONDS = 5.0
START, STEADY, AFTER = range(3)
# Kinds of events. The kind of a machine's event is the machine's number.
TURN, AGAIN, LOSS, SAMPLE = -1, -2, -3, -4


@dataclass(frozen=True, slots=True)
class Plan:
    n_machines: int = 1000
    seconds: float = 120.0
    counted_from: float = 40.0
    loss_at: float = 80.0
    lost: float = 0.01  # share of the machines
    seed: int = 1


@dataclass(slots=True)
class Part:
    """What was counted in one phase."""

    n_prompt: int = 0  # tokens sent
    n_computed: int = 0
    n_again: int = 0  # those that some machine had computed before
    first_s: list[float] = field(default_factory=list)  # from sending to the first token


@dataclass(slots=True)
class Result:
    parts: list[Part] = field(default_factory=lambda: [Part(), Part(), Part()])
    n_sent: int = 0
    n_done: int = 0
    n_in_flight: int = 0  # at the end
    n_restarted: int = 0  # requests whose machine failed
    spreads: list[float] = field(default_factory=list)  # requests of the busiest machine over the mean
    in_flight: list[float] = field(default_factory=list)  # requests, mean of a machine


class Simulation:
    def __init__(
        self,
        plan: Plan,
        speeds: Speeds,
        workload: Workload,
        policy: Callable[[Loads, Workload], Policy],
        context: int,
    ) -> None:
        self.plan = plan
        self.workload = workload
        self.context = context
        self.loads = Loads(plan.n_machines, plan.seed)
        self.policy = policy(self.loads, workload)
        stream = speeds.of_stream()
        self.machines = [Machine(i, speeds, stream) for i in range(plan.n_machines)]
        self.result = Result()
        self.history = list(workload.history)  # tokens of each conversation so far
        self.known = [0] * len(workload.first)  # of them computed on some machine
        self.turn = list(workload.first)
        self.systems: set[int] = set()  # computed on some machine
        self.events: list[
            tuple[float, int, int, int]
        ] = []  # time, kind or machine, version or conversation, order
        self.again: dict[int, Request] = {}
        self.n_events = 0
        for conversation, n_tokens in enumerate(workload.history):
            if n_tokens:
                self.known[conversation] = n_tokens
                self.systems.add(workload.system[conversation])
                self.machines[self.policy.start(conversation)].keep(conversation, n_tokens, workload.system)

    def push(self, t: float, kind: int, what: int) -> None:
        self.n_events += 1
        heapq.heappush(self.events, (t, kind, what, self.n_events))

    def part(self, t: float) -> Part:
        plan = self.plan
        return self.result.parts[START if t < plan.counted_from else STEADY if t < plan.loss_at else AFTER]

    def run(self) -> Result:
        plan, starts = self.plan, self.workload.starts
        at, events = 0, self.events
        self.push(plan.loss_at, LOSS, 0)
        self.push(plan.counted_from, SAMPLE, 0)
        while True:
            t_start = starts[at] if at < len(starts) else plan.seconds
            if events and events[0][0] <= t_start:
                t, kind, what, _ = heapq.heappop(events)
                if t >= plan.seconds:
                    break
                self.on_event(t, kind, what)
            elif at < len(starts) and t_start < plan.seconds:
                self.send(t_start, at)
                at += 1
            else:
                break
        self.result.n_in_flight = self.loads.total + len(self.again)
        return self.result

    def on_event(self, t: float, kind: int, what: int) -> None:
        if kind >= 0:
            machine = self.machines[kind]
            if machine.version == what:
                self.on_machine(machine, t)
        elif kind == TURN:
            self.send(t, what)
        elif kind == AGAIN:
            self.dispatch(t, self.again.pop(what))
        elif kind == LOSS:
            self.lose(t)
        else:
            self.sample()
            if t + SAMPLE_SECONDS < self.plan.loss_at:
                self.push(t + SAMPLE_SECONDS, SAMPLE, 0)

    def send(self, t: float, conversation: int) -> None:
        """Send the conversation's next turn."""
        work, turn = self.workload, self.turn[conversation]
        if not self.history[conversation]:
            self.history[conversation] = work.system_tokens[work.system[conversation]]
        n_prompt = self.history[conversation] + work.user[turn]
        self.result.n_sent += 1
        self.dispatch(t, Request(t, conversation, n_prompt, work.answer[turn]))

    def dispatch(self, t: float, request: Request) -> None:
        conversation = request.conversation
        id = self.policy.pick(conversation, self.history[conversation], request.n_prompt)
        machine = self.machines[id]
        self.loads.change(id, 1)
        if not machine.has_slot:
            machine.waiting.append(request)
            return
        was_idle = not machine.prefilling
        if was_idle:
            machine.advance(t)
        self.admit(machine, request, t)
        if was_idle:
            self.schedule(machine)

    def admit(self, machine: Machine, request: Request, t: float) -> None:
        """Give the request a slot; how much of its prompt is cached is decided now."""
        work, conversation = self.workload, request.conversation
        system = work.system[conversation]
        n_system = work.system_tokens[system]
        n_prompt = request.n_prompt
        n_cached = machine.cached(conversation, system, n_system)
        request.n_new = n_prompt - n_cached
        known = max(self.known[conversation], n_system if system in self.systems else 0)
        part = self.part(t)
        part.n_prompt += n_prompt
        part.n_computed += request.n_new
        part.n_again += max(0, known - n_cached)
        self.known[conversation] = n_prompt
        self.systems.add(system)
        machine.keep(conversation, n_prompt, work.system)
        machine.begin_prefill(request)

    def schedule(self, machine: Machine) -> None:
        t = machine.next_event()
        machine.version += 1
        if t < NEVER:
            self.push(t, machine.id, machine.version)

    def on_machine(self, machine: Machine, t: float) -> None:
        machine.advance(t)
        begun = machine.end_prefill()
        if begun is not None and not begun.is_begun:
            begun.is_begun = True
            self.part(begun.t_sent).first_s.append(t - begun.t_sent)
        while (ended := machine.end_decode()) is not None:
            self.finish(machine, ended, t)
        while machine.waiting and machine.has_slot:
            self.admit(machine, machine.waiting.popleft(), t)
        self.schedule(machine)

    def finish(self, machine: Machine, request: Request, t: float) -> None:
        work, conversation = self.workload, request.conversation
        n_tokens = request.n_prompt + request.n_answer
        self.history[conversation] = self.known[conversation] = n_tokens
        machine.keep(conversation, n_tokens, work.system)
        self.loads.change(machine.id, -1)
        self.result.n_done += 1
        turn = self.turn[conversation] = self.turn[conversation] + 1
        if turn < work.end[conversation] and n_tokens + work.user[turn] + work.answer[turn] <= self.context:
            self.push(t + work.think[turn], TURN, conversation)

    def lose(self, t: float) -> None:
        """Let machines fail. Clients, or the gateway for them, send unfinished requests again."""
        n = round(self.plan.lost * self.plan.n_machines)
        for id in random.Random(self.plan.seed).sample(range(self.plan.n_machines), n):
            self.loads.lose(id)
            for request in self.machines[id].lose():
                self.result.n_restarted += 1
                self.again[request.conversation] = request
                self.push(t + NOTICED_SECONDS, AGAIN, request.conversation)

    def sample(self) -> None:
        mean = self.loads.total / self.loads.n_alive
        self.result.in_flight.append(mean)
        if mean:
            self.result.spreads.append(max(self.loads.counts) / mean)
