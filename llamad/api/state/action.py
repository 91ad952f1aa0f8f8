"""What all state actions share: checks, slot ids, limits on waiting, and error responses.

Runs on the event loop; long work goes to the state workers. Must not know any particular action.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from llamad.api.request.errors import ApiError, bad
from llamad.api.service.admission import Place
from llamad.api.service.served_model import ServedModel
from llamad.client.sessions import StoreFull
from llamad.client.slot_states import Saved, SlotBusy, StateRefused, States
from llamad.client.state_bytes import Hold, NoRoom
from llamad.client.state_files import FileRefused, StateFiles
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response
from llamad.protocol.blobs import Blob
from llamad.ses1.ses1 import StateError

T = TypeVar("T")

# llama.cpp's slot file has a longer header than SES1.
FILE_HEAD_SPARE = 64


class Ask:
    """An action in progress."""

    __slots__ = ("exchange", "nowait", "served", "slot", "states", "t_start")

    def __init__(self, served: ServedModel, exchange: Exchange, slot: int) -> None:
        self.served = served
        self.exchange = exchange
        self.slot = slot  # -1: none
        self.nowait = exchange.request.query.get("nowait", "0").lower() not in ("0", "false")
        self.states = served.states()
        self.t_start = time.monotonic()

    @property
    def key(self) -> str:
        return self.exchange.request.key_name

    @property
    def client(self) -> int:
        return self.served.service.client(self.exchange.request)

    @property
    def owner(self) -> int:
        return self.served.owner(self.exchange.request)

    def t_ms(self) -> float:
        return round((time.monotonic() - self.t_start) * 1e3, 3)

    def expected_bytes(self) -> int:
        """Return the estimated size of the slot's state, from its current tokens. It may have more once it is idle."""
        engine = self.served.host.engine
        n_tokens = engine.slots()[self.slot].n_tokens if engine is not None else 0
        assert self.states.layout is not None
        return self.states.layout.bytes(n_tokens)

    def send(self, value: dict[str, Any]) -> None:
        self.exchange.send(Response(200, msgspec.json.encode(value)))

    async def aside(self, work: Callable[..., T], *args: object) -> T:
        """Run long work in a state worker."""
        return await asyncio.get_running_loop().run_in_executor(self.states.workers, work, *args)


class Held:
    """The state bytes that a request holds until its response is complete; app.py ends it. `blob` is the buffer for its
    body, if there is one."""

    __slots__ = ("blob", "hold")

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.blob: Blob | None = None

    def end(self) -> None:
        self.hold.end()


def take_room(served: ServedModel, request: Request, n_bytes: int) -> Held:
    """Let the request hold `n_bytes` in all, or raise a 503."""
    held = request.buffer
    if not isinstance(held, Held):
        held = request.buffer = Held(served.room.hold())
    try:
        held.hold.grow(max(0, n_bytes - held.hold.n_bytes))
        return held
    except NoRoom:
        raise ApiError(
            503,
            f"States in transit already use the {served.room.bytes_max} bytes allowed for them;"
            " try again in a moment",
            headers=(("Retry-After", "1"),),
        ) from None


async def save(ask: Ask, copies: float) -> Saved:
    """Return the slot's state. Room for `copies` of it is taken before, and again after, because it may have grown."""
    need_layout(ask.states)
    request = ask.exchange.request
    take_room(ask.served, request, int(ask.expected_bytes() * copies))
    saved = await ask.states.save(ask.slot, nowait=ask.nowait, owner=ask.owner)
    take_room(ask.served, request, int(saved.blob.size * copies))
    return saved


def need_slots(served: ServedModel, what: str) -> None:
    if not served.service.settings.endpoint_slots:
        raise ApiError(501, f"This server does not support {what}. Start it with `--slots`")


def need_files(served: ServedModel, what: str) -> StateFiles:
    if served.files is None:
        raise ApiError(501, f"This server does not support {what}. Start it with `--slot-save-path`")
    return served.files


def need_layout(states: States) -> None:
    """Raise a 501 if this model's states cannot be saved."""
    if states.layout is None:
        raise ApiError(501, f"The slots of this model cannot be saved: {states.refusal}")


def action_of(request: Request, known: tuple[str, ...]) -> str:
    action = request.query.get("action", "")
    if action not in known:
        raise bad(f'"action" must be one of {", ".join(known)}, as in ?action={known[0]}')
    return action


def slot_of(served: ServedModel, value: str, name: str) -> int:
    """Return the slot number that `value` names. Raises a 400 if there is no such slot."""
    n_slots = served.settings.n_parallel
    slot = int(value) if value.isascii() and value.isdigit() and len(value) < 10 else -1
    if not 0 <= slot < n_slots:
        raise bad(f'"{name}" must be the number of a slot, 0 to {n_slots - 1}')
    return slot


def check_file(name: str, value: str) -> str:
    """Return a file name, or raise a 400 if it is empty."""
    if not value:
        raise bad(f'"{name}" must be the name of a file')
    return value


def run(ask: Ask, work: Coroutine[Any, Any, None]) -> None:
    """Start an action. Its errors become the response; it is cancelled if the client disconnects."""
    try:
        place = ask.served.state_actions.enter(ask.client)
    except ApiError:
        work.close()
        raise
    ask.served.service.spawn(ask.exchange, _run(ask, work, place), place)


async def _run(ask: Ask, work: Coroutine[Any, Any, None], place: Place) -> None:
    limit = ask.served.settings.request_timeout
    left = ask.exchange.request.t_start + limit - time.monotonic() if limit > 0 else None
    try:
        async with asyncio.timeout(left):
            await work
    except TimeoutError:
        raise ApiError(408, "The request exceeded --request-timeout") from None
    except SlotBusy:
        raise ApiError(409, f"Slot {ask.slot} is busy; drop nowait to wait for it") from None
    except (StateRefused, FileRefused) as error:
        raise ApiError(error.status, str(error)) from None
    except StateError as error:
        raise bad(str(error)) from None
    except StoreFull as error:
        raise ApiError(507, str(error)) from None
    except MemoryError:
        raise ApiError(507, "Not enough memory for this state") from None
    finally:
        place.close()
