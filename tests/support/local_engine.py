"""An engine in this process: its thread runs beside the test, and what the control socket would carry is a call."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Protocol

from llamad.client.engine_client import EngineClient
from llamad.client.grammar import EngineGrammar
from llamad.engine.core import Core
from llamad.grammar.grammar import Grammar, Pieces
from llamad.protocol.blobs import Blob
from llamad.protocol.control_messages import Embedded, MediaRun
from llamad.protocol.messages import FAILURE_ABORTED, RESULT_ABORTED
from llamad.tokenizer.vocab import Vocab

STOP_SECONDS = 1.0


class Computer(Protocol):
    """What computes vectors."""

    def use(self, adapters: list[tuple[int, float]]) -> int: ...

    def compute(self, memory: memoryview, lengths: list[int]) -> int: ...


class LocalAsking:
    """Blobs of this process need no lending; grammars are compiled in a thread, as the engine does."""

    def __init__(self, vocab: Vocab | None = None, computer: Computer | None = None) -> None:
        self._vocab = vocab
        self._computer = computer
        self._pieces: Pieces | None = None
        self._grammars: dict[int, Grammar] = {}
        self._lock = threading.Lock()

    async def compile(self, text: str, time_max_us: int) -> EngineGrammar:
        def work() -> Grammar:
            assert self._vocab is not None
            with self._lock:
                if self._pieces is None:
                    self._pieces = Pieces(self._vocab)
                return Grammar(text, self._pieces, time_max_us=time_max_us)

        grammar = await asyncio.get_running_loop().run_in_executor(None, work)
        self._grammars[grammar.id] = grammar
        return EngineGrammar(grammar.id, grammar.n_bytes, self, text, time_max_us)

    def drop_grammar(self, number: int) -> None:
        self._grammars.pop(number, None)

    async def lend(self, blob: Blob) -> bool:
        return True

    def give_back(self, blob: Blob) -> None:
        pass

    async def embed(
        self, blob: Blob, lengths: list[int], runs: list[MediaRun], adapters: list[tuple[int, float]]
    ) -> Embedded:
        assert self._computer is not None
        assert not runs
        work = self._computer.compute
        t_start = time.monotonic()
        code = self._computer.use(adapters)
        if code == 0:
            code = await asyncio.get_running_loop().run_in_executor(None, work, memoryview(blob), lengths)
        return Embedded(0, code, time.monotonic() - t_start)


class LocalEngine:
    """The core's thread and the front's engine, connected."""

    def __init__(self, core: Core, engine: EngineClient, asking: LocalAsking) -> None:
        self.core = core
        self.engine = engine
        self.was_lost = False
        self._thread = threading.Thread(target=self._run, name="llamad-engine", daemon=True)
        self._asking = asking

    def _run(self) -> None:
        self.was_lost = not self.core.run()

    def start(self) -> None:
        if not self.engine.is_connected:
            self.engine.connect(self.core.link, self._asking)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    async def stop(self) -> None:
        """As the front ends an engine: it is asked to, and what it has not answered by then fails."""
        self.engine.stop()
        t_end = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < t_end:
            await asyncio.sleep(0.005)
        self.engine.disconnect(FAILURE_ABORTED, RESULT_ABORTED)

    def close(self) -> None:
        """The thread has ended, so the core may go."""
        assert not self._thread.is_alive()
        del self.core


def local_engine(core: Core, vocab: Vocab | None = None, *, n_slots: int, queue_max: int) -> LocalEngine:
    """An engine over this core, not started yet."""
    return LocalEngine(core, EngineClient(n_slots=n_slots, queue_max=queue_max), LocalAsking(vocab))
