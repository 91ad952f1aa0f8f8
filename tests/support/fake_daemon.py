"""The whole daemon in this process, over the fake model: for what a real model cannot be made to do on demand."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Protocol

import uvloop

from llamad.api.service.served_model import ServedModel
from llamad.daemon import Daemon
from llamad.engine.core import Core
from llamad.engine.testing.fake import Fake
from llamad.flags.parse import parse
from llamad.flags.sources import Sources
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.protocol.control_messages import Loaded, Ready
from llamad.protocol.model_info import Model, ModelInfo, VectorInfo
from llamad.tokenizer.vocab import Vocab
from support.http_client import Client
from support.local_engine import Computer, LocalAsking, LocalEngine
from support.loops.watchdog import Watchdog, to_stderr

WAIT_SECONDS = 30
LATE_SECONDS = 0.25  # a loop that was later says what held it


class Vectors(Computer, Protocol):
    """What computes vectors, and what of."""

    info: VectorInfo
    n_pack: int
    n_seq_max: int


class FakedHost(Host):
    """A host whose engine is a thread of this process."""

    def __init__(
        self, settings: Any, fake: Fake, n_ctx: int, n_batch: int, vectors: Vectors | None = None
    ) -> None:
        super().__init__(settings)
        self.vectors_fake = vectors
        self.fake = fake
        self.n_ctx_fake = n_ctx
        self.n_batch_fake = n_batch
        self.local: LocalEngine | None = None

    async def load(self) -> None:
        vocab = Vocab(self.fake.table, self.fake.vocab, self.fake.n_vocab)
        info = ModelInfo("fake.gguf", "fake", 1, self.fake.n_vocab, 8192, 16, 1000, 4000, "", 0, 1, -1, True)
        vectors = self.vectors_fake
        self.model = Model(
            info,
            vocab,
            n_ctx=self.n_ctx_fake * self.settings.n_parallel,
            n_ctx_slot=self.n_ctx_fake,
            vectors=vectors.info if vectors is not None else None,
        )
        self.prepare_users(self.model)
        core = Core(
            vocab,
            self.fake.ctx,
            n_slots=self.settings.n_parallel,
            n_ctx=self.n_ctx_fake,
            n_cells=0,
            n_batch=self.n_batch_fake,
            n_ubatch=min(512, self.n_batch_fake),
            n_swa=0,
            add_bos=True,
            similarity_min=0.5,
            step_tokens_max=self.settings.step_tokens_max,
            n_sampler_threads=1,
            cont_batching=True,
            tracing=False,
            n_text_max=max(info.n_ctx_train, self.n_ctx_fake),
        )
        asking = LocalAsking(vocab, vectors)
        self.connect(core.link, asking)
        assert self.engine is not None
        self.local = LocalEngine(core, self.engine, asking)
        self.local.start()
        self.set_states(Ready([], 0))
        if vectors is not None:
            pack = (vectors.n_pack, vectors.n_seq_max)
            self.connect_vectors(Loaded(info, 0, 0, True, vectors.info, pack, []), asking)
        await self.show_engine()
        self.state = State.READY

    async def replace(self) -> None:
        """The engine ends, and another one serves, with a vocabulary of its own: as if the model's file were another
        one."""
        assert self.local is not None
        await self.local.stop()
        self.disconnect(is_stopped=False)
        await self.load()

    async def close(self) -> None:
        if self.local is not None:
            await self.local.stop()
        await super().close()


class Faked:
    """`fake` drives the model; the daemon runs in a thread with a loop of its own."""

    loop: asyncio.AbstractEventLoop
    host: FakedHost
    daemon: Daemon

    def __init__(
        self,
        fake: Fake,
        *flags: str,
        n_ctx: int = 512,
        n_batch: int = 64,
        load: bool = True,
        vectors: Vectors | None = None,
        sources: Sources | None = None,
    ) -> None:
        self.fake = fake
        settings = parse(["-m", "fake.gguf", "--port", "0", "-np", "1", *flags], {}).settings
        self._started = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None

        async def run() -> None:
            self.loop = asyncio.get_running_loop()
            self._leave = asyncio.Event()
            self.host = FakedHost(settings.model, fake, n_ctx, n_batch, vectors)
            self.daemon = Daemon(settings, self.host, sources=sources)
            await self.daemon.start()
            if load:
                await self.host.load()
            pings = asyncio.ensure_future(self.daemon.service.watch_streams())
            watchdog = Watchdog(LATE_SECONDS, to_stderr, has_stacks=False)
            self._started.set()
            await self._leave.wait()
            pings.cancel()
            watchdog.close()
            await self.daemon.close()

        def main() -> None:
            try:
                uvloop.run(run())
            except BaseException as error:
                self._error = error
            self._started.set()
            self._ended.set()

        self._thread = threading.Thread(target=main, daemon=True)
        self._thread.start()
        assert self._started.wait(WAIT_SECONDS)
        if self._error is not None:
            raise self._error
        host, port = self.daemon.address.removeprefix("http://").rsplit(":", 1)
        self.client = Client(host, int(port))

    def until(self, condition: Any) -> None:
        t_end = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < t_end, "the server did not get there"
            time.sleep(0.002)

    @property
    def served(self) -> ServedModel:
        """The one model."""
        return next(iter(self.daemon.models))

    @property
    def engine(self) -> Any:
        return self.host.engine

    def __enter__(self) -> Faked:
        return self

    def leave(self) -> None:
        """Close the daemon and end its thread."""
        self.loop.call_soon_threadsafe(self._leave.set)
        assert self._ended.wait(WAIT_SECONDS)
        assert self._error is None, self._error

    def __exit__(self, *_: object) -> None:
        self.fake.block(False)
        self.leave()
        assert self.fake.bad_calls == 0
        assert self.fake.n_samplers == 0
