"""A fleet without processes: drives a scheduler, answers its effects, and writes them down as short texts."""

from __future__ import annotations

from collections import deque

from llamad.models.fleet.effects import Admit, Limits, Proceed, Refit, Refuse, Start, Stop
from llamad.models.fleet.scheduler import Scheduler


def text(effect) -> str:
    if isinstance(effect, Admit):
        return f"admit {effect.ticket}"
    if isinstance(effect, Refuse):
        return f"refuse {effect.ticket} {effect.status}"
    if isinstance(effect, Stop):
        return f"stop {effect.model} {effect.reason}"
    return f"{type(effect).__name__.lower()} {effect.model}"


class Fleet:
    """`needs` are the bytes of each model by device, or a number for the device "gpu". With `is_prompt` every effect is
    answered at once, so that a call returns when nothing is under way."""

    def __init__(
        self, needs, *, capacity=None, is_prompt=True, memory_max=0, pinned="", sleep=-1.0, **limits
    ):
        self.needs = {name: {"gpu": n} if isinstance(n, int) else n for name, n in needs.items()}
        self.capacity = capacity or {}
        if isinstance(self.capacity, int):
            self.capacity = {"gpu": self.capacity}
        self.measured = {}
        self.is_prompt = is_prompt
        self.now = 100.0
        self.log: list[str] = []
        self.refusals: list[Refuse] = []
        self.scheduler = Scheduler(Limits(**limits), memory_max)
        for name in needs:
            self.scheduler.add(name, is_pinned=name in pinned.split(), sleep_seconds=sleep)

    def do(self, event: str, *args, **kwargs) -> list[str]:
        """Pass one event on, and return the effects that followed from it as texts."""
        begin = len(self.log)
        effects = deque(getattr(self.scheduler, event)(*args, self.now, **kwargs))
        while effects:
            effect = effects.popleft()
            self.log.append(text(effect))
            if isinstance(effect, Refuse):
                self.refusals.append(effect)
            if self.is_prompt:
                effects.extend(self._answer(effect))
        return self.log[begin:]

    def _answer(self, effect):
        if isinstance(effect, Start | Refit):
            return self.scheduler.planned(effect.model, self.needs[effect.model], self.capacity, self.now)
        if isinstance(effect, Proceed):
            measured = self.measured.get(effect.model, self.needs[effect.model])
            return self.scheduler.loaded(effect.model, measured, self.now, 5.0)
        if isinstance(effect, Stop):
            return self.scheduler.stopped(effect.model, self.now)
        return []

    def planned(self, name, need=None) -> list[str]:
        self.needs[name] = need or self.needs[name]
        begin = len(self.log)
        effects = self.scheduler.planned(name, self.needs[name], self.capacity, self.now)
        self.log += map(text, effects)
        return self.log[begin:]

    def loaded(self, name, measured=None) -> list[str]:
        begin = len(self.log)
        effects = self.scheduler.loaded(name, measured or self.needs[name], self.now, 5.0)
        self.log += map(text, effects)
        return self.log[begin:]

    def serve(self, name, ticket) -> list[str]:
        """Let one request come and end, and time pass."""
        effects = self.do("request", name, ticket)
        self.wait(0.5)
        effects += self.do("done", name)
        return effects

    def wait(self, seconds: float) -> list[str]:
        """Let time pass, with every tick that the scheduler asks for."""
        begin = len(self.log)
        end = self.now + seconds
        while (time := self.scheduler.next_tick(self.now)) is not None and time <= end:
            assert time >= self.now
            self.now = time
            effects = self.do("tick")
            next_time = self.scheduler.next_tick(self.now)
            assert effects or next_time is None or next_time > self.now, (
                "a tick that does nothing asks for another"
            )
        self.now = end
        return self.log[begin:]

    def states(self) -> dict[str, str]:
        return {name: str(self.scheduler.state(name)) for name in self.needs}

    def __getitem__(self, name) -> str:
        return str(self.scheduler.state(name))
